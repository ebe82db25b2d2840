"""`roberta export`: a checkpoint -> a folder that transformers, ONNX Runtime or fairseq opens by itself."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Add `roberta export` and its options."""
    parser = subparsers.add_parser(
        "export",
        help="write a model for transformers, ONNX Runtime or fairseq",
        description="Writes a pretrained or fine-tuned model, with its tokenizer and a model card, into a folder that "
        "other programs open without this plugin.",
    )
    parser.add_argument(
        "checkpoint",
        type=Path,
        metavar="CHECKPOINT",
        help="a checkpoint (.pt), the folder of one, or the --output-dir of `roberta finetune`, whose best run is used",
    )
    parser.add_argument("--to", required=True, choices=("huggingface", "fairseq", "onnx"), help="the format to write")
    parser.add_argument("--output-dir", type=Path, required=True, help="a new or empty folder, or an earlier export")
    parser.add_argument("--data", type=Path, help="folder with dict.txt and the tokenizer, if they are not found")
    parser.add_argument("--head", help="the head to export (default: the fine-tuned one, else masked_lm)")
    parser.add_argument("--labels", nargs="+", metavar="NAME", help="names of the classes, if the checkpoint has none")
    parser.add_argument(
        "--layout", choices=("today", "2019"), default="today", help="fairseq: parameter names of today or of 2019"
    )
    parser.add_argument("--half", action="store_true", help="fairseq: store 16-bit numbers, as the released models do")
    parser.add_argument(
        "--int8",
        type=Path,
        metavar="TEXT",
        help="onnx: also write a model with 8-bit weights, and measure the difference on the lines of this text file",
    )
    parser.add_argument("--license", default="other", help="licence for the model card, such as mit (other)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Export, and say where."""
    from roberta_plugin.conversion.convert import ExportSettings, export_model

    settings = ExportSettings(
        checkpoint=args.checkpoint,
        to=args.to,
        output_dir=args.output_dir,
        data=args.data,
        head=args.head,
        labels=tuple(args.labels) if args.labels else None,
        layout=args.layout,
        half=args.half,
        int8_sample=args.int8,
        license=args.license,
    )
    done = export_model(settings)
    for note in done.notes:
        print(f"note: {note}")
    print(f"{done.model.path}, head {done.model.head.name} ({done.model.head.kind}) -> {done.folder} ({args.to})")
    return 0
