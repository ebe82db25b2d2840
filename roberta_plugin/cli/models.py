"""`roberta export` and `roberta import`: models for and from other programs."""

from __future__ import annotations

from typing import Any

from roberta_plugin.cli.command import command
from roberta_plugin.conversion.settings import ExportSettings, ImportSettings


@command(ExportSettings)
def export(settings: ExportSettings) -> int:
    """Writes a pretrained or fine-tuned model, with its tokenizer and a model card, into a folder that other programs
    open without this plugin; with --push, also to the Hugging Face hub.
    """
    from roberta_plugin.conversion.convert import export_model

    return show(export_model(settings), f" ({settings.to})")


@command(ImportSettings)
def import_model(settings: ImportSettings) -> int:
    """Makes a folder with model.pt, dict.txt and the tokenizer, for `roberta finetune --model`, fairseq-train
    --finetune-from-model and RobertaHub. No code of the files runs.
    """
    from roberta_plugin.conversion import convert

    return show(convert.import_model(settings))


def show(done: Any, end: str = "") -> int:
    """Print the notes of a `conversion.convert.Converted`, where the model is, and where it was uploaded."""
    print(*(f"note: {note}\n" for note in done.notes), sep="", end="")
    print(f"{done.model.path}, head {done.model.head.name} ({done.model.head.kind}) -> {done.folder}{end}")
    if done.pushed:
        print(f"uploaded: {done.pushed}")
    return 0
