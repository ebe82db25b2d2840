"""A model on its way from one format to another, with everything that belongs to it, in memory.

Readers make a `PortableModel`, writers store it. So a format needs one reader and one writer, not one for each pair of
formats.

Parameters of a head are called `classification_heads.NAME.`, `span_heads.NAME.` or `token_heads.NAME.` in a checkpoint
of ours. Hugging Face has one head per class, with a fixed name (`finetuning/kinds/base.HuggingFace`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor

from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.benchmarks import all_tasks, benchmark_of, kind_of_task, white_space_of
from roberta_plugin.finetuning.kinds import KINDS, kind_class
from roberta_plugin.finetuning.kinds.base import HuggingFace, Kind
from roberta_plugin.finetuning.kinds.lm_head import MaskedLmHead
from roberta_plugin.finetuning.layouts.texts import TextLayout
from roberta_plugin.finetuning.records import WhiteSpace
from roberta_plugin.finetuning.starting_head import named_labels
from roberta_plugin.models.checkpoints import saved_options
from roberta_plugin.models.head_parameters import CLASSIFICATION, head_prefixes
from roberta_plugin.models.heads import Pooling
from roberta_plugin.registry import HEADS

MASKED_LM = "masked_lm"  # the kind of the masked-LM head, and its name for --head
ENCODER = "encoder"  # the name for --head of the encoder alone, for vectors of texts


def formats() -> dict[str, type[Kind]]:
    """The kinds with classes of Hugging Face, by the name of a head's kind; the masked LM comes first."""
    return _formats(tuple(KINDS))


@cache
def _formats(names: tuple[str, ...]) -> dict[str, type[Kind]]:
    classes = [kind for kind in map(kind_class, names) if kind.head != MASKED_LM and kind.hugging_face is not None]
    return {MASKED_LM: MaskedLmHead, **{kind.name: kind for kind in classes}}


def counterpart_of(kind: str) -> HuggingFace:
    """The counterpart of one of the `formats` among Hugging Face's classes."""
    counterpart = formats()[kind].hugging_face
    assert counterpart is not None, "formats has no others"
    return counterpart


def has_module(kind: str) -> bool:
    """True if heads of this kind have parameters; without them, the outputs are vectors of the encoder."""
    return bool(formats()[kind].head)


@dataclass(frozen=True, kw_only=True)
class Head:
    """A head of a checkpoint."""

    kind: str
    """`MASKED_LM`, or one of `formats`."""
    name: str
    num_outputs: int = 0
    """Classes, or scores; 0 for the masked-LM head and the encoder alone."""

    @property
    def module(self) -> str:
        """Our name of the module, such as classification_heads.mnli."""
        return "encoder.lm_head" if self.kind == MASKED_LM else f"{self.facts.head}_heads.{self.name}"

    @property
    def facts(self) -> type[Kind]:
        """Its kind."""
        return formats()[self.kind]

    @property
    def hugging_face(self) -> HuggingFace:
        """Its counterpart among Hugging Face's classes."""
        return counterpart_of(self.kind)

    @property
    def is_encoder(self) -> bool:
        """True if there is no head, and the answers are vectors."""
        return not has_module(self.kind)


def encoder_alone() -> Head:
    """The head of a model without a trained head: the encoder alone, for vectors of texts."""
    kind = next((kind for kind in formats() if not has_module(kind)), None)
    if kind is None:
        raise ValueError(
            "The answers of an encoder without a head are vectors, and no extension with a kind of task for them is "
            "installed. Install one, or name a head of the model by --head."
        )
    return Head(kind=kind, name=ENCODER)


def heads_of(state: Mapping[str, Any]) -> list[Head]:
    """The heads of a checkpoint in our layout; the masked-LM head comes first."""
    parameters = state["model"]
    task = str(saved_options(state)[0].get("_name"))
    settings = identity.read_record(state).get("settings") or {}
    heads = [Head(kind=MASKED_LM, name=MASKED_LM)] if "encoder.lm_head.bias" in parameters else []
    for name in _names_below(parameters, CLASSIFICATION):
        num_outputs = len(parameters[f"{CLASSIFICATION}{name}.out_proj.weight"])
        kind = _named_kind(settings, num_outputs) or usual_kind(num_outputs, task=task)
        heads += [] if kind is None else [Head(kind=kind, name=name, num_outputs=num_outputs)]
    for kind, facts in formats().items():
        prefix = f"{facts.head}_heads."
        for name in _names_below(parameters, prefix) if prefix != CLASSIFICATION else ():
            head = Head(kind=kind, name=name)
            number = head.hugging_face.num_outputs
            num_outputs = (num_classes(parameters, head) or 0) if number is None else number
            heads.append(replace(head, num_outputs=num_outputs))
    return heads


