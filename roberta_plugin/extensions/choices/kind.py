"""A context, perhaps a question, and any number of options -> the right option: RACE, COPA, and tables of your own.

An example has one sequence per option, whose output is the option's score. There are two layouts. The layout of RACE is

    <s> passage </s> </s> question+option </s>           (order "passage", the default)
    <s> question+option </s> </s> passage </s>           (order "question")

Passage first is the order of Hugging Face's multiple-choice scripts for RACE (utils_multiple_choice.py); the paper says
only that each candidate answer is concatenated "with the corresponding question and passage". fairseq's
`sentence_ranking` puts question+option first, so a checkpoint that was fine-tuned with it needs the order "question".

Question+option follows fairseq's preprocess_RACE.py: the option fills the blank of the question, or follows the
question if there is no blank. Any run of white space becomes one space, also in passages, as in that script since
fairseq's pull request 818. One thing differs: a blank may consist of several underscores.

In SuperGLUE's tasks and CommonsenseQA the question has a slot for the option, and the input is a pair of texts.

Columns: `label`, the number of the right option (-1 if it is not known), and `level`, 0 = middle and 1 = high for RACE
and -1 for other sets. The record of an official example has its `options`. Where several can be right, as in ReCoRD, it
also has `right`, and the text of the option is compared with them by the metrics of SQuAD 1.1.

Example: {"context": "She opens the hood.", "question": "Then, she", "options": ["drives.", "looks at the engine."]} ->
{"answer": 1, "option": "looks at the engine.", "probabilities": [0.1, 0.9]}; in TSV, the options are the columns
option1, option2 and so on.

Shapes: N examples of a split, S options of all examples; P tokens of a context, Q of question+option, T of the input.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count, islice, pairwise, takewhile
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.data.white_space import strip
from roberta_plugin.finetuning.examples import Example, is_missing, label_of
from roberta_plugin.finetuning.kinds.answer_scores import AnswerScore, answer_score
from roberta_plugin.finetuning.kinds.answering import Answer, marked
from roberta_plugin.finetuning.kinds.base import HuggingFace, logits_of, rounded
from roberta_plugin.finetuning.kinds.foreign_rows import named_options
from roberta_plugin.finetuning.kinds.outputs import Decisions, Outcome, RawOutputs, Weights, mean_probabilities
from roberta_plugin.finetuning.kinds.score_names import of_label
from roberta_plugin.finetuning.kinds.tables import TableKind
from roberta_plugin.finetuning.kinds.usage import Exported, python_block
from roberta_plugin.finetuning.layouts.texts import Encoder, join
from roberta_plugin.finetuning.layouts.windows import question_length
from roberta_plugin.finetuning.prepared import PreparedSplit, SplitWriter
from roberta_plugin.finetuning.records import alone, column_of, one_line, text_of, texts_of, values_of
from roberta_plugin.progress import terminal_bar
from roberta_plugin.tables import Row

LEVELS = ("middle", "high")
NO_LEVEL = -1  # sets other than RACE have no levels
NO_ANSWER = -1

QUESTION_LENGTH = 128  # the paper's limit for question+option, in tokens (section 5.3)
_AT_ONCE = 1_000  # examples in one call of the tokenizer
_BLANK = re.compile(r"_+")


class Choices(NamedTuple):
    """A question with its options."""

    context: str
    options: tuple[str, ...]
    seconds: tuple[str, ...]
    """The text after the context, for each option."""
    question: str = ""


def question_with_option(question: str, option: str) -> str:
    """The question with the option in its blanks; without a blank, the question, a space and the option.

    Example: "Tom  _  his dog ." and "lost" -> "Tom lost his dog ."
    """
    question, option = one_line(question), one_line(option)
    if "_" in question:
        return one_line(_BLANK.sub(lambda match: option, question))
    return strip(f"{question} {option}")


@dataclass(frozen=True, kw_only=True)
class PairLayout:
    """`<s> context </s> </s> second </s>`. The longer text is cut: see `layouts/texts.join`."""

    max_length: int
    separators: int = 2
    """</s> between the two."""

    @property
    def num_specials(self) -> int:
        """<s> and </s>."""
        return 2 + self.separators

    def measure(self, split: SplitWriter, num_context: int, num_second: int) -> None:
        """Let the split count the tokens that `join` cuts from texts of these lengths."""
        split.measure("texts with an option", num_context + num_second + self.num_specials, limit=self.max_length)

    def join(self, vocabulary: Vocabulary, context: NDArray[np.int32], second: NDArray[np.int32]) -> NDArray[np.int32]:
        """Ids of the context (P,) and of what follows it (Q,) -> the model's input (T,), T <= max_length."""
        return join(vocabulary, context, second, max_length=self.max_length, separators=self.separators)


