"""Export our models to other formats, and import models of other formats."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from roberta_plugin import __version__
from roberta_plugin.conversion.fairseq_archive import Layout, write_fairseq, write_ours
from roberta_plugin.conversion.heads import HAS_LABELS
from roberta_plugin.conversion.huggingface import write_huggingface
from roberta_plugin.conversion.huggingface_folder import MAX_SHARD_BYTES
from roberta_plugin.conversion.model_card import write_card
from roberta_plugin.conversion.output_folder import check_output, output_folder
from roberta_plugin.conversion.portable import PortableModel
from roberta_plugin.conversion.pretrained import read_any
from roberta_plugin.settings import REQUIRED, check_values, setting

Format = Literal["huggingface", "fairseq", "onnx"]


@dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """Settings of `export_model`."""

    checkpoint: Path = setting(
        REQUIRED,
        "a checkpoint (.pt), the folder of one, or the --output-dir of `roberta finetune`, whose best run is used",
        flag="checkpoint",
    )
    to: Format = setting(REQUIRED, "the format to write")
    output_dir: Path = setting(REQUIRED, "a new or empty folder, or an earlier export")
    data: Path | None = setting(None, "folder with dict.txt and the tokenizer, if they are not found")
    head: str | None = setting(None, "the head to export (default: the fine-tuned one, else masked_lm)")
    labels: tuple[str, ...] | None = setting(
        None, "names of the classes, if the checkpoint has none", nargs="+", metavar="NAME"
    )
    layout: Layout = setting("today", "fairseq: parameter names of today or of 2019")
    half: bool = setting(False, "fairseq: store 16-bit numbers, as the released models do")
    int8_sample: Path | None = setting(
        None,
        "onnx: also write a model with 8-bit weights, and measure the difference on the lines of this text file",
        flag="--int8",
        metavar="TEXT",
    )
    license: str = setting("other", "licence for the model card, such as mit")
    max_shard_bytes: int = MAX_SHARD_BYTES
    """Most bytes of one file of weights (huggingface)."""


@dataclass(frozen=True, kw_only=True)
class ImportSettings:
    """Settings of `import_model`."""

    source: Path = setting(
        REQUIRED,
        "a folder of Hugging Face (RoBERTa, XLM-R or CamemBERT; safetensors or bin), an archive of fairseq (.tar.gz) "
        "or a checkpoint",
        flag="source",
    )
    output_dir: Path = setting(REQUIRED, "a new or empty folder, or an earlier import")
    data: Path | None = setting(None, "folder with dict.txt and the tokenizer, if the source has none")
    labels: tuple[str, ...] | None = setting(
        None, "names of the classes, if the source has none", nargs="+", metavar="NAME"
    )


@dataclass(frozen=True, kw_only=True)
class Converted:
    """The result of a conversion."""

    folder: Path
    model: PortableModel
    notes: tuple[str, ...]
    """Notes for the user, in sentences."""


def export_model(settings: ExportSettings) -> Converted:
    """Write a model in another format.

    Raises:
        FileNotFoundError: if a file of the model is missing.
        ValueError: if the model cannot be expressed in the format, or the folder holds something else.
    """
    check_output(settings.output_dir, sources=(settings.checkpoint, settings.data))
    check_values(settings)
    model = _labelled(read_any(settings.checkpoint, data=settings.data, head=settings.head), settings.labels)
    record = {"source": str(model.path), "to": settings.to, "head": model.head.name, "version": __version__}
    with output_folder(settings.output_dir, record) as folder:
        notes = list(model.notes)
        if settings.to == "huggingface":
            write_huggingface(model, folder, max_shard_bytes=settings.max_shard_bytes)
        elif settings.to == "fairseq":
            write_fairseq(model, folder, layout=settings.layout, half=settings.half)
        else:
            from roberta_plugin.conversion.onnx_model import write_onnx

            notes += write_onnx(model, folder, int8_sample=settings.int8_sample)
        write_card(model, folder, to=settings.to, license_name=settings.license)
    return Converted(folder=settings.output_dir, model=model, notes=tuple(notes))


def import_model(settings: ImportSettings) -> Converted:
    """Write model.pt, dict.txt and the tokenizer into a folder, from a model in another format.

    Raises:
        FileNotFoundError: if a file of the model is missing.
        ValueError: if it is not a RoBERTa, is damaged, or the folder holds something else.
    """
    check_output(settings.output_dir, sources=(settings.source, settings.data))
    model = _labelled(read_any(settings.source, data=settings.data), settings.labels)
    record = {"source": str(model.path), "to": "roberta_plugin", "head": model.head.name, "version": __version__}
    with output_folder(settings.output_dir, record) as folder:
        write_ours(model, folder)
    return Converted(folder=settings.output_dir, model=model, notes=model.notes)


def _labelled(model: PortableModel, labels: tuple[str, ...] | None) -> PortableModel:
    if labels is None:
        return model
    if model.head.kind not in HAS_LABELS or len(labels) != model.head.num_outputs:
        raise ValueError(
            f"--labels names {len(labels)} classes, and the head {model.head.name} of {model.path} has "
            f"{model.head.num_outputs if model.head.kind in HAS_LABELS else 'none'}."
        )
    data = dict(model.state.get("task_state") or {})
    entry = dict(data.get("data") or {})
    entry["settings"] = {**(entry.get("settings") or {}), "labels": list(labels)}
    state = {**model.state, "task_state": {**data, "data": entry}}
    return replace(model, labels=labels, state=state)
