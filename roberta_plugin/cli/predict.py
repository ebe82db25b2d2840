"""`roberta predict`: a model's answers about new text."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from roberta_plugin.cli.command import refuse_further
from roberta_plugin.finetuning.kinds import KINDS, TASK_KINDS
from roberta_plugin.prediction.settings import PredictSettings
from roberta_plugin.settings import add_options, from_arguments
from roberta_plugin.tables import find_table

_FILES = ("input", "output")  # where - is a standard stream


def define(parser: argparse.ArgumentParser) -> None:
    """Describe `roberta predict`; its options are the fields of `PredictSettings`."""
    parser.description = (
        "Reads JSON Lines, CSV, TSV, Parquet or plain text, or the texts of the command line, and writes an answer for "
        "each record, in the order of the input: as JSON Lines, or as --output says. A fine-tuned model answers what "
        "it was trained for, a pretrained one fills masks."
    )
    parser.epilog = "fields of a record, by kind: " + "; ".join(
        f"{shown}: {KINDS[name].fields}" for shown, name in TASK_KINDS.items()
    )
    add_options(parser, PredictSettings)
    parser.set_defaults(takes_further=True)  # texts after an option
    if parser.prog.endswith("fill-mask"):
        parser.set_defaults(task_kind="fill_mask")


def run(args: argparse.Namespace) -> int:
    """Predict; 1 if lines were skipped."""
    from roberta_plugin.cli.interrupts import terminated_like_interrupted
    from roberta_plugin.prediction.predict import predict

    if any(word.startswith("-") and " " not in word for word in args.further):
        refuse_further(args.parser, args.further)
    args.texts += args.further
    files = {name: None if path in (None, "-") else Path(path) for name, path in vars(args).items() if name in _FILES}
    if files["input"] is not None:
        files["input"] = find_table(Path(), str(args.input), option="--input")  # a path would not keep the // of a URL
    settings = from_arguments(PredictSettings, vars(args), **files)
    with terminated_like_interrupted():
        result = predict(settings)
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
