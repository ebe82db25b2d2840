"""A file or folder of any known format -> the model in it: the reading that all commands share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
from fairseq.data import Dictionary
from torch import nn

from roberta_plugin.conversion.fairseq_format import read_checkpoint, unpacked
from roberta_plugin.conversion.huggingface import read_huggingface
from roberta_plugin.conversion.model_files import format_of
from roberta_plugin.conversion.named_models import NAMES, local_path
from roberta_plugin.conversion.portable import PortableModel, choose_head
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.models.checkpoints import build_model


def read_any(
    path: Path, *, data: Path | None = None, tokenizer: Path | None = None, head: str | None = None
) -> PortableModel:
    """The model in a file or folder of any known format, or with a name (`named_models`).

    `data` and `tokenizer` are for fairseq's formats, as in `read_files`.

    Raises:
        ValueError: if the format is not known, or the files do not fit each other.
    """
    path = local_path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no {path}: give a folder or file with a model, or {NAMES}.")
    form = format_of(path)
    if form == "fairseq":
        return _read_archive(path, data=data, tokenizer=tokenizer, head=head)
    if form == "checkpoint":
        return read_checkpoint(path, data=data, tokenizer=tokenizer, head=head)
    if form == "huggingface":
        for option, given in (("--data", data), ("--tokenizer", tokenizer)):
            if given is not None:
                raise ValueError(f"{path} has its own vocabulary and tokenizer: leave {option} {given} out.")
        model = read_huggingface(path)
        chosen = choose_head(model.state, head, path)
        return model if chosen.module == model.head.module else replace(model, head=chosen, labels=())
    if form is not None:
        raise ValueError(
            f"{path} holds a model in the format {form}, from which nothing can be converted: give the checkpoint or "
            "folder that it was exported from."
        )
    raise ValueError(
        f"The format of {path} is not known. Known are checkpoints of fairseq (a .pt file, or a folder with "
        "checkpoint_best.pt, checkpoint_last.pt or model.pt), archives of fairseq (.tar.gz) and folders of Hugging "
        "Face (config.json with model.safetensors or pytorch_model.bin)."
    )


def _read_archive(path: Path, **options: Any) -> PortableModel:
    """The model in an archive of fairseq, which errors name instead of the folder that it is unpacked to."""
    with unpacked(path) as folder:
        try:
            return replace(read_checkpoint(folder, source="fairseq", **options), path=path)
        except FileNotFoundError as error:
            raise FileNotFoundError(str(error).replace(str(folder), str(path))) from error
        except ValueError as error:
            raise ValueError(str(error).replace(str(folder), str(path))) from error


def build(portable: PortableModel) -> nn.Module:
    """The model itself, in evaluation mode, on the CPU, in fp32."""
    return build_model(portable.state, portable.path, dictionary=fairseq_dictionary(portable.vocabulary))


def fairseq_dictionary(vocabulary: Vocabulary) -> Dictionary:
    """The vocabulary as fairseq's dictionary, with <mask>."""
    dictionary = Dictionary()
    # Its own methods would take a third of the time to open a base model.
    dictionary.symbols, dictionary.count = list(vocabulary.symbols), vocabulary.counts.tolist()
    dictionary.indices = {symbol: number for number, symbol in enumerate(vocabulary.symbols)}
    return dictionary
