"""A question and a context of any length -> the part of the context that answers it, or no answer.

Inputs, files, head, loss and metrics are as in SQuAD 2.0: the context is cut into overlapping windows (`windows`), each
window is an example, and the spans of all windows compete (`questions`). The label column of a table holds the answers
in any notation of `answers`; the columns `answer_start` and `answer_end`, if there are any, hold their places.

Example: {"question": "Who?", "context": "It was Ann."} -> {"answer": "Ann", "probability": 0.9, "start": 7, "end": 10,
"no_answer_probability": 0.1, "candidates": [{"text": "Ann", "probability": 0.9, "start": 7, "end": 10}, ...]}

Shapes: Q questions of a split.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from roberta_plugin.data.tokenizers.base import LocatedTokens
from roberta_plugin.data.white_space import strip
from roberta_plugin.extensions.spans.answers import END, NO_PLACE, START, SquadAnswer, parse_answers, place_answer
from roberta_plugin.extensions.spans.metrics import squad_metrics
from roberta_plugin.extensions.spans.questions import (
    MAX_ANSWER_LENGTH,
    N_BEST,
    Questions,
    RankedAnswers,
    SplitMaker,
    decode,
    windows_of,
)
from roberta_plugin.finetuning.examples import Example, is_missing
from roberta_plugin.finetuning.kinds.answer_scores import AnswerScore, answer_score
from roberta_plugin.finetuning.kinds.answering import Answer
from roberta_plugin.finetuning.kinds.base import DEFAULT_THRESHOLD, HuggingFace, rounded
from roberta_plugin.finetuning.kinds.outputs import PER_TOKEN, Decisions, Outcome, RawOutputs, Weights
from roberta_plugin.finetuning.kinds.score_names import BEST, tuned
from roberta_plugin.finetuning.kinds.tables import TableKind
from roberta_plugin.finetuning.kinds.usage import Exported, python_block
from roberta_plugin.finetuning.layouts.texts import Encoder
from roberta_plugin.finetuning.layouts.windows import (
    DOC_STRIDE,
    QUESTION_LENGTH,
    WindowLayout,
    is_blank,
    question_length,
)
from roberta_plugin.finetuning.prepared import PreparedSplit, SplitWriter
from roberta_plugin.finetuning.records import as_read, number_in, parse_cell, text_of, values_of
from roberta_plugin.tables import Row, short

logger = logging.getLogger(__name__)

OFFICIAL = ("squad1", "squad2")
DECODING = {"n_best": N_BEST, "max_answer_length": MAX_ANSWER_LENGTH}
_COLUMNS = ("question", "passage", "passage_token", "passage_length", "best_start", "best_stop")


class Question(NamedTuple):
    """A question and the text that is searched."""

    context: str
    text: str


class QuestionAnswering(TableKind):
    """The losses of SQuAD 2.0: of the span, and of whether there is one."""

    name = "question_answering"
    description = "finds the answer to a question in a passage"
    head = "span"
    default_head_name = "span_head"
    task = "squad2"
    white_space = "spaces"
    free_settings = ("question_length", "doc_stride")
    outputs = ("start_logits", "end_logits", "answerable_logits")
    decides = "spans"
    outputs_by: ClassVar[Mapping[str, str]] = {"start_logits": PER_TOKEN, "end_logits": PER_TOKEN}
    graph_outputs = ("start_logits", "end_logits", "answerable")
    # Hugging Face's class does not predict whether there is an answer. The part of our head that does has the names of
    # its ForSequenceClassification with one label, which can therefore read it from the same folder.
    hugging_face = HuggingFace(
        suffix="ForQuestionAnswering",
        names={
            "span": "qa_outputs",
            "answerable.dense": "classifier.dense",
            "answerable.out_proj": "classifier.out_proj",
        },
        optional=("answerable.dense", "answerable.out_proj"),
        pipeline="question-answering",
        arguments=None,
        num_outputs=2,
        rows={"span": 2, "answerable.out_proj": 1},
        peft_task="QUESTION_ANS",
        task="squad2",
        task_without_optional="squad1",
    )
    fields = ("context", "question")
    can_pack = False
    decides_by = MappingProxyType({"null_threshold": ""})
    scoring = ("threshold", "null_threshold", *DECODING)

    @override
    def usage(self, model: Exported) -> str:
        """The code finds the span itself: transformers 5 does not have a pipeline for it."""
        also, answerable = "", ""
        if self.task_name != "squad1":
            also = "AutoModelForSequenceClassification, "
            answerable = f"""
