"""`roberta export` and `roberta import`: models for and from other programs."""

from __future__ import annotations

from roberta_plugin.cli.command import command
from roberta_plugin.conversion import convert


@command(convert.ExportSettings)
def export(settings: convert.ExportSettings) -> int:
    """Writes a pretrained or fine-tuned model, with its tokenizer and a model card, into a folder that other programs
    open without this plugin.
    """
    return show(convert.export_model(settings), f" ({settings.to})")


@command(convert.ImportSettings)
def import_model(settings: convert.ImportSettings) -> int:
    """Makes a folder with model.pt, dict.txt and the tokenizer, for `roberta finetune --model`, fairseq-train
    --finetune-from-model and RobertaHub. No code of the files runs.
    """
    return show(convert.import_model(settings))


def show(done: convert.Converted, end: str = "") -> int:
    """Print the notes of a conversion, and where the model is."""
    print(*(f"note: {note}\n" for note in done.notes), sep="", end="")
    print(f"{done.model.path}, head {done.model.head.name} ({done.model.head.kind}) -> {done.folder}{end}")
    return 0
