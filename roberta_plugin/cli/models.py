"""`roberta predict`: a model's answers about new text; `roberta export` and `roberta import`: models for and from other
programs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from roberta_plugin.cli.command import command, refuse_further
from roberta_plugin.conversion.settings import ExportSettings, ImportSettings
from roberta_plugin.finetuning.kinds import KINDS, task_kinds
from roberta_plugin.prediction.settings import PredictSettings
from roberta_plugin.settings import from_arguments
from roberta_plugin.tables import find_table

_FILES = ("input", "output")  # where - is a standard stream


def add_kinds(parser: argparse.ArgumentParser) -> None:
    """Name the fields of a record; let fill-mask be predict with that kind."""
    parser.epilog = "fields of a record, by kind: " + "; ".join(
        f"{shown}: {KINDS[name].fields}" for shown, name in task_kinds().items()
    )
    if parser.prog.endswith("fill-mask"):
        parser.set_defaults(task_kind="fill_mask")


@command(PredictSettings, add=add_kinds, takes_further=True)  # texts after an option
def predict(args: argparse.Namespace) -> int:
    """Reads JSON Lines, CSV, TSV, Parquet or plain text, or the texts of the command line, and writes an answer for
    each record, in the order of the input: as JSON Lines, or as --output says. A fine-tuned model answers what it was
    trained for, a pretrained one fills masks.
    """
    from roberta_plugin.prediction import predict as prediction

    if any(word.startswith("-") and " " not in word for word in args.further):
        refuse_further(args.parser, args.further)
    args.texts += args.further
    files = {name: None if path in (None, "-") else Path(path) for name, path in vars(args).items() if name in _FILES}
    if files["input"] is not None:
        files["input"] = find_table(Path(), str(args.input), option="--input")  # a path would not keep the // of a URL
    settings = from_arguments(PredictSettings, vars(args), **files)
    result = prediction.predict(settings)
    if result.output is not None:
        what = result.task_kind if settings.precision == "fp32" else f"{result.task_kind}, {settings.precision}"
        print(f"{result.num_answers:,} answers ({what}) in {result.seconds:.1f} s: {result.output}")
    if not result.num_answers:
        print(f"{settings.input or 'standard input'} is empty: there is nothing to answer.", file=sys.stderr)
    if result.num_truncated:
        print(f"{result.num_truncated:,} records were cut to the model's length: 'truncated'.", file=sys.stderr)
    if result.num_errors:
        print(f"{result.num_errors:,} bad lines were skipped: see 'error' in their answers.", file=sys.stderr)
    return 1 if result.num_errors else 0


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
    """Print the notes of a `conversion.convert.ConversionResult`, where the model is, and where it was uploaded."""
    print(*(f"note: {note}\n" for note in done.notes), sep="", end="")
    head = done.model.head
    kind = "" if head.kind == head.name else f" ({head.kind})"
    print(f"{done.model.path}, head {head.name}{kind} -> {done.folder}{end}")
    if done.pushed:
        print(f"uploaded: {done.pushed}")
    return 0