def num_classes(parameters: Mapping[str, Any], head: Head) -> int | None:
    """The number of classes of a head, by its parameters; None if it is missing, or has no classes."""
    prefix = f"{head.module}."
    own = {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}
    if not own or head.facts.head not in HEADS:
        return None
    number: int | None = HEADS.load(head.facts.head, "head").read_sizes(own).get("num_classes")
    return number


def usual_kind(num_outputs: int, *, task: str = "") -> str | None:
    """The kind of a classification head that was trained by a task of fairseq-train; None if there is no such kind.

    Several outputs are classes, and one output is a number, unless the task is for something else.
    """
    kinds = {name: kind for name, kind in formats().items() if kind.head == "classification"}
    fitting = [name for name, kind in kinds.items() if kind.has_labels == (num_outputs > 1)]
    by_task = [name for name in fitting if task in (kinds[name].task, *kinds[name].also_trained_by)]
    return next(iter((*by_task, *fitting)), None)


def _named_kind(settings: Mapping[str, Any], num_outputs: int) -> str | None:
    """The kind in the settings of a fine-tuning, if its head is a classification head with so many outputs."""
    name, kinds = str(settings.get("kind")), formats()
    if name not in kinds or kinds[name].head != "classification":
        return None
    number = len(settings.get("labels") or ()) if kinds[name].has_labels else 1
    return name if number == num_outputs else None


def choose_head(state: Mapping[str, Any], name: str | None, path: Path) -> Head:
    """The head called `name`; without a name, the fine-tuned head, or the masked-LM head if there is none.

    A model for vectors has no head, even if it still has a masked-LM head; nor has a model that came without any head.
    Then it is the encoder alone, which also has a name.

    Raises:
        ValueError: if there is no such head, several were fine-tuned, or no other program supports it.
    """
    heads = heads_of(state)
    _check_is_convertible(state, name, heads, path)
    if name == MASKED_LM and name in identity.read_record(state).get(identity.MADE_ANEW, ()):
        raise ValueError(
            f"{path} came without a masked-LM head, so its present head is untrained. Leave --head out, or give --head "
            f"{ENCODER}."
        )
    if name is not None:
        chosen = [head for head in heads if head.name == name]
        if not chosen and name == ENCODER:
            return encoder_alone()
        if not chosen:
            raise ValueError(f"{path} has no head called {name!r}: it has {', '.join(head.name for head in heads)}.")
        return chosen[0]
    tuned = [head for head in heads if head.kind != MASKED_LM]
    if len(tuned) > 1:
        raise ValueError(
            f"{path} has several heads, {', '.join(head.name for head in tuned)}: choose one with --head NAME, or "
            f"--head {ENCODER}."
        )
    if tuned:
        return tuned[0]
    return heads[0] if heads and not _has_vectors_alone(state) else encoder_alone()


def _check_is_convertible(state: Mapping[str, Any], name: str | None, heads: Sequence[Head], path: Path) -> None:
    """Refuse a head without a counterpart in other programs, such as a sentence head.

    It is refused if --head names it, or if it is the only fine-tuned head.
    """
    modules = {head.module for head in heads}
    is_any_wanted = name is None and all(head.kind == MASKED_LM for head in heads)
    for prefix in head_prefixes(state["model"]):
        for candidate in _names_below(state["model"], prefix):
            if (is_any_wanted or name == candidate) and f"{prefix}{candidate}" not in modules:
                raise ValueError(
                    f"{path} has the {prefix.partition('_')[0]} head {candidate}, and neither transformers nor fairseq "
                    "has a class for it: use the checkpoint itself by `roberta predict`, or give --head "
                    f"{ENCODER} for the encoder without this head."
                )


def _has_vectors_alone(state: Mapping[str, Any]) -> bool:
    """True if a model without a fine-tuned head was trained for vectors, or came without a masked-LM head."""
    record = identity.read_record(state)
    settings = record.get("settings") or {}
    return "pooling" in settings or MASKED_LM in record.get(identity.MADE_ANEW, ())


