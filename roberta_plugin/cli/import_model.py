"""`roberta import`: a folder of Hugging Face or an archive of fairseq -> a folder of ours."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Add `roberta import` and its options."""
    parser = subparsers.add_parser(
        "import",
        help="read a model of Hugging Face or of fairseq",
        description="Makes a folder with model.pt, dict.txt and the tokenizer, for `roberta finetune --model`, "
        "fairseq-train --finetune-from-model and RobertaHub. No code of the files runs.",
    )
    parser.add_argument(
        "source",
        type=Path,
        metavar="SOURCE",
        help="a folder of Hugging Face (RoBERTa, XLM-R or CamemBERT; safetensors or bin), an archive of fairseq "
        "(.tar.gz) or a checkpoint",
    )
    parser.add_argument("--output-dir", type=Path, required=True, help="a new or empty folder, or an earlier import")
    parser.add_argument("--data", type=Path, help="folder with dict.txt and the tokenizer, if the source has none")
    parser.add_argument("--labels", nargs="+", metavar="NAME", help="names of the classes, if the source has none")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Import, and say where."""
    from roberta_plugin.conversion.convert import ImportSettings, import_model

    labels = tuple(args.labels) if args.labels else None
    done = import_model(ImportSettings(source=args.source, output_dir=args.output_dir, data=args.data, labels=labels))
    for note in done.notes:
        print(f"note: {note}")
    print(f"{done.model.path}, head {done.model.head.name} ({done.model.head.kind}) -> {done.folder}")
    return 0
