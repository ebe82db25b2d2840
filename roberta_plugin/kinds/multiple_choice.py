"""A context, perhaps a question, and any number of options -> the right option.

Inputs, head and loss are those of RACE (`choices`): one sequence per option, which scores it. Models of COPA, ReCoRD
and CommonsenseQA take the fields of these tasks instead.

Columns: `label`, the number of the right option, and `level`, which is that of RACE's levels and -1 for other data.

Example: {"context": "She opens the hood.", "question": "Then, she", "options": ["drives.", "looks at the engine."]} ->
{"answer": 1, "option": "looks at the engine.", "probabilities": [0.1, 0.9]}; in TSV, the options are the columns
option1, option2 and so on.

Shapes: N examples of a split, S options of all of them.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import count, pairwise, takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.finetuning.prepared_writer import SplitWriter
from roberta_plugin.kinds import metrics
from roberta_plugin.kinds.base import Answer, HuggingFace, logits_of, marked, rounded
from roberta_plugin.kinds.choices import (
    LEVELS,
    NO_LEVEL,
    NUM_SPECIALS,
    QUESTION_LENGTH,
    ChoiceLayout,
    Choices,
    accuracies,
    answers,
    option_probabilities,
    question_with_option,
)
from roberta_plugin.kinds.decisions import Decisions
from roberta_plugin.kinds.examples import Example, label_of
from roberta_plugin.kinds.outcome import Outcome, ids_of
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.records import column_of, one_line, text_of, texts_of, values_of
from roberta_plugin.kinds.tables import TableKind
from roberta_plugin.kinds.windows import question_length
from roberta_plugin.tables import Row

_AT_ONCE = 10_000  # examples in one call of the tokenizer


class MultipleChoice(TableKind):
    """Cross-entropy over the options of an example."""

    name = "multiple_choice"
    description = "scores each option of a question"
    task = "race"
    white_space = "one_line"
    can_smooth = True
    hugging_face = HuggingFace(
        suffix="ForMultipleChoice",
        names={"dense": "roberta.pooler.dense", "out_proj": "classifier"},
        pipeline="multiple-choice",
        arguments=None,
        num_outputs=1,
        task="multiple_choice",
        settings={"order": "passage"},
    )
    fields = ("context", "question")

    def metrics(self) -> tuple[str, ...]:
        """See `Kind.metrics`."""
        return ("accuracy", *(f"accuracy_{level}" for level in LEVELS if self.task_name == "race"))

    def constant(self, outputs: RawOutputs, train: PreparedSplit) -> RawOutputs:
        """See `Kind.constant`: of equal scores the first one counts."""
        return RawOutputs(logits=np.zeros(logits_of([outputs])[0].shape, dtype=np.float32))

    def lacks(self, split: PreparedSplit) -> str:
        """See `Kind.lacks`."""
        labels = split.columns["label"]
        num_unknown = int((labels < 0).sum())
        return f"has {num_unknown:,} of {len(labels):,} questions without an answer" if num_unknown else ""

    @classmethod
    def settings_of(cls, options: Any, *, max_length: int) -> dict[str, Any]:
        """See `TableKind.settings_of`: the layout of the inputs."""
        layout = ChoiceLayout.of(max_length, question_length=question_length(max_length, QUESTION_LENGTH))
        return {**asdict(layout), "choices_columns": list(options.choices_columns or ("options",))}

    def layout(self, max_length: int) -> ChoiceLayout:
        """The layout of the inputs: that of the training, or the one for tables of your own if it is not known."""
        known = {name: self.settings[name] for name in ("question_length", "order") if name in self.settings}
        return ChoiceLayout.of(max_length, **{"question_length": question_length(max_length, QUESTION_LENGTH), **known})

    def open(self) -> None:
        """See `Kind.open`."""
        super().open()
        self.check_one_output()
        encoder: Encoder = self.hub.codec.encoder
        self.num_specials = NUM_SPECIALS
        self.join: Callable[[NDArray[np.int32], NDArray[np.int32]], NDArray[np.int32]]
        if self.official.choices is not None:
            separators = self.official.separators
            self.num_specials = 2 + separators
            self.join = partial(encoder.join, max_length=self.max_length, separators=separators)
        else:
            self.join = partial(self.layout(self.max_length).join, encoder.vocabulary)

    def read_question(self, row: Row) -> Choices:
        """See `Kind.read_question`."""
        if self.is_answering and self.official.choices is not None:
            chosen: Choices = self.official.choices(row.values)
            return chosen
        context = text_of(row, self.names_of(0, "article", "passage"), option="--text-column")
        asked = self.names_of(1)
        is_asked = bool(asked) and (not self.is_answering or any(row.values.get(name) for name in asked))
        question = text_of(row, asked, option="--text-pair-column") if is_asked else ""
        options = self._options(row)
        seconds = tuple(question_with_option(question, option) for option in options)
        return Choices(context=one_line(context), options=options, seconds=seconds, question=question)

    def _options(self, row: Row) -> tuple[str, ...]:
        """The options: one per column, or those in a list."""
        columns = self.settings.get("choices_columns") or ["options"]
        if self.is_answering and not all(name in row.values for name in columns):
            numbered = list(takewhile(row.values.__contains__, (f"option{number}" for number in count(1))))
            columns = ["options"] if "options" in row.values or not numbered else numbered
        if len(columns) > 1:
            return tuple(text_of(row, (column,), option="--choices-columns") for column in columns)
        name = column_of(row, columns, option="--choices-columns")
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

    def read_inputs(self, row: Row) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """See `TableKind.read_inputs`: the context and, if there is one, the question."""
        found = self.read_question(row)
        context = text_of(row, self.names_of(0), option="--text-column")
        return (context, found.question) if self.names_of(1) else (context,), found.options

    def split_key(self, example: Example) -> Sequence[str]:
        """See `TableKind.split_key`: the context, about which there may be several questions."""
        return example.texts[:1]

    def read_target(self, row: Row, choices: tuple[str, ...]) -> int:
        """See `TableKind.read_target`: the number of the right option, from 0.

        The column may hold its number, counted from 0, its letter, its column, its text, or its name in --labels. What
        is a number in JSON Lines or Parquet is that of an option if it can be.
        """
        value = row.value(self.label_column, option="--label-column")
        text = label_of(value, self.label_column, row.where)
        columns, named = self.settings["choices_columns"], self.settings.get("labels") or []
        names = [list(named)] if named else [[str(number) for number in range(len(choices))]]
        names += [] if named else [list(string.ascii_uppercase), columns if len(columns) > 1 else [], list(choices)]
        found = [known.index(text) for known in names if text in known[: len(choices)]]
        if len(set(found)) > 1 and isinstance(value, str):
            meant = " and ".join(repr(choices[index][:40]) for index in dict.fromkeys(found))
            raise ValueError(
                f"{row.where}: the label {text!r} can mean different options, {meant}: a number from 0, a letter, a "
                "column and a text are labels. Name the options of a row in order, such as by --labels 0 1 2 or "
                "--labels A B C, and let all labels be such names."
            )
        if found:
            return found[0]
        raise ValueError(
            f"{row.where}: the label {text!r} is none of the {len(choices)} options: "
            + (f"--labels names them {' '.join(named)}." if named else "they are numbered from 0, or named by letter, "
               "column or text; other names, such as 1 2 3 4, are given by --labels.")
        )  # fmt: skip

    def discover(self, table: Sequence[Example], train: Sequence[Example]) -> dict[str, Any]:
        """See `TableKind.discover`: nothing but the names that were given."""
        return {"labels": list(self.settings.get("labels") or ())}

    def columns(self, example: Example) -> dict[str, Any]:
        """See `TableKind.columns`."""
        return {"label": example.target, "level": NO_LEVEL}

    def sequences(
        self, examples: Sequence[Example], encoder: Encoder, split: SplitWriter, *, max_length: int
    ) -> Iterator[list[NDArray[np.int32]]]:
        """See `TableKind.sequences`: one `<s> context </s> </s> question+option </s>` per option."""
        layout = self.layout(max_length)
        join = partial(layout.join, encoder.vocabulary)
        for start in range(0, len(examples), _AT_ONCE):
            questions = [
                Choices(
                    context=one_line(example.texts[0]),
                    options=example.choices,
                    seconds=tuple(question_with_option("".join(example.texts[1:]), each) for each in example.choices),
                )
                for example in examples[start : start + _AT_ONCE]
            ]
            for inputs in _inputs(questions, encoder, join):
                for _, num_context, num_second in inputs:
                    layout.measure(split, num_context, num_second)
                yield [sequence for sequence, _, _ in inputs]

    def answer(self, questions: Sequence[Choices]) -> list[Answer]:
        """See `Kind.answer`; long inputs are cut as in fine-tuning."""
        inputs = list(_inputs(questions, self.hub.codec.encoder, self.join))
        outputs = self.class_outputs([sequence for each in inputs for sequence, _, _ in each])
        offsets = np.cumsum([0, *map(len, inputs)])
        probabilities = option_probabilities([outputs], offsets)
        found: list[Answer] = []
        for number, (question, each) in enumerate(zip(questions, inputs, strict=True)):
            part = probabilities[offsets[number] : offsets[number + 1]]
            best = int(part.argmax())
            shown = [rounded(value) for value in part.tolist()]
            content = {"answer": best, "option": question.options[best], "probabilities": shown}
            is_cut = any(sum(lengths) + self.num_specials > len(sequence) for sequence, *lengths in each)
            found.append(marked(content, is_cut=is_cut))
        return found

    def validated(self, split: PreparedSplit, outputs: RawOutputs, options: Mapping[str, Any]) -> Mapping[str, float]:
        """See `Kind.validated`; of RACE, also by level."""
        offsets = np.asarray(split.offsets)
        given = answers(option_probabilities([outputs], offsets), offsets)
        return accuracies(given, split.columns["label"], split.columns["level"])

    def judged(self, split: PreparedSplit, members: Sequence[RawOutputs], decisions: Decisions) -> Outcome:
        """See `Kind.judged`: the most probable option; probabilities of members are averaged."""
        offsets = np.asarray(split.offsets)
        probabilities = option_probabilities(members, offsets)  # (S,)
        predictions = answers(probabilities, offsets)  # (N,)
        right = split.columns.get("label")

        def entries() -> Iterator[dict[str, Any]]:
            for index, (id_, (start, stop)) in enumerate(zip(ids_of(split), pairwise(offsets.tolist()), strict=True)):
                entry: dict[str, Any] = {"id": id_, "prediction": int(predictions[index])}
                if right is not None:
                    entry["label"] = int(right[index])
                yield {**entry, "probabilities": [rounded(value) for value in probabilities[start:stop].tolist()]}

        if right is None:
            return Outcome(entries=entries, num_examples=len(split))
        is_right = predictions == np.asarray(right)
        return Outcome(
            entries=entries,
            num_examples=len(split),
            measure=lambda weights: metrics.of_choices(is_right, weights),
            losses=-np.log(np.maximum(probabilities[offsets[:-1] + np.asarray(right)], np.finfo(np.float64).tiny)),
        )

    def baseline(
        self, split: PreparedSplit, outputs: RawOutputs, train: PreparedSplit, decisions: Decisions
    ) -> dict[str, float]:
        """See `Kind.baseline`: a guess."""
        return {"accuracy": 100 * float((1 / np.diff(split.offsets)).mean())}


def _inputs(
    questions: Sequence[Choices],
    encoder: Encoder,
    join: Callable[[NDArray[np.int32], NDArray[np.int32]], NDArray[np.int32]],
) -> Iterator[list[tuple[NDArray[np.int32], int, int]]]:
    """For each option of each question the model's input (T,), and the tokens of its two texts before they are cut."""
    contexts = encoder.ids_of_all([each.context for each in questions])
    seconds = iter(encoder.ids_of_all([second for each in questions for second in each.seconds]))
    for each, context in zip(questions, contexts, strict=True):
        yield [(join(context, ids), len(context), len(ids)) for ids in (next(seconds) for _ in each.seconds)]
