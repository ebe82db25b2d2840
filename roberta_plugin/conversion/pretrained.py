"""Open a trained model of any known format: `open_pretrained`, and the reading that all commands share."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
from fairseq.data import Dictionary
from torch import nn

from roberta_plugin.conversion.fairseq_format import read_checkpoint, unpacked
from roberta_plugin.conversion.heads import Head, choose_head, heads_of, labels_of
from roberta_plugin.conversion.huggingface import read_huggingface
from roberta_plugin.conversion.model_files import SourceKind, format_of
from roberta_plugin.conversion.named_models import NAMES, local_path
from roberta_plugin.conversion.portable import PortableModel
from roberta_plugin.finetuning import identity
from roberta_plugin.models.checkpoints import build_model

if TYPE_CHECKING:
    from roberta_plugin.data.tokenizers.base import Tokenizer
    from roberta_plugin.data.vocabulary import Vocabulary

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PretrainedModel:
    """A model that is ready for use.

    Attributes:
        model: in evaluation mode, on the CPU, with all of its heads.
        tokenizer: text -> tokenizer ids.
        vocabulary: tokenizer ids -> model ids.
        dictionary: the same vocabulary as fairseq's class.
        labels: class names of each classification head, if known.
        heads: the heads by name; `masked_lm` is one of them.
        trained_on: the model's record of its data, in the form of `finetuning/identity.py`.
        source: a checkpoint, an archive of fairseq, or a folder of Hugging Face.
        notes: for the user, in sentences; they are logged as warnings.
    """

    model: nn.Module
    tokenizer: Tokenizer
    vocabulary: Vocabulary
    dictionary: Dictionary
    labels: Mapping[str, tuple[str, ...]]
    heads: Mapping[str, Head]
    trained_on: Mapping[str, Any]
    source: SourceKind
    notes: tuple[str, ...]


def open_pretrained(path: Path, *, data: Path | None = None) -> PretrainedModel:
    """Open a Hugging Face folder, an imported or exported folder, an archive of fairseq, or a checkpoint.

    `data` is the folder with dict.txt and the tokenizer, where it has none.

    Raises:
        ValueError: if it is none of these, damaged, or no RoBERTa.
    """
    from roberta_plugin import register

    register()
    portable = read_any(path, data=data)
    for note in portable.notes:
        logger.warning(note)
    heads = heads_of(portable.state)
    return PretrainedModel(
        model=build(portable),
        tokenizer=portable.tokenizer,
        vocabulary=portable.vocabulary,
        dictionary=fairseq_dictionary(portable.vocabulary),
        labels={head.name: labels_of(portable.state, head) for head in heads if labels_of(portable.state, head)},
        heads={head.name: head for head in heads},
        trained_on=identity.of_checkpoint(portable.state),
        source=portable.source,
        notes=portable.notes,
    )


def read_any(path: Path, *, data: Path | None = None, head: str | None = None) -> PortableModel:
    """The model in a file or folder of any known format, or of a name (`named_models`).

    Raises:
        ValueError: if the format is not known, or the files do not fit each other.
    """
    path = local_path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no {path}: give a folder or file with a model, or {NAMES}.")
    form = format_of(path)
    if form == "fairseq":
        with unpacked(path) as folder:
            try:
                model = read_checkpoint(folder, data=data, head=head, source="fairseq")
                return replace(model, path=path)
            except FileNotFoundError as error:
                raise FileNotFoundError(str(error).replace(str(folder), str(path))) from error
            except ValueError as error:
                raise ValueError(str(error).replace(str(folder), str(path))) from error
    if form == "checkpoint":
        return read_checkpoint(path, data=data, head=head)
    if form == "huggingface":
        if data is not None:
            raise ValueError(f"{path} brings its vocabulary and tokenizer along: leave --data {data} out.")
        model = read_huggingface(path)
        choose_head(model.state, head, path)  # raises where it has no such head
        return model
    raise ValueError(
        f"The format of {path} is not known. Known are checkpoints of fairseq (a .pt file, or a folder with "
        "checkpoint_best.pt, checkpoint_last.pt or model.pt), archives of fairseq (.tar.gz) and folders of Hugging "
        "Face (config.json with model.safetensors or pytorch_model.bin)."
    )


def build(portable: PortableModel) -> nn.Module:
    """The model itself, in evaluation mode, on the CPU, in fp32."""
    return build_model(portable.state, portable.path, dictionary=fairseq_dictionary(portable.vocabulary))


def fairseq_dictionary(vocabulary: Vocabulary) -> Dictionary:
    """The vocabulary as fairseq's dictionary, with <mask>."""
    dictionary = Dictionary()
    # Not by its own methods, which take a third of the time that opening a base model takes.
    dictionary.symbols, dictionary.count = list(vocabulary.symbols), vocabulary.counts.tolist()
    dictionary.indices = {symbol: number for number, symbol in enumerate(vocabulary.symbols)}
    return dictionary