def left_masked_lm(record: Mapping[str, Any]) -> bool:
    """True if a checkpoint's record says that its encoder was fine-tuned last without the masked-LM head."""
    kind = (record.get("settings") or {}).get("kind") or kind_of_task(str(record.get("task")))
    return kind in KINDS and kind_class(str(kind)).head != MASKED_LM


def labels_of(state: Mapping[str, Any], head: Head, *, data: Path | None = None) -> tuple[str, ...]:
    """Names of the classes of a classification or tagging head, in their order; empty if they have no names."""
    if not head.facts.has_labels:
        return ()
    return named_labels(state, head.name, num_labels=head.num_outputs, data=data)


def _names_below(parameters: Mapping[str, Any], prefix: str) -> list[str]:
    return sorted({name.split(".")[1] for name in parameters if name.startswith(prefix)})


def rescale_to_labels(state: Mapping[str, Any]) -> dict[str, Any]:
    """A checkpoint's content with the fine-tuned head rescaled to the labels; other checkpoints are unchanged.

    A regression on own data learns (label - mean) / deviation: the last layer of its head, W x + b, becomes
    deviation * W x + (deviation * b + mean), and a checkpoint for use answers on the scale of the labels. Its
    settings lose mean and deviation, so that calling this again changes nothing.
    """
    trained = identity.read_record(state)
    settings = dict(trained.get("settings") or {})
    if not _is_of_numbers(settings) or not {"mean", "deviation"} <= settings.keys():
        return dict(state)
    mean, deviation = settings.pop("mean"), settings.pop("deviation")
    task_state = {**state["task_state"], identity.KEY: {**trained, "settings": settings}}
    return {**_scaled(state, deviation, mean), "task_state": task_state}