answerable = AutoModelForSequenceClassification.from_pretrained("FOLDER", num_labels=1)
with torch.no_grad():
    no_answer = 1 - answerable(**inputs).logits.sigmoid().item()
if no_answer > {model.decides_by.get("null_threshold", DEFAULT_THRESHOLD)!r}:
    answer = ""
print(no_answer)"""
        code = python_block(f"""\
import torch
from transformers import AutoModelForQuestionAnswering, {also}AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForQuestionAnswering.from_pretrained("FOLDER")
question, passage = "Who wrote it?", "It was Ann who wrote it."
inputs = tokenizer(
    question, passage, {model.cut('"only_second"')}, return_offsets_mapping=True, return_tensors="pt"
)
places = inputs.pop("offset_mapping")[0].tolist()
in_passage = torch.tensor([text == 1 for text in inputs.sequence_ids()])
with torch.no_grad():
    found = model(**inputs)
scores = found.start_logits[0][:, None] + found.end_logits[0]  # a score for each pair of first and last token
is_span = torch.ones_like(scores, dtype=torch.bool).triu().tril({MAX_ANSWER_LENGTH - 1})
is_span &= in_passage[:, None] & in_passage
start, end = divmod(scores.masked_fill(~is_span, -torch.inf).argmax().item(), len(places))
answer = passage[places[start][0] : places[end][1]].strip(){answerable}
print(answer)""")
        length, stride = self.settings.get("question_length"), self.settings.get("doc_stride")
        windows = f" that start {stride} tokens apart" if stride else ""
        cut = f", and questions of at most {length} tokens" if length else ""
        return (
            f"{code}\n\nThis reads {model.layout.max_length} tokens at most. The model was evaluated with windows of "
            f"that length{windows}{cut}: the answer is the best span of all windows, and the lowest of their "
            "probabilities of no answer counts."
        )

    @override
    def decision(self, model: Exported) -> dict[str, str]:
        rule = "No answer is given if its probability is above the threshold."
        numbers = model.decides_by.values()
        return {f"the threshold {value:.6g} of the probability of no answer": rule for value in numbers}

    @override
    def metrics(self) -> tuple[str, ...]:
        names = ("f1", "exact_match")
        if not self.may_be_unanswerable:
            return names[::-1]
        return (*map(tuned, names), BEST + "exact_match", *names)

    @override
    def head_sizes(self) -> dict[str, int]:
        return {}

    @override
    def constant(self, outputs: RawOutputs, train: PreparedSplit) -> RawOutputs | None:
        """Outputs that mean "no answer". None for SQuAD 1.1, where every question has an answer."""
        if self.task_name == "squad1" or outputs.start_logits is None or outputs.answerable_logits is None:
            return None
        nowhere = [np.zeros_like(logits) for logits in outputs.start_logits]
        never = np.full_like(outputs.answerable_logits, -100.0)
        return RawOutputs(start_logits=nowhere, end_logits=nowhere, answerable_logits=never)

    @override
    def lacks(self, split: PreparedSplit) -> str:
        return "" if Questions(split).is_labelled else "has questions without `answers`"

    @property
    def rules(self) -> str:
        """The data set whose definitions of the metrics are used: the task's own, or SQuAD 2.0."""
        return self.task_name if self.task_name in OFFICIAL else "squad2"

    @property
    def may_be_unanswerable(self) -> bool:
        """True if a question may have no answer."""
        return self.task_name != "squad1"

    @classmethod
    @override
    def settings_of(cls, options: Any, *, max_length: int) -> dict[str, Any]:
        """The layout of the windows, and columns other than `text` and `label`."""
        stride = min(DOC_STRIDE, max(1, max_length // 4))
        layout = WindowLayout.with_defaults(
            max_length, question_length=question_length(max_length, QUESTION_LENGTH), doc_stride=stride
        )
        return {
            **asdict(layout),
            "text_column": options.text_column or "context",
            "text_pair_column": options.text_pair_column or "question",
            "label_column": list(options.label_column or ("answer",)),
        }

    def layout(self, max_length: int) -> WindowLayout:
        """The layout of the windows: as in training or, if that is not recorded, as for tables of your own."""
        usual = {"question_length": question_length(max_length, QUESTION_LENGTH)}
        recorded = {name: self.settings[name] for name in ("question_length", "doc_stride") if name in self.settings}
        return WindowLayout.with_defaults(max_length, **{**usual, **recorded})

    @property
    def selection(self) -> str:
        """F1 at the best threshold."""
        return tuned("f1")

    @override
    def open(self) -> None:
        super().open()
        self.windows = self.layout(self.max_length)
        self.limit = self.number("null_threshold")

    @override
    def is_labelled(self, row: Row) -> bool:
        """True if the row has the column of the answers. An empty cell says that the question has no answer."""
        return self.label_column in row.values

    @override
    def split_key(self, example: Example) -> Sequence[str]:
        """The context, because several questions may be about the same one."""
        return example.texts[:1]

    @override
    def read_question(self, row: Row) -> Question:
        """The question and its context, which keeps its white space, because answers are counted in characters."""
        question = text_of(row, self.names_of(1), option="--text-pair-column")
        return Question(text_of(row, self.names_of(0), option="--text-column", white_space="kept"), question)

    @override
    def read_target(self, row: Row, choices: tuple[str, ...]) -> tuple[SquadAnswer, ...]:
        """The right answers and their first characters."""
        value, context = row.value(self.label_column, option="--label-column"), self.read_question(row).context
        name = f"the column {self.label_column!r}"
        if isinstance(value, str) and value.strip() not in context:
            parsed = parse_cell(value, f"{row.where}, {name}")
            value = parsed if isinstance(parsed, dict | list) else value
        written = parse_answers(value, name, row.where)
        starts = [start for _, start in written]
        if not any(start is not None for start in starts):
            starts = _places(row, START, len(written)) or starts
        ends: Sequence[int | None] = _places(row, END, len(written)) or [None] * len(written)
        answers = []
        for (text, _), written_start, end in zip(written, starts, ends, strict=True):
            start = _whole(written_start)
            if start is None and written_start is not None:
                raise ValueError(
                    f"{row.where}: {name} must have one whole number in {START} for each text, found "
                    f"{short(written_start)}. Correct it, or leave {START} out: the first occurrence counts."
                )
            answer = text.strip()
            if start is not None and start >= 0 and context.startswith(text, start):
                start += len(text) - len(text.lstrip())
            answers.append(place_answer(context, answer, start, end))
        if answers and all(answer.start == NO_PLACE for answer in answers):
            raise ValueError(
                f"{row.where}: the text does not contain the answer {answers[0].text[:60]!r}. Correct one of them, or "
                "leave the answer empty if there is none."
            )
        return tuple(answers)

    @override
    def discover(self, table: Sequence[Example], train: Sequence[Example]) -> dict[str, Any]:
        """There are no labels to find."""
        if not any(example.target for example in train):
            raise ValueError(f"{table[0].path}: no row has an answer, so there is nothing to learn.")
        return {"labels": []}

    @override
    def columns(self, example: Example) -> dict[str, Any]:
        """Nothing: `write` adds the columns of each window."""
        return {}

    @override
    def write(
        self, split: SplitWriter, examples: Iterable[Example], encoder: Encoder, *, max_length: int
    ) -> Sequence[Mapping[str, Any]]:
        """Write the files that `questions.py` describes.

        Answers that are not at their `answer_start` are doubtful. If such an answer is elsewhere in the passage, it is
        learned from there; if it is nowhere, it is left out of training. An answer that starts or ends within a token
        is doubtful, too, because its tokens hold more than the answer.
        """
        maker = SplitMaker(split, list(examples), encoder, self.layout(max_length), is_train=split.name == "train")
        maker.run()
        if maker.doubtful:
            nowhere = sum(answer["found_at"] == NO_PLACE for answer in maker.doubtful)
            inexact = sum("tokens" in answer for answer in maker.doubtful)
            logger.warning(
                f"{split.name}.doubtful.jsonl lists doubtful answers: {len(maker.doubtful) - nowhere - inexact:,} that "
                f"are not at their answer_start but elsewhere in the passage, {nowhere:,} that are nowhere in it, "
                f"{inexact:,} that start or end within a token"
            )
        return maker.doubtful

    @classmethod
    @override
    def numbers_of(cls, values: Mapping[str, Any]) -> dict[str, float]:
        """In tables of your own, the threshold of no answer is called `threshold`."""
        name = "null_threshold" if "null_threshold" in values else "threshold"
        return {"null_threshold": float(values[name])} if name in values else {}

    @override
    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """The answers to questions. A question that is too long is cut as in fine-tuning."""
        answers: list[Answer | None] = [None] * len(questions)
        places, located = [], []
        for place, each in enumerate(questions):
            try:
                tokens = self.hub.tokenizer.locate(as_read(each.context, "spaces"))
                if not len(tokens.ids):
                    raise ValueError("it has no tokens. Give another text.")
            except ValueError as error:
                answers[place] = ValueError(f"the context: {error}")
                continue
            places.append(place)
            located.append(tokens)
        asked = [questions[place] for place in places]
        results = self._decode(asked, located) if asked else []
        for place, decoded in zip(places, results, strict=True):
            answers[place] = self._entry(decoded)
        return [each for each in answers if each is not None]

    def _decode(self, asked: Sequence[Question], located: Sequence[LocatedTokens]) -> list[RankedAnswers]:
        memory = _QuestionsInMemory([each.context for each in asked], located)
        encoder: Encoder = self.hub.codec.encoder
        ids = encoder.ids_of_all([strip(as_read(each.text, "spaces")) for each in asked])
        sequences: list[NDArray[np.int32]] = []
        for question_ids, tokens in zip(ids, located, strict=True):
            question_ids = question_ids[: self.windows.question_length]
            windows = list(windows_of(question_ids, encoder.to_model_id[tokens.ids], self.windows, encoder))
            memory.add_windows([columns for _, _, columns in windows])
            sequences += [sequence for _, sequence, _ in windows]
        outputs = self.hub.span_outputs(sequences, self.head_name, max_tokens=self.options.batch_tokens)
        raw = RawOutputs(
            start_logits=[each.start.numpy() for each in outputs],
            end_logits=[each.end.numpy() for each in outputs],
            answerable_logits=np.array([float(each.answerable) for each in outputs], dtype=np.float32),
        )
        return decode(memory, [raw], n_best=self.options.top_k)

    def _entry(self, decoded: RankedAnswers) -> dict[str, Any]:
        candidates = _list_candidates(decoded)
        entry: dict[str, Any] = {"answer": "", "probability": 0.0}
        if candidates:
            best = candidates[0]
            entry = {"answer": best["text"], **{name: best[name] for name in ("probability", "start", "end")}}
        if self.may_be_unanswerable:
            null = decoded.null_probability
            if null > (DEFAULT_THRESHOLD if self.limit is None else self.limit):
                entry = {"answer": "", "probability": rounded(null)}
            entry["no_answer_probability"] = rounded(null)
            entry |= {} if self.limit is None else {"null_threshold": rounded(self.limit)}
        return {**entry, "candidates": candidates}

    def _by_characters(self, questions: Questions) -> list[bool]:
        """True for each question whose answers are compared by characters; the official scripts of SQuAD never do."""
        return [False] * len(questions) if self.task_name in OFFICIAL else questions.by_characters

    def _scores(
        self, questions: Questions, predictions: Sequence[str], null: Sequence[float] | None = None
    ) -> dict[str, float]:
        by_characters = self._by_characters(questions)
        return squad_metrics(self.rules, questions.answers, predictions, null, by_characters=by_characters)

    @override
    def remarks(self, split: PreparedSplit) -> Iterator[str]:
        questions = Questions(split)
        number = sum(questions.by_characters) if questions.is_labelled else 0
        if not number:
            return
        some = f"{number:,} of {len(questions):,} questions are"
        if self.task_name in OFFICIAL:
            yield (
                f"{some} in a script without spaces, where words are whole phrases: the F1 of SQuAD's script hardly "
                "differs from an exact match. For `custom --kind question-answering` it is computed by characters"
            )
        else:
            yield (
                f"{some} in a script without spaces, or in Korean: exact_match and f1 compare their characters (mixed "
                "segmentation, as in MLQA), and the words of all other questions, as in SQuAD"
            )

    @override
    def validated(self, split: PreparedSplit, outputs: RawOutputs, options: Mapping[str, Any]) -> Mapping[str, float]:
        """The metrics of a validation. A question is left unanswered if its probability of no answer is above one half.

        `tuned_exact_match` and `tuned_f1` are at the threshold with the best F1 instead, as in an evaluation. In SQuAD
        1.1 all questions have an answer.
        """
        questions = Questions(split)
        decoded = decode(questions, [outputs], n_best=1, max_answer_length=options["max_answer_length"])
        values = self._scores(questions, *_best_and_null(decoded))
        if not self.may_be_unanswerable:
            return values
        usual, at_best = (
            self._scores(questions, [_best_text(each, threshold) for each in decoded])
            for threshold in (DEFAULT_THRESHOLD, values["best_f1_thresh"])
        )
        return {**values, **usual, **{tuned(name): at_best[name] for name in AnswerScore._fields}}

    @override
    def judged(self, split: PreparedSplit, members: Sequence[RawOutputs], decisions: Decisions) -> Outcome:
        """Predict the best span, or no answer if the probability of no answer is above a threshold.

        The threshold is `null_threshold` in SQuAD 2.0, `threshold` in tables of your own. The metrics are `exact_match`
        and `f1`. SQuAD 2.0 also has them for the questions with and without an answer (HasAns_, NoAns_), and at the
        best threshold, with that threshold, from 0 to 1 (best_exact_match, best_exact_match_thresh, best_f1,
        best_f1_thresh). Entries of SQuAD have all candidates.
        """
        questions, is_own = Questions(split), self.task_name not in OFFICIAL
        options = {name: decisions.wish(name) or usual for name, usual in DECODING.items()}
        decoded = decode(questions, members, **{**options, **({"n_best": 1} if is_own else {})})
        best, null = _best_and_null(decoded)
        values: dict[str, float] = {}
        if questions.is_labelled:
            values = self._scores(questions, best, null)
        if self.may_be_unanswerable:
            threshold = decisions.find(
                "threshold" if is_own else "null_threshold",
                lambda: values["best_f1_thresh"],
                is_labelled=questions.is_labelled,
            )
            best = [_best_text(each, threshold) for each in decoded]

        def entries() -> Iterator[dict[str, Any]]:
            for id_, text, each, answers in zip(questions.ids, best, decoded, questions.answers, strict=True):
                entry: dict[str, Any] = {"id": id_, "prediction": text}
                if is_own:
                    entry["no_answer_probability"] = rounded(each.null_probability)
                    yield entry if answers is None else {**entry, "label": answers}
                else:
                    null = {"no_answer_probability": each.null_probability}
                    yield {**entry, **null, "candidates": _list_candidates(each, number=float)}

        if not questions.is_labelled:
            return Outcome(entries=entries, num_examples=len(questions))
        values |= self._scores(questions, best)
        answered = zip(best, questions.answers, self._by_characters(questions), strict=True)
        scores = np.array(
            [
                answer_score(text, right or (), may_be_empty=self.may_be_unanswerable, by_characters=each)
                for text, right, each in answered
            ]
        )  # (Q, 2)

        def measure(weights: Weights) -> dict[str, float]:
            means = (100 * weights @ scores / weights.sum()).tolist()
            # the official scripts count each question once
            return dict(zip(AnswerScore._fields, means, strict=True)) if is_own else values

        return Outcome(entries=entries, num_examples=len(questions), measure=measure)

    @override
    def baseline(
        self, split: PreparedSplit, outputs: RawOutputs, train: PreparedSplit, decisions: Decisions
    ) -> dict[str, float]:
        """The metrics of giving no answer to any question, whatever the threshold is."""
        return super().baseline(split, outputs, train, Decisions(split.name, {"threshold": 0.0}))


def _places(row: Row, column: str, number: int) -> list[int] | None:
    """The whole numbers in a further column, one for each answer; None if there is no such column or it is empty.

    Raises:
        ValueError: naming file, line and column, if it holds anything else.
    """
    if not number or is_missing(row.values.get(column)):
        return None
    values = values_of(row, column)
    found = [_whole(value) for value in ([row.values[column]] if values is None else values)]
    numbers = [each for each in found if each is not None]
    if not len(found) == len(numbers) == number:
        raise ValueError(
            f"{row.where}: the column {column!r} must hold one whole number for each answer, counted in characters "
            f"from 0, found {short(row.values[column])}. Correct it, or leave the column out: the first occurrence "
            "counts."
        )
    return numbers


def _whole(value: object) -> int | None:
    """The whole number in a value, which may be a text; None for any other value."""
    number = number_in(value)
    return int(number) if number.is_integer() else None


class _QuestionsInMemory(Questions):
    """Questions of records instead of a prepared split, each with a passage of its own."""

    def __init__(self, contexts: Sequence[str], located: Sequence[LocatedTokens]) -> None:
        self.ids = [str(number) for number in range(len(contexts))]
        self._passages = list(contexts)
        self._passage_of = list(range(len(contexts)))
        blank = [is_blank(text, tokens) for text, tokens in zip(contexts, located, strict=True)]
        facts: dict[str, Any] = {  # a prepared split has these in files
            "columns": {name: [] for name in _COLUMNS},
            "tokens": {
                "is_blank": np.concatenate([np.empty(0, np.bool_), *blank]),
                "char_starts": np.concatenate([np.empty(0, np.int32), *(tokens.starts for tokens in located)]),
                "char_ends": np.concatenate([np.empty(0, np.int32), *(tokens.ends for tokens in located)]),
                "first_token": np.cumsum([0, *(len(tokens.ids) for tokens in located)]),
            },
            "windows_of": [],
        }
        self.__dict__.update(facts)

    def add_windows(self, windows: Sequence[dict[str, int]]) -> None:
        """Append the windows of the next question, each with `_COLUMNS` but "question"."""
        number, first = len(self.windows_of), len(self.columns["question"])
        for window in windows:
            for name in _COLUMNS:
                self.columns[name].append(window.get(name, number))
        self.windows_of.append(np.arange(first, first + len(windows)))


def _list_candidates(decoded: RankedAnswers, *, number: Callable[[float], float] = rounded) -> list[dict[str, Any]]:
    """The candidates of an answer; `number` formats their probabilities."""
    return [
        {"text": text, "probability": number(math.exp(value)), "start": start, "end": stop}
        for text, value, start, stop in decoded.candidates
    ]


def _best_and_null(decoded: Sequence[RankedAnswers]) -> tuple[list[str], list[float]]:
    """For each question the best text, empty if there is none, and the probability of no answer."""
    return [_best_text(each) for each in decoded], [each.null_probability for each in decoded]


def _best_text(decoded: RankedAnswers, threshold: float = math.inf) -> str:
    """The best text; empty if there is none, or if the probability of no answer is above the threshold."""
    is_given = decoded.candidates and decoded.null_probability <= threshold
    return decoded.candidates[0].text if is_given else ""
