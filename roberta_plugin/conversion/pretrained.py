"""A trained model from wherever it is: `open_pretrained`, and the reading that all commands share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from fairseq.data import Dictionary
from torch import nn

from roberta_plugin.conversion.fairseq_archive import is_archive, unpacked
from roberta_plugin.conversion.fairseq_checkpoint import is_checkpoint, read_checkpoint
from roberta_plugin.conversion.heads import Head, choose_head, heads_of, labels_of
from roberta_plugin.conversion.huggingface import read_huggingface
from roberta_plugin.conversion.huggingface_folder import is_huggingface_folder
from roberta_plugin.conversion.portable import PortableModel, SourceKind
from roberta_plugin.models.checkpoints.building import ModelOnlyTask, model_arguments

if TYPE_CHECKING:
    from roberta_plugin.data.tokenizers.base import Tokenizer
    from roberta_plugin.data.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class PretrainedModel:
    """A model that is ready for use.

    Attributes:
        model: in evaluation mode, on the CPU, with all of its heads.
        tokenizer: text -> tokenizer ids.
        vocabulary: tokenizer ids -> model ids.
        dictionary: the same vocabulary as fairseq's class.
        labels: names of the classes of each classification head whose classes have names.
        heads: the heads by name; `masked_lm` is one of them.
        source: what was opened: a checkpoint, an archive of fairseq, a folder of Hugging Face.
        notes: what the user should know, in sentences.
    """

    model: nn.Module
    tokenizer: Tokenizer
    vocabulary: Vocabulary
    dictionary: Dictionary
    labels: Mapping[str, tuple[str, ...]]
    heads: Mapping[str, Head]
    source: SourceKind
    notes: tuple[str, ...]


def is_foreign(path: Path) -> bool:
    """Whether a path is something that only `open_pretrained` opens: a Hugging Face folder or file, or an archive."""
    if is_archive(path):
        return True
    return is_huggingface_folder(path) and not (path.is_dir() and is_checkpoint(path))


def open_pretrained(path: Path) -> PretrainedModel:
    """Open a Hugging Face folder, an imported or exported folder, an archive of fairseq, or a checkpoint.

    Raises:
        FileNotFoundError: if something is missing.
        ValueError: if it is none of these, damaged, or no RoBERTa.
    """
    from roberta_plugin import register

    register()
    portable = read_any(path)
    dictionary = Dictionary()
    for symbol in portable.vocabulary.symbols[dictionary.nspecial :]:
        dictionary.add_symbol(symbol, overwrite=True)
    heads = heads_of(portable.state)
    return PretrainedModel(
        model=build(portable),
        tokenizer=portable.tokenizer,
        vocabulary=portable.vocabulary,
        dictionary=dictionary,
        labels={head.name: labels_of(portable.state, head) for head in heads if labels_of(portable.state, head)},
        heads={head.name: head for head in heads},
        source=portable.source,
        notes=portable.notes,
    )


def read_any(path: Path, *, data: Path | None = None, head: str | None = None) -> PortableModel:
    """The model in a file or folder of any known format.

    Raises:
        FileNotFoundError: if there is nothing, or something is missing.
        ValueError: if the format is not known, or the files do not fit each other.
    """
    if not path.exists():
        raise FileNotFoundError(f"There is no {path}: give a folder or file with a model.")
    if is_archive(path):
        with unpacked(path) as folder:
            try:
                return read_checkpoint(folder, data=data, head=head, source="fairseq")
            except (FileNotFoundError, ValueError) as error:
                raise type(error)(str(error).replace(str(folder), str(path))) from error
    if is_checkpoint(path):
        return read_checkpoint(path, data=data, head=head)
    if is_huggingface_folder(path):
        model = read_huggingface(path)
        choose_head(model.state, head, path)  # raises where it has no such head
        return model
    raise ValueError(
        f"The format of {path} is not known. Known are checkpoints of fairseq (a .pt file, or a folder with "
        "checkpoint_best.pt, checkpoint_last.pt or model.pt), archives of fairseq (.tar.gz) and folders of Hugging "
        "Face (config.json with model.safetensors or pytorch_model.bin)."
    )


def build(portable: PortableModel) -> nn.Module:
    """The model itself, in evaluation mode, whose parameters are those that were read: nothing is copied in fp32.

    Raises:
        ValueError: if the parameters do not fit the options.
    """
    arguments = model_arguments(portable.state, portable.path)
    arguments.load_checkpoint_heads = True
    with torch.device("meta"):  # neither memory nor time for random weights
        task = ModelOnlyTask(_Symbols(portable.vocabulary), arguments.max_positions)
        model: Any = task.build_model(arguments, from_checkpoint=True)
        parameters = dict(portable.parameters)
        model.upgrade_state_dict(parameters)  # adds the heads to the model
    try:
        nn.Module.load_state_dict(model, parameters, assign=True)  # fairseq's has no `assign`
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ValueError(f"{portable.path}: the parameters do not fit the model. {' '.join(lines[:3])}") from error
    if not portable.state["cfg"]["model"].get("untie_weights_roberta"):
        model.encoder.lm_head.weight = model.encoder.sentence_encoder.embed_tokens.weight
    built: nn.Module = model.float().eval()
    return built


class _Symbols:
    """What a model asks of fairseq's dictionary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def pad(self) -> int:
        return self._vocabulary.pad_id

    def __len__(self) -> int:
        return len(self._vocabulary)
