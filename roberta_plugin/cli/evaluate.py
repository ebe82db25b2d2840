"""`roberta evaluate`: fine-tuned checkpoints by the official metrics, or the table of all that was evaluated."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from roberta_plugin.cli.prepare import named_values


def add_parser(subparsers: Any) -> None:
    """Add `roberta evaluate` and its options."""
    parser = subparsers.add_parser(
        "evaluate",
        help="evaluate fine-tuned models by the official metrics, beside the paper's numbers",
        description="With --data and --checkpoint: run the checkpoints over a split, and write metrics and prediction "
        "files into --folder; several checkpoints are also averaged, as an ensemble. With --results alone: one table "
        "of everything that was evaluated below these folders, as results.md, results.json and results.png in "
        "--folder; and with --submission the zip file for GLUE's leaderboard.",
    )
    parser.add_argument("--data", type=Path, help="prepared folder")
    parser.add_argument("--checkpoint", type=Path, nargs="+", help="fine-tuned checkpoint, or members of an ensemble")
    parser.add_argument("--split", nargs="+", help="splits to evaluate (default: all but train)")
    parser.add_argument("--results", type=Path, nargs="+", help="folders to collect evaluations from")
    parser.add_argument("--folder", type=Path, required=True, help="where to write")
    parser.add_argument(
        "--submission", type=Path, metavar="ZIP", help="with --results: write GLUE's submission from the predictions"
    )
    parser.add_argument(
        "--allow-incomplete", action="store_true", help="with --submission: write the zip even if tasks are missing"
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the task's scoring: for SQuAD n-best=20, max-answer-length=30 and null-threshold (2.0)",
    )
    parser.add_argument("--max-tokens", type=int, default=16384, help="positions of a batch at most (16384)")
    parser.add_argument("--device", help="where to compute (default: a GPU if there is one)")
    parser.add_argument("--no-progress", action="store_true", help="show no progress bar")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Evaluate or collect, and print the table."""
    import roberta_plugin

    roberta_plugin.register()  # first: what follows imports fairseq
    from roberta_plugin.finetuning.evaluation import where_predictions_are
    from roberta_plugin.finetuning.report import find_evaluations, write_report

    if bool(args.results) == bool(args.data and args.checkpoint):
        raise ValueError("Give either --data and --checkpoint, to evaluate, or --results, to collect evaluations.")
    if args.results:
        found = find_evaluations(args.results)
        print(write_report(found, args.folder))
        if args.submission:
            from roberta_plugin.finetuning.glue.submission import write_submission

            write_submission(args.submission, args.results, allow_incomplete=args.allow_incomplete)
            print(f"submission: {args.submission}")
        return 0
    if args.submission:
        raise ValueError("--submission goes with --results: name the folders that hold the predictions.")
    evaluations = evaluate_splits(args)
    print(write_report(evaluations, args.folder))
    print(where_predictions_are(evaluations), end="")
    return 0


def evaluate_splits(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Evaluate the checkpoints on each split."""
    from roberta_plugin.finetuning.evaluation import evaluate
    from roberta_plugin.finetuning.prepared import Prepared

    prepared = Prepared.open(args.data)
    return [
        evaluate(
            prepared,
            args.checkpoint,
            split=split,
            folder=args.folder,
            device=args.device or default_device(),
            max_tokens=args.max_tokens,
            options=named_values(args.option, "--option"),
            show_progress=not args.no_progress,
        )
        for split in args.split or [name for name in prepared.splits if name != "train"]
    ]


def default_device() -> str:
    """A GPU if there is one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
