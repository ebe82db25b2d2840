"""A checkpoint's record of the data it was trained on, and the check that other data match it.

Every checkpoint of our tasks records `describe(prepared)`; checkpoints of pretraining record only the tokenizer and the
vocabulary. With another tokenizer the ids stand for other words, and the head of another task predicts something else.
Neither would raise an error by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roberta_plugin import registry
from roberta_plugin.finetuning.benchmarks import all_tasks, benchmark_of, brought_by, kind_of
from roberta_plugin.finetuning.prepared import EXTENSIONS, NAME, Prepared
from roberta_plugin.record import differences, listed, refuse

logger = logging.getLogger(__name__)

KEY = "data"  # in the task's state, which fairseq saves with every checkpoint
EXAMPLES = "examples"  # beside "task": hashes of the examples, for a training that continues with them
# Beside "task", in models that were made elsewhere:
MADE_ANEW = "made_anew"  # names of heads that were missing and are newly initialized
MASK_KEEPS_SPACE = "mask_keeps_space"  # true if the space before <mask> is a token of its own
IS_INFERRED = "is_inferred"  # true if the task is not recorded, but is one that such a head can be used for
DECISIONS = "decides_by"  # the threshold or temperature that was found on the development set (`kinds/outputs.py`)


def describe(prepared: Prepared) -> dict[str, Any]:
    """Plain values: task, settings, tokenizer, vocabulary, and a hash of the examples of each split that has one."""
    hashes = {split: prepared.sha256_of_inputs(split) for split in prepared.splits}
    return {
        "task": prepared.task,
        "settings": dict(prepared.settings),
        "tokenizer": prepared.content.get("tokenizer"),
        "vocabulary": prepared.vocabulary.sha256,
        EXAMPLES: {split: digest for split, digest in hashes.items() if digest},
        **({EXTENSIONS: found} if (found := brought_by(prepared.task, prepared.settings)) else {}),
    }


def check_installed(state: Mapping[str, Any], *, checkpoint: Path) -> None:
    """Refuse a checkpoint whose task or kind comes from an extension that is not installed."""
    record = read_record(state)
    former = [record["extension"]] if record.get("extension") else []
    registry.check_installed(record.get(EXTENSIONS, former), what=f"{checkpoint} was trained with")


def read_record(state: Mapping[str, Any]) -> dict[str, Any]:
    """A checkpoint's record of its data; empty for checkpoints of fairseq and of earlier versions."""
    return dict((state.get("task_state") or {}).get(KEY) or {})


def check_words(state: Mapping[str, Any], prepared: Prepared, *, checkpoint: Path) -> None:
    """Refuse data made with another tokenizer or dict.txt than the checkpoint's, if the checkpoint records them."""
    check_same_words(state, describe(prepared), checkpoint=checkpoint, data=str(prepared.folder))


def check_same_words(state: Mapping[str, Any], ours: Mapping[str, Any], *, checkpoint: Path, data: str) -> None:
    """Refuse data in the folder `data` with another vocabulary; `ours` is their `describe`."""
    trained = read_record(state)
    theirs, tokenizer = trained.get("tokenizer"), ours.get("tokenizer")
    before, now = {"dict.txt": trained.get("vocabulary")}, {"dict.txt": ours.get("vocabulary")}
    if theirs and tokenizer:
        before["tokenizer"], now["tokenizer"] = (
            {name: one.get(name) for name in ("kind", "language", "sha256") if one.get(name)}
            for one in (theirs, tokenizer)
        )
    refuse(
        f"{checkpoint} was trained with another tokenizer or dict.txt than that of {data}",
        differences(before, now, free=lambda name: before[name] is None, named=str),
        "So ids stand for other words: make the data with the tokenizer and the dict.txt of the model.",
    )


