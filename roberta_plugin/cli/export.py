"""`roberta export`: a checkpoint -> a folder that transformers, ONNX Runtime or fairseq opens by itself."""

from __future__ import annotations

import argparse

from roberta_plugin.cli.interrupts import terminated_like_interrupted
from roberta_plugin.conversion.settings import ExportSettings
from roberta_plugin.settings import add_options, from_arguments


def define(parser: argparse.ArgumentParser) -> None:
    """Describe `roberta export`; its options are the fields of `ExportSettings`."""
    parser.description = (
        "Writes a pretrained or fine-tuned model, with its tokenizer and a model card, into a folder that other "
        "programs open without this plugin; with --push, also to the Hugging Face hub."
    )
    add_options(parser, ExportSettings)


@terminated_like_interrupted()
def run(args: argparse.Namespace) -> int:
    """Export, and say where."""
    from roberta_plugin.conversion.convert import export_model

    done = export_model(from_arguments(ExportSettings, vars(args)))
    for note in done.notes:
        print(f"note: {note}")
    print(f"{done.model.path}, head {done.model.head.name} ({done.model.head.kind}) -> {done.folder} ({args.to})")
    if done.pushed:
        print(f"uploaded: {done.pushed}")
    return 0