def rescale_to_training(state: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `rescale_to_labels`, to evaluate a model on its data after export and import."""
    trained = identity.read_record(state).get("settings") or {}
    if "deviation" not in settings or "deviation" in trained or not _is_of_numbers(trained):
        return dict(state)
    return _scaled(state, 1 / settings["deviation"], -settings["mean"] / settings["deviation"])


def _is_of_numbers(settings: Mapping[str, Any]) -> bool:
    """True if the kind in the settings learns numbers."""
    kind = settings.get("kind")
    return kind in KINDS and kind_class(str(kind)).learns_numbers


def _scaled(state: Mapping[str, Any], factor: float, shift: float) -> dict[str, Any]:
    """The checkpoint with the output of the fine-tuned head times a factor, plus a number."""
    name = f"{CLASSIFICATION}{saved_options(state)[0]['classification_head_name']}.out_proj."
    weight, bias = (state["model"][name + part] for part in ("weight", "bias"))
    scaled = {
        name + "weight": (weight.double() * factor).to(weight.dtype),
        name + "bias": (bias.double() * factor + shift).to(bias.dtype),
    }
    return {**state, "model": {**state["model"], **scaled}}


@dataclass(frozen=True, kw_only=True)
class PortableModel:
    """A model, its tokenizer and its vocabulary.

    Attributes:
        state: content of a checkpoint file, with parameters by our names.
        tokenizer: text -> tokenizer ids.
        vocabulary: tokenizer ids -> model ids.
        head: the head that is converted.
        labels: names of its classes; empty if unknown, or if it has none.
        path: the file or folder that was read, for messages.
        source: the form of `path`, for messages: see `model_files.format_of`.
        training: the checkpoint's record of its training: updates, hours, tokens, lr, ...
        notes: notes for the user, in sentences.
        keeps_ids: True if tokenizer.json has our ids even where Hugging Face's differ (CamemBERT), as beside a graph.
    """

    state: dict[str, Any]
    tokenizer: Tokenizer
    vocabulary: Vocabulary
    head: Head
    labels: tuple[str, ...] = ()
    path: Path
    source: str
    training: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    keeps_ids: bool = False

    @property
    def mask_keeps_space(self) -> bool:
        """True if the space before `<mask>` is a separate token (no lstrip); in our own models it is not."""
        return bool(identity.read_record(self.state).get(identity.MASK_KEEPS_SPACE))

    @property
    def white_space(self) -> WhiteSpace:
        """How its head reads white space, or how the tokenizer of an export should."""
        record = identity.read_record(self.state)
        exported = self.head.facts.exported_white_space(record.get("settings") or {})
        return exported or white_space_of(self.head.facts, str(record.get("task")))

    @property
    def reads_pairs(self) -> bool | None:
        """True if its head was trained on pairs of texts; None if that is not known, or it does not read texts."""
        trained = identity.read_record(self.state)
        settings, task = trained.get("settings") or {}, str(trained.get("task"))
        if "text_column" in settings:  # it was trained on a table of your own
            return bool(settings.get("text_pair_column"))
        return benchmark_of(task).rules.is_pair if task in all_tasks() else None

    @property
    def text_layout(self) -> TextLayout:
        """How it reads texts that are too long; if its record does not say so, it reads their beginning."""
        settings = identity.read_record(self.state).get("settings") or {}
        length = settings.get("max_length") or int(self.state["cfg"]["model"]["max_positions"])
        return TextLayout.from_settings(settings if self.head.facts.head == "classification" else {}, max_length=length)

    @property
    def vectors(self) -> tuple[Pooling, bool]:
        """The pooling of features into a vector, as in training or the mean; True if vectors have the length 1."""
        settings = identity.read_record(self.state).get("settings") or {}
        return settings.get("pooling", "mean"), bool(settings.get("normalize"))

    @property
    def was_trained_for_its_answers(self) -> bool:
        """False if the records say that the encoder was last trained for another head, or not for vectors."""
        record = identity.read_record(self.state)
        if self.head.is_encoder:
            return "pooling" in (record.get("settings") or {})
        return self.head.kind != MASKED_LM or not left_masked_lm(record)

    @property
    def record(self) -> dict[str, Any]:
        """The record of the training of its head, in the form of `finetuning/identity.py`."""
        record = identity.read_record(self.state)
        if self.was_trained_for_its_answers:
            return record
        settings = {name: value for name, value in (record.get("settings") or {}).items() if name == "max_length"}
        if self.head.is_encoder:
            settings |= dict(zip(("pooling", "normalize"), self.vectors, strict=True))
        return {**record, "task": "", "settings": settings}

    @property
    def decides_by(self) -> dict[str, float]:
        """Numbers that decide beside the weights of its head, by the options of `roberta predict` for them."""
        return self.head.facts.numbers_of(identity.read_record(self.state).get(identity.DECISIONS) or {})

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The parameters by our names."""
        parameters: dict[str, Tensor] = self.state["model"]
        return parameters


def check_vocabulary(num_rows: int, vocabulary: Vocabulary, *, path: Path, vocabulary_path: Path) -> None:
    """Refuse a vocabulary of another size than the model's.

    Raises:
        ValueError: if the sizes differ.
    """
    if num_rows != len(vocabulary):
        raise ValueError(
            f"{path} has embeddings of {num_rows:,} symbols, and the vocabulary of {vocabulary_path} has "
            f"{len(vocabulary):,}: they belong to different models. Give the vocabulary that this model was trained "
            "with."
        )


def task_state(
    *,
    task: str,
    settings: Mapping[str, Any],
    is_inferred: bool,
    made_anew: Sequence[str],
    mask_keeps_space: bool,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    decides_by: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The record of its data in the checkpoint of an imported model: see `identity.describe`."""
    return {
        identity.KEY: {
            "task": task,
            "settings": dict(settings),
            "tokenizer": tokenizer.description(),
            "vocabulary": vocabulary.sha256,
            identity.IS_INFERRED: is_inferred,
            identity.MADE_ANEW: list(made_anew),
            identity.MASK_KEEPS_SPACE: mask_keeps_space,
            **({identity.DECISIONS: dict(decides_by)} if decides_by else {}),
        }
    }


def translate(name: str, table: Mapping[str, str]) -> str:
    """The name of a parameter by a table of modules, such as `huggingface_parameters.TRUNK`."""
    module, _, leaf = name.rpartition(".")
    key = module
    number = re.search(r"\.layers?\.(\d+)\.", module)
    if number:
        key = module[: number.start(1)] + "{}" + module[number.end(1) :]
    if key not in table:
        raise ValueError(f"The parameter {name} has no counterpart: the state dict belongs to another kind of model.")
    return f"{table[key].format(number[1] if number else '')}.{leaf}"
