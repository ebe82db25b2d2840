"""The heads of a checkpoint, and their counterparts in Hugging Face's classes: one row of `FORMATS` per kind.

Parameters of a head are called `classification_heads.NAME.`, `span_heads.NAME.` or `token_heads.NAME.` in a checkpoint
of ours. Hugging Face has one head per class, with a fixed name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from roberta_plugin.data.vocabulary import SPECIALS
from roberta_plugin.finetuning import identity
from roberta_plugin.models.checkpoints.names import CLASSIFICATION, SENTENCE, SPAN, TOKEN, saved_options

Kind = Literal[
    "masked_lm", "classification", "regression", "multi_label", "multiple_choice", "question_answering", "tagging"
]
MASKED_LM = "masked_lm"  # also the name of that head for --head
HAS_LABELS: tuple[Kind, ...] = (
    "classification",
    "multi_label",
    "tagging",
)  # kinds with named classes
_ONE_SCORE_PER_OPTION = ("race", "sentence_ranking")  # tasks of ours and of fairseq
_MNLI_LABELS = ("contradiction", "neutral", "entailment")  # of roberta.large.mnli, in fairseq's examples/roberta


@dataclass(frozen=True, kw_only=True)
class HeadFormat:
    """A kind of head in both formats."""

    suffix: str
    """End of the name of Hugging Face's class, such as ForMaskedLM."""
    prefix: str
    """Begin of our names, before the name of the head."""
    names: Mapping[str, str]
    """Our modules, below `prefix` and the head's name -> theirs."""
    optional: tuple[str, ...] = ()
    """Our modules that Hugging Face's class lacks."""


_SEQUENCE = HeadFormat(
    suffix="ForSequenceClassification",
    prefix=CLASSIFICATION,
    names={"dense": "classifier.dense", "out_proj": "classifier.out_proj"},
)
FORMATS: dict[Kind, HeadFormat] = {
    "masked_lm": HeadFormat(
        suffix="ForMaskedLM",
        prefix="encoder.lm_head",
        names={"dense": "lm_head.dense", "layer_norm": "lm_head.layer_norm", "": "lm_head.decoder"},
    ),
    "classification": _SEQUENCE,
    "regression": _SEQUENCE,
    "multi_label": _SEQUENCE,
    "multiple_choice": HeadFormat(
        suffix="ForMultipleChoice",
        prefix=CLASSIFICATION,
        names={"dense": "roberta.pooler.dense", "out_proj": "classifier"},
    ),
    # Hugging Face's class knows no answerability; the names are those of its ForSequenceClassification with one label,
    # which therefore reads that head from the same folder.
    "question_answering": HeadFormat(
        suffix="ForQuestionAnswering",
        prefix=SPAN,
        names={
            "span": "qa_outputs",
            "answerable.dense": "classifier.dense",
            "answerable.out_proj": "classifier.out_proj",
        },
        optional=("answerable.dense", "answerable.out_proj"),
    ),
    "tagging": HeadFormat(suffix="ForTokenClassification", prefix=TOKEN, names={"out_proj": "classifier"}),
}


@dataclass(frozen=True, kw_only=True)
class Head:
    """A head of a checkpoint."""

    kind: Kind
    name: str
    num_outputs: int = 0
    """Classes, or scores; 0 for the masked-LM head."""

    @property
    def module(self) -> str:
        """Our name of the module, such as classification_heads.mnli."""
        prefix = FORMATS[self.kind].prefix
        return prefix if self.kind == MASKED_LM else f"{prefix}{self.name}"