@dataclass(frozen=True, kw_only=True)
class ChoiceLayout:
    """How a model input of RACE is put together, in tokens; the settings of the prepared folder."""

    max_length: int
    question_length: int = QUESTION_LENGTH
    order: str = "passage"

    num_specials: ClassVar[int] = 4
    """<s> </s> </s> </s>."""

    @classmethod
    def with_defaults(
        cls, max_length: int, *, question_length: int | None = None, order: str | None = None
    ) -> ChoiceLayout:
        """The layout of inputs of `max_length` tokens; None: the paper's value."""
        question_length = question_length or QUESTION_LENGTH
        layout = cls(max_length=max_length, question_length=question_length, order=order or "passage")
        if max_length <= layout.question_length + cls.num_specials:
            raise ValueError(
                f"--max-length {max_length} leaves no token for the passage: question and option may have "
                f"{layout.question_length}, and {cls.num_specials} more are <s> and </s>. Raise it, or lower "
                "--question-length."
            )
        return layout

    def measure(self, split: SplitWriter, num_passage: int, num_question: int) -> None:
        """Let the split count the tokens that `join` cuts from a passage and question+option of these lengths."""
        split.measure("questions with an option", num_question, limit=self.question_length)
        num_tokens = num_passage + min(num_question, self.question_length) + self.num_specials
        split.measure("passages with question and option", num_tokens, limit=self.max_length)

    def join(
        self, vocabulary: Vocabulary, passage: NDArray[np.int32], question: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """Ids of the passage (P,) and of question+option (Q,) -> the model's input (T,), T <= max_length.

        Question+option is cut to `question_length` tokens, then the passage to the room that is left. Both lose their
        last tokens. <s> and </s> always stay.

        Example: max_length 10, question_length 3, a passage of 5 tokens p0..p4 and a question of 4 tokens q0..q3 ->
        `<s> p0 p1 p2 </s> </s> q0 q1 q2 </s>`.
        """
        question = question[: self.question_length]
        passage = passage[: self.max_length - self.num_specials - len(question)]
        first, second = (passage, question) if self.order == "passage" else (question, passage)
        return join(vocabulary, first, second, max_length=self.max_length)


def answers(probabilities: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Probabilities (S,) -> index of the most probable option of each example (N,); ties go to the earlier option."""
    return np.array([probabilities[start:stop].argmax() for start, stop in pairwise(offsets.tolist())], dtype=np.int64)


def accuracies(
    predictions: NDArray[np.int64], labels: NDArray[np.int64], levels: NDArray[np.int64], weights: Weights | None = None
) -> dict[str, float]:
    """Percentage of right answers: `accuracy` and, for RACE, `accuracy_middle` and `accuracy_high`.

    Examples without a label do not count. If no example has a label, there is no accuracy. Each example counts
    `weights` (N,) times; None: once.
    """
    weights = np.ones(len(predictions)) if weights is None else weights
    groups = {"accuracy": labels >= 0}
    groups |= {of_label("accuracy", name): (labels >= 0) & (levels == index) for index, name in enumerate(LEVELS)}
    is_right = predictions == labels
    return {
        name: 100.0 * float(weights @ (is_right & group)) / float(weights @ group)
        for name, group in groups.items()
        if group.any()
    }


def inputs_of(
    questions: Sequence[Choices], encoder: Encoder, layout: ChoiceLayout | PairLayout
) -> Iterator[list[tuple[NDArray[np.int32], int, int]]]:
    """For each option of each question the model's input (T,), and the tokens of its two texts before they are cut."""
    texts = list(dict.fromkeys(each.context for each in questions))  # several questions may be about one
    contexts = dict(zip(texts, encoder.ids_of_all(texts), strict=True))
    seconds = iter(encoder.ids_of_all([second for each in questions for second in each.seconds]))
    for each in questions:
        context = contexts[each.context]
        ids_of_options = islice(seconds, len(each.seconds))
        yield [(layout.join(encoder.vocabulary, context, ids), len(context), len(ids)) for ids in ids_of_options]


class MultipleChoice(TableKind):
    """Cross-entropy over the options of an example."""

    name = "multiple_choice"
    decides = "scores"
    knows_no_label = True
    description = "scores each option of a question"
    task = "race"
    also_trained_by = ("sentence_ranking",)
    white_space = "one_line"
    free_settings = ("question_length",)
    can_smooth = True
    hugging_face = HuggingFace(
        suffix="ForMultipleChoice",
        names={"dense": "roberta.pooler.dense", "out_proj": "classifier"},
        pipeline="multiple-choice",
        arguments=None,
        num_outputs=1,
        reads_options=True,
        task="multiple_choice",
        settings={"order": "passage"},
    )
    fields = ("context", "question")
    of_table = ("text_pair_column",)

    @override
    def usage(self, model: Exported) -> str:
        pairs, cut = "[context] * len(options), seconds", '"only_first"'
        if self.settings.get("order") == "question":
            pairs, cut = "seconds, [context] * len(options)", '"only_second"'
        code = python_block(f"""\
import torch
from transformers import AutoModelForMultipleChoice, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForMultipleChoice.from_pretrained("FOLDER")
context, question, options = "She opens the hood.", "Then, she", ["drives.", "looks at the engine."]
seconds = [f"{{question}} {{option}}" for option in options]
inputs = tokenizer({pairs}, {model.cut(cut)}, padding=True, return_tensors="pt")
with torch.no_grad():
    logits = model(**{{name: value[None] for name, value in inputs.items()}}).logits[0]
print(options[logits.argmax()], logits.softmax(0).tolist())""")
        length = self.settings.get("question_length")
        limit = f", and question with option are cut at {length} tokens" if length else ""
        note = f"The model was evaluated so, but an option fills the blank `_` of a question that has one{limit}."
        return f"{code}\n\n{note}"

    @override
    def settings_of_table(self, train: Path) -> dict[str, Any]:
        """Without --text-pair-column, the question is read from a column `question` if there is one."""
        if "text_pair_column" in self.settings:
            return {}
        usual = self.fields[1]
        named = (*self.settings["label_column"], *self.settings["choices_columns"], self.settings["text_column"])
        has_one = usual not in named and any(usual in row.values for row in self.rows(train))
        return {"text_pair_column": usual if has_one else None}

    @override
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy", *(of_label("accuracy", level) for level in LEVELS if self.task_name == "race"))

    @override
    def lacks(self, split: PreparedSplit) -> str:
        labels = split.columns["label"]
        num_unknown = int((labels < 0).sum())
        return f"has {num_unknown:,} of {len(labels):,} questions without an answer" if num_unknown else ""

    @classmethod
    @override
    def settings_of(cls, options: Any, *, max_length: int) -> dict[str, Any]:
        """The layout of the inputs and the columns of the options."""
        layout = ChoiceLayout.with_defaults(max_length, question_length=question_length(max_length, QUESTION_LENGTH))
        return {**asdict(layout), "choices_columns": list(options.choices_columns or ("options",))}

    def layout(self, max_length: int) -> ChoiceLayout | PairLayout:
        """The layout of the inputs: as in training or, if that is not known, as for tables of your own."""
        if self.official.slot:
            return PairLayout(max_length=max_length, separators=self.official.separators)
        usual = {"question_length": question_length(max_length, QUESTION_LENGTH)}
        recorded = {name: self.settings[name] for name in ("question_length", "order") if name in self.settings}
        return ChoiceLayout.with_defaults(max_length, **{**usual, **recorded})

    @override
    def open(self) -> None:
        super().open()
        self.check_one_output()
        self.inputs = self.layout(self.max_length)

    @override
    def read_question(self, row: Row) -> Choices:
        if self.is_answering and self.official.choices is not None:
            return self.choices_of(self.official.choices(row.values))
        first = column_of(row, self.names_of(0, "article", "passage"), option="--text-column")
        context, second = text_of(row, (first,), option="--text-column"), self.second_column(row, first)
        may_be_empty = self.is_answering and "text_column" not in self.settings  # the rules of the task are not known
        is_asked = second is not None and not (may_be_empty and is_missing(row.values[second]))
        question = text_of(row, (str(second),), option="--text-pair-column") if is_asked else ""
        return self._choices(context, question, self._options(row))

    def choices_of(self, example: Example) -> Choices:
        """The question of an example with its options."""
        return self._choices(example.texts[0], "".join(example.texts[1:]), example.choices)

    def _choices(self, context: str, question: str, options: tuple[str, ...]) -> Choices:
        if slot := self.official.slot:
            return Choices(context, options, tuple(question.replace(slot, option) for option in options), question)
        seconds = tuple(question_with_option(question, option) for option in options)
        return Choices(one_line(context), options, seconds, question)

    def _options(self, row: Row) -> tuple[str, ...]:
        """The options: one per column, where the last columns may be empty, or the entries of a list."""
        columns = self.settings.get("choices_columns") or ["options"]
        if self.is_answering and not all(name in row.values for name in columns):
            numbered = list(takewhile(row.values.__contains__, (f"option{number}" for number in count(1))))
            columns = ["options"] if "options" in row.values or not numbered else numbered
        if len(columns) > 1:
            are_empty = [column in row.values and is_missing(row.values[column]) for column in columns]
            number = next((place for place in range(len(columns), 2, -1) if not are_empty[place - 1]), 2)
            return tuple(text_of(row, (column,), option="--choices-columns") for column in columns[:number])
        name = column_of(row, columns, option="--choices-columns")
        if (named := named_options(row, name)) is not None:
            row = row._replace(values={**row.values, name: named[0]})
        options = values_of(row, name)
        if options is None and isinstance(row.values[name], str):
            raise ValueError(
                f"{row.where}: the column {name!r} must hold a list of options, such as "
                f'["one", "two"]. Name one column for each option by --choices-columns.'
            )
        texts = texts_of(row, name, what="option")
        if len(texts) < 2:
            raise ValueError(f"{row.where}: {len(texts)} options, and a choice needs two or more. Add some.")
        return tuple(texts)

    @override
    def read_inputs(self, row: Row) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The context and, if there is one, the question; and the options."""
        question = self.read_question(row)
        context = text_of(row, self.names_of(0), option="--text-column")
        return (context, question.question) if self.names_of(1) else (context,), question.options

    @override
    def split_key(self, example: Example) -> Sequence[str]:
        """The context, because several questions may be about the same one."""
        return example.texts[:1]

    @override
    def read_target(self, row: Row, choices: tuple[str, ...]) -> int:
        """The number of the right option, counted from 0.

        The column may say it in several ways:

            the row names its options, as ARC does     one of these names
            --labels names them                        one of these names
            otherwise                                  the number, from 0, the letter, the column or the text of the
                                                       option

        A text that means one option as a number and another one as a text is refused: "1" for the options "1", "2".
        Numbers in JSON Lines or Parquet are clear: they are the number of an option if there is such an option.
        """
        place = f"{row.where}, the column {self.label_column!r}"
        value = alone(row.value(self.label_column, option="--label-column"), place)
        text = label_of(value, self.label_column, row.where)
        columns, listed = self.settings["choices_columns"], self.settings.get("labels") or []
        named = named_options(row, columns[0]) if len(columns) == 1 else None
        if named is not None and named[1]:  # the row itself names its options
            if text in named[1]:
                return named[1].index(text)
            raise ValueError(
                f"{row.where}: the label {text!r} is none of {', '.join(named[1])}, the names of the options. Correct "
                "the row, or leave it out."
            )
        names = [list(listed)] if listed else [[str(number) for number in range(len(choices))]]
        names += [] if listed else [list(string.ascii_uppercase), columns if len(columns) > 1 else [], list(choices)]
        numbers = [each.index(text) for each in names if text in each[: len(choices)]]
        if len(set(numbers)) > 1 and isinstance(value, str):
            meant = " and ".join(repr(choices[index][:40]) for index in dict.fromkeys(numbers))
            raise ValueError(
                f"{row.where}: the label {text!r} can mean different options, {meant}: a label may be a number from 0, "
                "a letter, a column or a text. Name the options of a row in order, such as by --labels 0 1 2 or "
                "--labels A B C, and use only these names as labels."
            )
        if numbers:
            return numbers[0]
        raise ValueError(
            f"{row.where}: the label {text!r} is none of the {len(choices)} options: "
            + (f"--labels names them {' '.join(listed)}." if listed else "a label is a number from 0, a letter, a "
               "column or a text. Give other names, such as 1 2 3 4, by --labels.")
        )  # fmt: skip

    @override
    def discover(self, table: Sequence[Example], train: Sequence[Example]) -> dict[str, Any]:
        """The names of the options, if --labels gives them."""
        return {"labels": list(self.settings.get("labels") or ())}

    @override
    def columns(self, example: Example) -> dict[str, Any]:
        return {"label": example.target, "level": NO_LEVEL, **example.columns}

    @override
    def sequences(
        self, examples: Sequence[Example], encoder: Encoder, split: SplitWriter, *, max_length: int
    ) -> Iterator[list[NDArray[np.int32]]]:
        """One input for each option of an example."""
        layout = self.layout(max_length)
        for start in terminal_bar(range(0, len(examples), _AT_ONCE), split.name, unit=" chunks"):
            part = examples[start : start + _AT_ONCE]
            for inputs in inputs_of([self.choices_of(example) for example in part], encoder, layout):
                for _, num_context, num_second in inputs:
                    layout.measure(split, num_context, num_second)
                yield [sequence for sequence, _, _ in inputs]

    @override
    def answer(self, questions: Sequence[Choices]) -> list[Answer]:
        """The answers to questions. Inputs that are too long are cut as in fine-tuning."""
        inputs = list(inputs_of(questions, self.hub.codec.encoder, self.inputs))
        sequences = [sequence for each in inputs for sequence, _, _ in each]
        logits = self.hub.class_logits(sequences, self.head_name, max_tokens=self.options.batch_tokens)
        offsets = np.cumsum([0, *map(len, inputs)])
        probabilities = mean_probabilities([logits.numpy()[:, 0]], offsets)
        results: list[Answer] = []
        for number, (question, each) in enumerate(zip(questions, inputs, strict=True)):
            part = probabilities[offsets[number] : offsets[number + 1]]
            best = int(part.argmax())
            shown = [rounded(value) for value in part.tolist()]
            content = {"answer": best, "option": question.options[best], "probabilities": shown}
            is_cut = any(sum(lengths) + self.inputs.num_specials > len(sequence) for sequence, *lengths in each)
            results.append(marked(content, is_cut=is_cut))
        return results

    @override
    def judged(self, split: PreparedSplit, members: Sequence[RawOutputs], decisions: Decisions) -> Outcome:
        """Predict the most probable option. The probabilities of the members are averaged."""
        offsets = np.asarray(split.offsets)
        probabilities = mean_probabilities([each[:, 0] for each in logits_of(members)], offsets)  # (S,)
        predictions = answers(probabilities, offsets)  # (N,)
        labels = np.asarray(split.columns.get("label", np.full(len(split), NO_ANSWER)))
        levels = np.asarray(split.columns.get("level", np.full(len(split), NO_LEVEL)))

        def entries() -> Iterator[dict[str, Any]]:
            for record, prediction, label, (start, stop) in zip(
                split.records(), predictions.tolist(), labels.tolist(), pairwise(offsets.tolist()), strict=True
            ):
                entry = {"id": record["id"], "prediction": prediction}
                entry |= {"question": record["question"]} if "question" in record else {}
                entry |= {"option": record["options"][prediction]} if "options" in record else {}
                entry |= {"label": label} if label >= 0 else {}
                yield {**entry, "probabilities": [rounded(value) for value in probabilities[start:stop].tolist()]}

        if not (labels >= 0).any():
            return Outcome(entries=entries, num_examples=len(split))
        pairs = [*zip(split.records(), predictions.tolist(), strict=True)] if self.official.slot else []
        scores = [answer_score(each["options"][number], each["right"]) for each, number in pairs if each["right"]]
        texts = np.array(scores)  # (N, 2)

        def measure(weights: Weights) -> dict[str, float]:
            values = accuracies(predictions, labels, levels, weights)
            if scores:
                means = (100 * weights @ texts / weights.sum()).tolist()
                values |= dict(zip(AnswerScore._fields, means, strict=True))
            return values

        right = probabilities[offsets[:-1] + np.maximum(labels, 0)]  # (N,)
        losses = -np.log(np.maximum(right, np.finfo(np.float64).tiny))
        return Outcome(entries=entries, num_examples=len(split), measure=measure, losses=losses)

    @override
    def baseline(
        self, split: PreparedSplit, outputs: RawOutputs, train: PreparedSplit, decisions: Decisions
    ) -> dict[str, float]:
        """The expected accuracy of guessing."""
        return {"accuracy": 100 * float((1 / np.diff(split.offsets)).mean())}
