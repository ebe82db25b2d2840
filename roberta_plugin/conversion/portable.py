"""A model on its way from one format to another: everything that belongs to it, in memory.

Readers make a `PortableModel`, writers store one; each format needs one of each, not one per pair of formats.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from roberta_plugin.conversion.heads import Head
from roberta_plugin.conversion.model_files import SourceKind
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.benchmarks import white_space_of
from roberta_plugin.finetuning.layouts.texts import TextLayout
from roberta_plugin.finetuning.records import WhiteSpace


@dataclass(frozen=True, kw_only=True)
class PortableModel:
    """A model, its tokenizer and its vocabulary.

    Attributes:
        state: content of a checkpoint file, with parameters by our names.
        tokenizer: text -> tokenizer ids.
        vocabulary: tokenizer ids -> model ids.
        head: the head that answers.
        labels: names of its classes; empty if unknown, or if it has none.
        path: the file or folder that was read, for messages.
        source: the form of `path`, for messages.
        training: the checkpoint's record of its training: updates, hours, tokens, lr, ...
        notes: for the user, in sentences.
        keeps_ids: whether tokenizer.json has our ids where Hugging Face's differ (CamemBERT), as beside a graph.
    """

    state: dict[str, Any]
    tokenizer: Tokenizer
    vocabulary: Vocabulary
    head: Head
    labels: tuple[str, ...] = ()
    path: Path
    source: SourceKind
    training: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    keeps_ids: bool = False

    @property
    def mask_keeps_space(self) -> bool:
        """Whether the space before `<mask>` is a separate token (no lstrip); in our own models it is not."""
        return bool(identity.of_checkpoint(self.state).get(identity.MASK_KEEPS_SPACE))

    @property
    def white_space(self) -> WhiteSpace:
        """What its head reads of a text's white space."""
        return white_space_of(self.head.facts, str(identity.of_checkpoint(self.state).get("task")))

    @property
    def text_layout(self) -> TextLayout:
        """How it reads texts that are too long; in a format that cannot say it, at their begin."""
        settings = identity.of_checkpoint(self.state).get("settings") or {}
        length = settings.get("max_length") or int(self.state["cfg"]["model"]["max_positions"])
        return TextLayout.of(settings if self.head.facts.head == "classification" else {}, max_length=length)

    @property
    def decides_by(self) -> dict[str, float]:
        """Numbers that decide beside the weights of its head, by the options of `roberta predict` that give them."""
        return self.head.facts.numbers_of(identity.of_checkpoint(self.state).get(identity.DECISIONS) or {})

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The parameters by our names."""
        parameters: dict[str, Tensor] = self.state["model"]
        return parameters


def check_vocabulary(num_rows: int, vocabulary: Vocabulary, *, path: Path, vocabulary_path: Path) -> None:
    """Refuse a vocabulary of another size than the model's."""
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
    """The record of the data that our checkpoints hold, for an imported model: see `identity.of`."""
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
    """The name of a parameter by a table of modules, such as `huggingface_model.TRUNK`."""
    module, _, leaf = name.rpartition(".")
    key = module
    number = re.search(r"\.layers?\.(\d+)\.", module)
    if number:
        key = module[: number.start(1)] + "{}" + module[number.end(1) :]
    if key not in table:
        raise ValueError(f"The parameter {name} has no counterpart: the state dict is of another kind of model.")
    return f"{table[key].format(number[1] if number else '')}.{leaf}"
