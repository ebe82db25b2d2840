"""`roberta export`: a checkpoint -> a folder that transformers, ONNX Runtime or fairseq opens by itself."""

from __future__ import annotations

import argparse
from typing import Any

from roberta_plugin.settings import add_options, from_arguments


def add_parser(subparsers: Any) -> None:
    """Add `roberta export`; its options are the fields of `ExportSettings`."""
    from roberta_plugin.conversion.convert import ExportSettings

    parser = subparsers.add_parser(
        "export",
        help="write a model for transformers, ONNX Runtime or fairseq",
        description="Writes a pretrained or fine-tuned model, with its tokenizer and a model card, into a folder that "
        "other programs open without this plugin.",
    )
    add_options(parser, ExportSettings)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Export, and say where."""
    from roberta_plugin.conversion.convert import ExportSettings, export_model

    done = export_model(from_arguments(ExportSettings, vars(args)))
    for note in done.notes:
        print(f"note: {note}")
    print(f"{done.model.path}, head {done.model.head.name} ({done.model.head.kind}) -> {done.folder} ({args.to})")
    return 0
