"""Export our models to other formats, and import models of other formats.

The folder of a conversion appears when it is complete, and only replaces earlier conversions. Its conversion.json lists
its files, so that files that were added later are noticed.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from huggingface_hub import cached_assets_path, constants

from roberta_plugin import __version__, register
from roberta_plugin.conversion import named_models
from roberta_plugin.conversion import settings as _settings
from roberta_plugin.conversion.comparison import compare
from roberta_plugin.conversion.fairseq_format import write_ours
from roberta_plugin.conversion.families import needs_code
from roberta_plugin.conversion.formats import Format, instead, open_format
from roberta_plugin.conversion.huggingface_tokenizers import leaves_out_space
from roberta_plugin.conversion.model_card import CARD, card, numbers_in_words
from roberta_plugin.conversion.model_files import find_checkpoint, format_of
from roberta_plugin.conversion.named_models import local_path
from roberta_plugin.conversion.portable import MASKED_LM, PortableModel, heads_of
from roberta_plugin.conversion.portable_code import CODE
from roberta_plugin.conversion.pretrained import build, read_any
from roberta_plugin.conversion.settings import RECORD, CommonExportSettings, CommonImportSettings
from roberta_plugin.files import hidden_folder, replace_folder, write_text
from roberta_plugin.finetuning import identity
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.locks import wait_for_lock
from roberta_plugin.models.state_dicts import SEGMENTS, merge_segments, sequence_head_of

logger = logging.getLogger(__name__)


def __getattr__(name: str) -> Any:
    """`ExportSettings` and `ImportSettings`, which are composed when they are used."""
    if name in ("ExportSettings", "ImportSettings"):
        return getattr(_settings, name)
    raise AttributeError(f"{__name__} has no {name}")


@dataclass(frozen=True, kw_only=True)
class ConversionResult:
    """The result of a conversion."""

    folder: Path
    model: PortableModel
    notes: tuple[str, ...]
    """Notes for the user, in sentences."""
    pushed: str = ""
    """The address of the upload, if there was one."""


def export_model(settings: CommonExportSettings) -> ConversionResult:
    """Write a model in another format.

    Raises:
        ValueError: if the model cannot be expressed in the format, or the folder holds something else.
    """
    check_output(settings.output_dir)  # before anything is downloaded
    if settings.push is not None:
        named_models.check_push(settings.push)
    source = local_path(settings.checkpoint)
    check_output(settings.output_dir, sources=(source, settings.data))
    form = open_format(settings.to)
    head = settings.head
    if form.head is not None and head not in (None, form.head):
        raise ValueError(
            f"--to {form.name} writes {form.what_head}, but --head {head} is another head: leave it out, or use --to "
            "huggingface."
        )
    head = form.head or head
    model = _labelled(read_any(source, data=settings.data, tokenizer=settings.tokenizer, head=head), settings.labels)
    model = _drop_pair_parts(model, form)
    form.check(model)
    notes = [
        *model.notes,
        *_notes_on_head(model, form),
        *_notes_on_long_texts(model, form),
        *_notes_on_decisions(model, form),
        *_notes_on_white_space(model, form),
        *_notes_on_code(model, form),
    ]
    record: dict[str, Any] = {"source": str(model.path), "to": settings.to, "head": model.head.name}
    record |= {identity.DECISIONS: model.decides_by} if model.decides_by else {}
    record |= {"version": __version__, "notes": notes}  # `form.write` may add some
    with output_folder(settings.output_dir, record) as folder:
        notes += form.write(model, folder, settings)
        write_text(folder / CARD, card(model, settings, form))
    pushed = "" if settings.push is None else named_models.push(settings.output_dir, settings)
    return ConversionResult(folder=settings.output_dir, model=model, notes=tuple(notes), pushed=pushed)


def _drop_pair_parts(model: PortableModel, form: Format) -> PortableModel:
    """The model without heads for sequences, and without segments if the format does not support them.

    Raises:
        ValueError: if its answers would then be different.
    """
    parameters = {name: value for name, value in model.parameters.items() if not sequence_head_of(name)}
    notes = model.notes
    if SEGMENTS in parameters and not form.has_segments:
        if form.reads_pairs and model.head.kind != MASKED_LM and model.reads_pairs is not False:
            raise ValueError(
                f"{model.path} tells the two texts of a pair apart by segments, which fairseq's RoBERTa does not have: "
                f"use {instead('huggingface')}, or start from a model that was pretrained with "
                "--no-segment-embeddings."
            )
        how = merge_segments(parameters, is_tied=not model.state["cfg"]["model"].get("untie_weights_roberta"))
        lacks = f"The model has segment embeddings, and the exported model does not: {how}."
        notes = (*notes, f"{lacks} So only single texts get the same answers.")
    return replace(model, state={**model.state, "model": parameters}, notes=notes)


def _notes_on_head(model: PortableModel, form: Format) -> list[str]:
    """Notes on heads that are left out, or that were not trained with this encoder."""
    notes = []
    if model.head.is_encoder:
        others = [head.name for head in heads_of(model.state) if head.kind != MASKED_LM]
        if others and not form.vectors_note:
            notes.append(f"The export gives vectors, without the head {' and '.join(others)}.")
        if not model.was_trained_for_its_answers:
            notes.append(
                "The model was not trained for vectors: a text has the mean of the last layer over its tokens."
            )
        notes += [form.vectors_note] if form.vectors_note else []
    elif not model.was_trained_for_its_answers:
        notes.append("The masked-LM head was not trained with this encoder, which was fine-tuned after it.")
    return notes


def _notes_on_long_texts(model: PortableModel, form: Format) -> list[str]:
    """Notes on a model that does not simply cut long texts at their end, if the format cannot express that.

    Raises:
        ValueError: if its answers would then be different.
    """
    layout = model.text_layout
    if layout.long_texts is None:
        return []
    if layout.has_windows and not form.has_windows:
        raise ValueError(
            f"{model.path} reads long texts in windows and pools them inside the model, which --to {form.name} cannot "
            "express: use --to huggingface, whose folder `roberta predict` reads, or fine-tune with --long-texts "
            "head+tail."
        )
    note = f"The model reads only {layout.long_texts} of texts longer than {layout.max_length} tokens"
    remembers = ", as does `roberta predict` with this folder" if form.has_windows else ""
    return [f"{note}{remembers}. {form.program or form.name} does not: cut texts beforehand."]


def _notes_on_decisions(model: PortableModel, form: Format) -> list[str]:
    """Notes on the numbers by which a model decides beside its weights, and on the programs that apply them."""
    notes = []
    if model.head.facts.reads_logits and not form.has_logit_rules:
        notes = [f"{model.head.facts.reads_logits}, which --to {form.name} cannot express."]
    if not model.decides_by:
        return notes
    was_judged = f"The model was evaluated with {numbers_in_words(model)}"
    if not form.has_decisions:
        return [*notes, f"{was_judged}, which --to {form.name} cannot store: README.md says how to apply it."]
    return [f"{was_judged}. `roberta predict` applies it with this folder, {form.program} does not (README.md)."]


def _notes_on_white_space(model: PortableModel, form: Format) -> list[str]:
    """Notes on rules for white space that the tokenizer of a format cannot express."""
    if model.white_space == "spaces":
        return ["Questions are read without white space at their ends, but other programs keep it: leave it out."]
    if model.white_space != "kept" and not (form.has_tokenizer and leaves_out_space(model)):
        inside = ", and with one space for any other" if model.white_space == "one_line" else ""
        return [
            f"Texts are read without white space at their ends{inside}, but {form.tokenizer} keeps it: write texts in "
            "that form."
        ]
    return []


def _notes_on_code(model: PortableModel, form: Format) -> list[str]:
    """A note if a folder contains the code of its model."""
    if not form.has_code or not needs_code(model):
        return []
    segments = ", which tells two texts apart by segments" if SEGMENTS in model.parameters else ""
    return [
        f"No class of transformers computes this model{segments}: the folder has its code, {CODE.name}. Open it with "
        "trust_remote_code=True, as README.md does."
    ]


def import_model(settings: CommonImportSettings) -> ConversionResult:
    """Write model.pt, dict.txt and the tokenizer into a folder, from a model in another format.

    Raises:
        ValueError: if the source is not a RoBERTa or is damaged, or the folder holds something else.
    """
    check_output(settings.output_dir)  # before anything is downloaded
    if settings.allow_pickle and (settings.source.exists() or str(settings.source) in named_models.ARCHIVES):
        raise ValueError(
            f"--allow-pickle has no effect with {settings.source}, which is not a model of the Hugging Face hub: leave "
            "it out."
        )
    source = local_path(settings.source, allow_pickle=settings.allow_pickle)
    additions = settings.additions()
    check_output(
        settings.output_dir, sources=(source, settings.data, settings.tokenizer, *(each.path for each in additions))
    )
    register()
    model = read_any(source, data=settings.data, tokenizer=settings.tokenizer)
    base = model
    for addition in additions:
        model = addition.add(model)
    if not settings.no_comparison:
        why_not = [each.compare(model, base) for each in additions] or [compare(model)]
        model = replace(model, notes=(*model.notes, *filter(None, why_not)))
    model = _labelled(model, settings.labels)
    build(model)  # raises if a parameter is missing or has another shape
    record = {"source": str(model.path), "to": "roberta_plugin", "head": model.head.name, "version": __version__}
    with output_folder(settings.output_dir, {**record, "notes": list(model.notes)}) as folder:
        write_ours(model, folder)
    return ConversionResult(folder=settings.output_dir, model=model, notes=model.notes)


def imported(path: Path) -> Path:
    """The path itself or, for a name and for another format, the folder that `import_model` makes of it once.

    The folder is in $HF_HOME/assets/roberta_plugin, by the commit or the content of the files, and by the version of
    this package.
    """
    source = local_path(path)
    if source != path:
        made_of = source.name if source.is_file() else f"{source.parent.parent.name}--{source.name}"
    elif format_of(path) in ("fairseq", "huggingface"):
        made_of = named_models.sha256_of(path)[:16]  # the folder's name does not count
    else:
        return path
    folder = cached_assets_path(
        "roberta_plugin", "models", f"{made_of}--{__version__}", assets_dir=constants.HF_ASSETS_CACHE
    )
    lock = os.open(folder.with_name(f".{folder.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with contextlib.suppress(OSError):  # in a file system without locks, each process makes it, and one stays
            wait_for_lock(lock)
        if not (folder / RECORD).is_file():
            import_model(_settings.ImportSettings(source=source, output_dir=folder))
            logger.warning("%s is imported into %s, where the next start finds it.", path, folder)
        record = read_json(folder / RECORD, keys=(), remedy=f"delete {folder}", hints={"notes": list}) or {}
        for note in record.get("notes", ()):  # at every start, because they hold at every start
            logger.warning(note)
    finally:
        os.close(lock)
    return folder


def imported_checkpoint(path: Path) -> Path:
    """The checkpoint file of a model: the file itself, or the checkpoint in the folder of a model, a run or a
    fine-tuning (its best run). A name, or a model in another format, is imported first.

    Raises:
        FileNotFoundError: for a folder without a checkpoint.
    """
    folder = imported(path)
    return find_checkpoint(folder, None) if folder.is_dir() else folder


def _labelled(model: PortableModel, labels: tuple[str, ...] | None) -> PortableModel:
    if labels is None:
        return model
    if not model.head.facts.has_labels or len(labels) != model.head.num_outputs:
        raise ValueError(
            f"--labels names {len(labels)} classes, and the head {model.head.name} of {model.path} has "
            f"{model.head.num_outputs if model.head.facts.has_labels else 'none'}."
        )
    if len(set(labels)) < len(labels):
        raise ValueError(f"--labels names a class twice: {', '.join(labels)}. Give each another name.")
    renamed = [f"{own} is {name} now" for own, name in zip(model.labels, labels, strict=False) if own != name]
    notes = [f"--labels renames the model's classes: {', '.join(renamed)}."] if renamed else []
    data = dict(model.state.get("task_state") or {})
    entry = dict(data.get("data") or {})
    entry["settings"] = {**(entry.get("settings") or {}), "labels": list(labels)}
    state = {**model.state, "task_state": {**data, "data": entry}}
    return replace(model, labels=labels, state=state, notes=(*model.notes, *notes))


def check_output(folder: Path, *, sources: Sequence[Path | None] = ()) -> None:
    """Refuse a folder that holds foreign files, or the model to be converted."""
    target = folder.resolve()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output-dir {folder} is a file: name a new folder.")
    if Path.cwd().resolve().is_relative_to(target):
        raise ValueError(f"--output-dir {folder} is the current folder or above it: name a new folder.")
    for source in sources:
        if source is not None and source.resolve().is_relative_to(target):
            raise ValueError(f"--output-dir {folder} holds {source}, which is read: name another folder.")
    if not folder.is_dir():
        return
    names = {path.name for path in folder.iterdir()}
    record = read_json(folder / RECORD, keys=["files"], remedy="name a new folder", hints={"files": list})
    foreign = sorted(names - set(map(str, (record or {"files": ()})["files"])) - {RECORD})
    if foreign or (names and RECORD not in names):
        raise ValueError(
            f"--output-dir {folder} holds other files than an earlier export or import, such as "
            f"{(foreign or sorted(names))[0]}: name a new or empty folder."
        )


@contextlib.contextmanager
def output_folder(folder: Path, record: Mapping[str, Any]) -> Iterator[Path]:
    """A temporary folder beside `folder`, which replaces it when the block ends normally.

    `record`, with source and target format, becomes conversion.json.

    Raises:
        ValueError: as `check_output`, or if the folder cannot be made.
    """
    check_output(folder)
    target = folder.resolve()  # a link to a folder stays a link
    with contextlib.ExitStack() as stack:
        try:
            temporary = stack.enter_context(hidden_folder(target))
        except OSError as error:
            raise ValueError(
                f"--output-dir {folder} cannot be made ({error.strerror}): name one in a folder that you may write to."
            ) from error
        yield temporary
        names = sorted(path.name for path in temporary.iterdir())
        for path in temporary.rglob("*"):
            if path.is_file():
                with open(path, "rb") as file:
                    os.fsync(file.fileno())  # other packages that write files do not
        write_json(temporary / RECORD, {**record, "files": names})
        check_output(folder)
        replace_folder(target, by=temporary)