def check_task(state: Mapping[str, Any], prepared: Prepared, *, checkpoint: Path) -> None:
    """Refuse data of another task, or with other settings, than the checkpoint's head was trained on.

    Other lengths, another size of the training set, and files of another form are permitted, with a warning.
    """
    trained = read_record(state)
    if not trained.get("task"):
        check_foreign(state, prepared, checkpoint=checkpoint)
        return
    if _head_of(trained["task"]) != _head_of(prepared.task):
        raise ValueError(
            f"{checkpoint} was fine-tuned on {trained['task']}, but {prepared.folder / NAME} has data for "
            f"{prepared.task}: the head answers another question. Give a checkpoint that was fine-tuned on "
            f"{prepared.task}."
        )
    settings = dict(prepared.settings)
    if trained.get(IS_INFERRED):
        settings = {name: value for name, value in settings.items() if name in trained["settings"]}
    if "deviation" not in trained["settings"]:  # the model's numbers are on the scale of the labels
        settings = {name: value for name, value in settings.items() if name not in ("mean", "deviation")}
    refuse(
        f"{checkpoint} was fine-tuned on data prepared with other settings than {prepared.folder / NAME} has",
        differences(trained["settings"], settings, free=kind_of(prepared).may_differ),
        "Prepare the data in the same way.",
    )
    if different := differences(trained["settings"], settings):
        logger.warning(f"{checkpoint}, {prepared.folder}: {listed(different)}")


def check_held_out(state: Mapping[str, Any], prepared: Prepared, split: str, *, checkpoint: Path) -> None:
    """Refuse a split whose rows were held out of the training table in another way than in the checkpoint's training.

    Those rows, or some of them, were trained on.
    """
    trained, kind = read_record(state), kind_of(prepared)
    theirs, ours = trained.get(EXAMPLES, {}).get(split), prepared.sha256_of_inputs(split)
    if not kind.is_cut(split) or theirs is None or theirs == ours:
        return
    before = {name: trained["settings"].get(name) for name in kind.cut_settings}
    refuse(
        f"{checkpoint} may have been trained on rows of the split {split!r} of {prepared.folder}, which were held out "
        "of the training table in another way",
        differences(before, {name: prepared.settings.get(name) for name in kind.cut_settings}),
        "Evaluate it on the folder of its own training. To compare it with others, prepare with --valid FILE or --test "
        "FILE, a table that none of them was trained on, and name that split by --split.",
    )


def check_foreign(state: Mapping[str, Any], prepared: Prepared, *, checkpoint: Path) -> None:
    """Refuse data whose answers differ from those of a model made elsewhere, as far as the kind of task knows them."""
    made = read_record(state).get("settings") or {}
    kind_of(prepared).check_foreign(made, prepared.settings, checkpoint=checkpoint, data=prepared.folder / NAME)


def _head_of(task: str) -> str:
    """The task itself, or the one whose head it shares."""
    return (benchmark_of(task).same_head if task in all_tasks() else "") or task


def check_examples(state: Mapping[str, Any], prepared: Prepared, *, split: str, checkpoint: Path) -> None:
    """Refuse to resume on different training examples, if the checkpoint has a record of its examples."""
    theirs, ours = read_record(state).get(EXAMPLES, {}).get(split), prepared.sha256_of_inputs(split)
    refuse(
        f"{checkpoint} was trained on other examples than {prepared.folder} has, or on the same in another order",
        differences({split: theirs or ours}, {split: ours or theirs}, named=lambda name: f"the split {name}"),
        "",
    )


def class_order(classes: Sequence[str], prepared: Prepared, *, checkpoint: Path) -> list[int]:
    """The index in an imported model of each class of the data; capital letters do not matter.

    Example: a model of the classes not_entailment and entailment, and data of entailment and not_entailment -> [1, 0].
    """
    rows = rows_by_name(classes, prepared.settings["labels"])
    if None in rows or len(rows) != len(classes):
        raise ValueError(
            f"{checkpoint} has the classes {', '.join(map(str, classes))}, but {prepared.folder} has the classes "
            f"{', '.join(map(str, prepared.settings['labels']))}. If only the names differ, import the model with "
            "`roberta import --labels`, which takes the names of the data in the model's order."
        )
    return [row for row in rows if row is not None]


def rows_by_name(theirs: Sequence[Any], ours: Sequence[Any]) -> list[int | None]:
    """The index of each of our labels among theirs, each index at most once; None for a label they do not have.

    Capital letters do not matter, unless labels differ by them alone.

    Example: rows_by_name(["YES", "no"], ["no", "perhaps", "yes"]) -> [1, None, 0]
    """
    exact = {str(name): place for place, name in enumerate(theirs)}
    rows = [exact.get(str(name)) for name in ours]
    free: dict[str, list[int]] = {}
    for name, place in exact.items():
        if place not in rows:
            free.setdefault(name.casefold(), []).append(place)
    for index, name in enumerate(ours):
        if rows[index] is None and len(alike := free.get(str(name).casefold(), [])) == 1:
            rows[index] = alike.pop()
    return rows
