"""`roberta import`: a folder of Hugging Face or an archive of fairseq -> a folder of ours."""

from __future__ import annotations

import argparse

from roberta_plugin.cli.interrupts import terminated_like_interrupted
from roberta_plugin.conversion.settings import ImportSettings
from roberta_plugin.settings import add_options, from_arguments


def define(parser: argparse.ArgumentParser) -> None:
    """Describe `roberta import`; its options are the fields of `ImportSettings`."""
    parser.description = (
        "Makes a folder with model.pt, dict.txt and the tokenizer, for `roberta finetune --model`, fairseq-train "
        "--finetune-from-model and RobertaHub. No code of the files runs."
    )
    add_options(parser, ImportSettings)


@terminated_like_interrupted()
def run(args: argparse.Namespace) -> int:
    """Import, and say where."""
    from roberta_plugin.conversion.convert import import_model

    done = import_model(from_arguments(ImportSettings, vars(args)))
    for note in done.notes:
        print(f"note: {note}")
    print(f"{done.model.path}, head {done.model.head.name} ({done.model.head.kind}) -> {done.folder}")
    return 0