def heads_of(state: Mapping[str, Any]) -> list[Head]:
    """The heads of a checkpoint in our layout; that of the masked LM comes first."""
    parameters = state["model"]
    task = saved_options(state)[0].get("_name")
    settings = identity.of_checkpoint(state).get("settings") or {}
    found = [Head(kind="masked_lm", name=MASKED_LM)] if "encoder.lm_head.bias" in parameters else []
    for name in _names_below(parameters, CLASSIFICATION):
        num_outputs = len(parameters[f"{CLASSIFICATION}{name}.out_proj.weight"])
        kind: Kind = "classification" if num_outputs > 1 else "regression"
        if num_outputs == 1 and task in _ONE_SCORE_PER_OPTION:
            kind = "multiple_choice"
        if settings.get("kind") == "multi_label" and num_outputs == len(settings["labels"]):
            kind = "multi_label"
        found.append(Head(kind=kind, name=name, num_outputs=num_outputs))
    found += [Head(kind="question_answering", name=name, num_outputs=2) for name in _names_below(parameters, SPAN)]
    for name in _names_below(parameters, TOKEN):
        found.append(Head(kind="tagging", name=name, num_outputs=len(parameters[f"{TOKEN}{name}.out_proj.weight"])))
    return found


def choose_head(state: Mapping[str, Any], name: str | None, path: Path) -> Head:
    """The head called `name`; without a name, the one that was fine-tuned, or the masked-LM head if none was.

    Raises:
        ValueError: if there is no such head, several were fine-tuned, or it is one that no other program knows.
    """
    heads = heads_of(state)
    summaries = _names_below(state["model"], SENTENCE)
    if summaries and (name in summaries or (name is None and all(head.kind == MASKED_LM for head in heads))):
        raise ValueError(
            f"{path} chooses the sentences of summaries by its head {summaries[0]}, and neither transformers nor "
            f"fairseq has a class for that: ask the checkpoint itself by `roberta predict`, or give --head {MASKED_LM} "
            "to take the encoder without this head."
        )
    if name == MASKED_LM and name in identity.of_checkpoint(state).get(identity.MADE_ANEW, ()):
        raise ValueError(f"{path} came without a masked-LM head: its present one is untrained.")
    if name is not None:
        chosen = [head for head in heads if head.name == name]
        if not chosen:
            raise ValueError(f"{path} has no head called {name!r}: it has {', '.join(head.name for head in heads)}.")
        return chosen[0]
    tuned = [head for head in heads if head.kind != MASKED_LM]
    if len(tuned) > 1:
        raise ValueError(
            f"{path} has several heads, {', '.join(head.name for head in tuned)}: choose one with --head NAME, or "
            f"--head {MASKED_LM}."
        )
    if not heads:
        raise ValueError(f"{path} has only an encoder, no head to predict with.")
    return tuned[0] if tuned else heads[0]


def labels_of(state: Mapping[str, Any], head: Head, *, data: Path | None = None) -> tuple[str, ...]:
    """Names of the classes of a classification or tagging head, in their order; empty if nothing names them.

    Our checkpoints hold them; for fairseq's sentence_prediction they are in label/dict.txt of the folder `data`, or of
    the training's folder; for the released roberta.large.mnli they are known.
    """
    if head.kind not in HAS_LABELS:
        return ()
    named = identity.of_checkpoint(state).get("settings", {}).get("labels") or ()
    if not named:
        trained_on = saved_options(state)[0].get("data")
        folders = [data, Path(trained_on) if isinstance(trained_on, str) and trained_on else None]
        paths = [folder / "label" / "dict.txt" for folder in folders if folder is not None]
        path = next((path for path in paths if path.is_file()), None)
        lines = path.read_text(encoding="utf-8").splitlines() if path else []
        symbols = [line.rpartition(" ")[0] for line in lines]
        named = tuple(symbol for symbol in symbols if symbol not in SPECIALS and not symbol.startswith("madeupword"))
    if not named and head.name == "mnli":
        named = _MNLI_LABELS
    return tuple(map(str, named)) if len(named) == head.num_outputs else ()


def _names_below(parameters: Mapping[str, Any], prefix: str) -> list[str]:
    return sorted({name.split(".")[1] for name in parameters if name.startswith(prefix)})
