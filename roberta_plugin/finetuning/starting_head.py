"""The head of the checkpoint that a training starts from -> the head of the new model, by the names of the labels.

Rows of a head's last layer are numbered, and labels have names. So the rows of the checkpoint are put into the order of
the data's labels. A head without names, or with other names, is not used: its shape may fit, but its answers would be
wrong. Some kinds use the rows of single labels (`Kind.keeps_rows`); the rows of other labels begin untrained.

Example: a model of no, perhaps, yes, and data of yes, no, perhaps -> its rows 2, 0, 1

Shapes: C labels of the data.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roberta_plugin.data.vocabulary import MADE_UP, SPECIALS
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.kinds.base import Kind
from roberta_plugin.models.checkpoints import saved_options

_LAST_LAYER = "out_proj."
_MNLI_LABELS = ("contradiction", "neutral", "entailment")  # of roberta.large.mnli, in fairseq's examples/roberta
_MOST_SHOWN = 8  # labels in a message


class StartingHead(NamedTuple):
    """The part of a checkpoint's head that a training uses."""

    module: str
    """Its name in the checkpoint, such as classification_heads.mnli."""
    rows: list[int | None]
    """(C,): the row of each label of the data; None: the label begins untrained. Empty: the whole head does."""
    line: str
    """A sentence for the log; empty if the labels are the same in the same order."""

    @property
    def is_unchanged(self) -> bool:
        """True if the rows are in the order of the data's labels."""
        return bool(self.rows) and self.rows == list(range(len(self.rows)))


def named_labels(
    state: Mapping[str, Any], head: str, *, num_labels: int, data: Path | None = None, checkpoint: Path | None = None
) -> tuple[str, ...]:
    """Names of the labels of a checkpoint's head, in the order of its rows; empty if no source has `num_labels` names.

    Our checkpoints contain the names. fairseq's sentence_prediction has them in label/dict.txt of the folder `data`, or
    of the folder of the training, which may be relative to a folder above `checkpoint`. The names of the released
    roberta.large.mnli are known.
    """
    labels: Sequence[str] = (identity.read_record(state).get("settings") or {}).get("labels") or ()
    if not labels:
        trained_on = saved_options(state)[0].get("data")
        folders = [] if data is None else [data]
        if isinstance(trained_on, str) and trained_on:
            above = [] if checkpoint is None else list(checkpoint.absolute().parents)
            folders += [Path(trained_on), *(up / trained_on for up in above)]
        paths = (folder / "label" / "dict.txt" for folder in folders)
        path = next((path for path in paths if path.is_file()), None)
        lines = path.read_text(encoding="utf-8").splitlines() if path else []
        symbols = [line.rpartition(" ")[0] for line in lines]
        labels = [symbol for symbol in symbols if symbol not in SPECIALS and not symbol.startswith(MADE_UP)]
    if not labels and head == "mnli":
        labels = _MNLI_LABELS
    return tuple(map(str, labels)) if len(labels) == num_labels else ()


def starting_head(state: Mapping[str, Any], kind: Kind, name: str, *, checkpoint: Path) -> StartingHead | None:
    """The head of a checkpoint that a task's head `name` starts from: the one of that name, or the only one.

    Returns None if the labels of this kind have no names, or the checkpoint has no such head.
    """
    prefix = f"{kind.head}_heads."
    names = sorted({key.split(".")[1] for key in state["model"] if key.startswith(prefix)})
    if not kind.has_labels or not names or (name not in names and len(names) > 1):
        return None
    head = name if name in names else names[0]
    module = f"{prefix}{head}"
    weight = state["model"].get(f"{module}.{_LAST_LAYER}weight")
    if weight is None:
        return None
    theirs = named_labels(state, head, num_labels=len(weight), checkpoint=checkpoint)
    ours = [str(label) for label in kind.labels]
    rows = identity.rows_by_name(theirs, ours)
    kept = [label for label, row in zip(ours, rows, strict=True) if row is not None]
    if not theirs:
        line = (
            f"The head begins untrained: {checkpoint} has no names for its {len(weight)} labels. `roberta import "
            f"{checkpoint} --labels NAME ... --output-dir FOLDER` names them, in the order of the checkpoint. A "
            "training that starts from that folder keeps the head."
        )
    elif len(kept) == len(ours) == len(theirs):
        order = f"the labels of {checkpoint} ({_listed(theirs)}), and is put into the order of the data"
        line = "" if rows == list(range(len(rows))) else f"The head is kept. It has {order} ({_listed(ours)})."
        return StartingHead(module, rows, line)
    elif kind.keeps_rows(kept):
        others = [label for label in ours if label not in kept]
        begin = f" {_listed(others)} begin untrained." if others else ""
        line = f"From the head of {checkpoint} the rows of {_listed(kept)} are kept, by their names.{begin}"
        return StartingHead(module, rows, line)
    else:
        line = (
            f"The head begins untrained: {checkpoint} has the labels {_listed(theirs)}, and the data have "
            f"{_listed(ours)}."
        )
    return StartingHead(module, [], line)


def take_over_head(
    state: Mapping[str, Any], kind: Kind, name: str, *, fresh: Mapping[str, Any], checkpoint: Path
) -> StartingHead | None:
    """Turn the head of a checkpoint, in place, into the one that a task starts from.

    `fresh` are the newly initialized parameters of the task's model; labels that the checkpoint does not have get
    their rows from there.
    """
    found = starting_head(state, kind, name, checkpoint=checkpoint)
    if found is None:
        return None
    parameters: MutableMapping[str, Any] = state["model"]
    theirs = {key: parameters.pop(key) for key in list(parameters) if key.startswith(f"{found.module}.")}
    for key, value in theirs.items() if found.rows else ():
        part = key.removeprefix(f"{found.module}.")
        ours = f"{kind.head}_heads.{name}.{part}"
        parameters[ours] = _in_order(value, found.rows, fresh.get(ours)) if part.startswith(_LAST_LAYER) else value
    return found


def _in_order(theirs: Any, rows: Sequence[int | None], fresh: Any) -> Any:
    """The rows of a checkpoint's last layer in the order `rows`, with a fresh row for None.

    Without fresh rows of the same width, the layer is returned unchanged: the caller leaves it out because of its
    shape, so the layer begins untrained.
    """
    known = [row for row in rows if row is not None]
    if len(known) == len(rows):
        return theirs[known]
    if fresh is None or fresh.shape[1:] != theirs.shape[1:]:
        return theirs
    mixed = fresh.detach().to("cpu", theirs.dtype, copy=True)
    for place, row in enumerate(rows):
        if row is not None:
            mixed[place] = theirs[row]
    return mixed


def _listed(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - _MOST_SHOWN} others" if len(labels) > _MOST_SHOWN else ""
    return ", ".join(map(repr, labels[:_MOST_SHOWN])) + more
