"""A context, perhaps a question, and any number of options -> the right option.

Inputs, head and loss are those of RACE (`finetuning/race`): one sequence per option, which scores it.

Columns: `label`, the number of the right option, and `level`, which is that of RACE's levels and -1 here.

Shapes: N examples of a split, S options of all of them.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.custom.kinds.base import CustomKind, Outcome, ids_of, rounded
from roberta_plugin.finetuning.custom.options import CustomOptions
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.finetuning.prepared_writer import SplitWriter
from roberta_plugin.kinds import own_metrics as metrics
from roberta_plugin.kinds.choices import (
    NO_LEVEL,
    QUESTION_LENGTH,
    ChoiceLayout,
    one_line,
    option_probabilities,
    question_with_option,
)
from roberta_plugin.kinds.choices import answers as best_options
from roberta_plugin.kinds.examples import Example, label_of
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.windows import question_length
from roberta_plugin.tables import Row, check_list, check_text

_AT_ONCE = 10_000  # examples in one call of the tokenizer


class MultipleChoice(CustomKind):
    """Cross-entropy over the options of an example."""

    name = "multiple_choice"

    @classmethod
    def settings_of(cls, options: CustomOptions, *, max_length: int) -> dict[str, Any]:
        """See `CustomKind.settings_of`: the layout of the inputs; question and option take at most a quarter."""
        layout = ChoiceLayout.of(max_length, question_length=question_length(max_length, QUESTION_LENGTH))
        return {**asdict(layout), "choices_columns": list(options.choices_columns or ("options",))}

    def split_key(self, example: Example) -> Sequence[str]:
        """See `CustomKind.split_key`: the context, about which there may be several questions."""
        return example.texts[:1]

    def read_choices(self, row: Row) -> tuple[str, ...]:
        """The options of a row: one per column, or those in a list."""
        columns = self.settings["choices_columns"]
        if len(columns) > 1:
            return tuple(row.text(column, option="--choices-columns").strip() for column in columns)
        value = row.value(columns[0], option="--choices-columns")
        if isinstance(value, str):
            raise ValueError(
                f"{row.where}: the column {columns[0]!r} must hold a list of options, as JSON Lines and Parquet have "
                "it. Name one column for each option by --choices-columns."
            )
        options = check_list(value, f"the column {columns[0]!r}", row.where)
        if len(options) < 2:
            raise ValueError(f"{row.where}: {len(options)} options, and a choice needs two or more. Add some.")
        return tuple(check_text(each, f"option {number}", row.where) for number, each in enumerate(options, start=1))

    def read_target(self, row: Row, choices: tuple[str, ...]) -> int:
        """See `CustomKind.read_target`: the number of the right option, from 0.

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
        """See `CustomKind.discover`: nothing but the names that were given."""
        return {"labels": list(self.settings.get("labels") or ())}

    def columns(self, example: Example) -> dict[str, Any]:
        """See `CustomKind.columns`."""
        return {"label": example.target, "level": NO_LEVEL}

    def sequences(
        self, examples: Sequence[Example], encoder: Encoder, split: SplitWriter, *, max_length: int
    ) -> Iterator[list[NDArray[np.int32]]]:
        """See `CustomKind.sequences`: one `<s> context </s> </s> question+option </s>` per option (`race/inputs`)."""
        layout = ChoiceLayout(
            max_length=max_length, question_length=self.settings["question_length"], order=self.settings["order"]
        )
        for start in range(0, len(examples), _AT_ONCE):
            part = examples[start : start + _AT_ONCE]
            contexts = encoder.ids_of_all([one_line(example.texts[0]) for example in part])
            joined = [
                question_with_option("".join(example.texts[1:]), option)
                for example in part
                for option in example.choices
            ]
            options = iter(encoder.ids_of_all(joined))
            for example, context in zip(part, contexts, strict=True):
                own = [next(options) for _ in example.choices]
                for option in own:
                    layout.measure(split, len(context), len(option))
                yield [layout.join(encoder.vocabulary, context, option) for option in own]

    def outcome(
        self,
        split: PreparedSplit,
        members: Sequence[RawOutputs],
        *,
        train: PreparedSplit,
        threshold: float | None = None,
    ) -> Outcome:
        """See `CustomKind.outcome`: the most probable option; probabilities of members are averaged."""
        offsets = np.asarray(split.offsets)
        probabilities = option_probabilities(members, offsets)  # (S,)
        predictions = best_options(probabilities, offsets)  # (N,)
        answers = split.columns.get("label")

        def entries() -> Iterator[dict[str, Any]]:
            for index, (id_, (start, stop)) in enumerate(zip(ids_of(split), pairwise(offsets.tolist()), strict=True)):
                entry: dict[str, Any] = {"id": id_, "prediction": int(predictions[index])}
                if answers is not None:
                    entry["label"] = int(answers[index])
                yield {**entry, "probabilities": [rounded(value) for value in probabilities[start:stop].tolist()]}

        if answers is None:
            return Outcome(entries=entries, num_examples=len(split))
        is_right = predictions == np.asarray(answers)
        chance = 100 * float((1 / np.diff(offsets)).mean())
        return Outcome(
            entries=entries,
            num_examples=len(split),
            measure=lambda weights: metrics.of_choices(is_right, weights),
            baseline={"accuracy": chance},
        )
