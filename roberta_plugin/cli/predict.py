"""`roberta predict`: a model's answers about new text."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from roberta_plugin.prediction.kinds import KINDS
from roberta_plugin.prediction.settings import FORMATS


def add_parser(subparsers: Any) -> None:
    """Add `roberta predict` and its options."""
    parser = subparsers.add_parser(
        "predict",
        help="a model's answers about new text: masks, labels, tags, numbers, options, answers, summaries, vectors",
        description="Reads JSON Lines, CSV, TSV or plain text, and writes an answer for each record as JSON Lines, in "
        "the order of the input. A fine-tuned model answers what it was trained for, a pretrained one fills masks.",
        epilog="fields of a record, by kind: " + "; ".join(f"{name}: {kind.fields}" for name, kind in KINDS.items()),
    )
    parser.add_argument(
        "model", type=Path, help="folder of a model, output folder of `roberta finetune`, or a checkpoint"
    )
    parser.add_argument("--task-kind", choices=tuple(KINDS), help="what to predict (default: what it was trained for)")
    parser.add_argument("--input", default="-", metavar="FILE", help="records; - is standard input (default)")
    parser.add_argument(
        "--output", default="-", metavar="FILE", help="answers; - is standard output (default); .npy for embeddings"
    )
    parser.add_argument("--format", choices=FORMATS, help="form of the input (default: by its name, or first line)")
    parser.add_argument(
        "--text-column",
        metavar="COLUMN",
        help="column or field of the text, or of the context of questions (default: as in training, or as below)",
    )
    parser.add_argument("--text-pair-column", metavar="COLUMN", help="the same for the second text, or the question")
    parser.add_argument(
        "--id-column",
        metavar="COLUMN",
        help="column or field that each answer gives back as id (id; without one: the number of the line)",
    )
    parser.add_argument("--data", type=Path, help="folder with dict.txt, if it is not that of the model")
    parser.add_argument("--tokenizer", type=Path, help="folder with the tokenizer's files, if it is another one")
    parser.add_argument("--head", help="name of the head, if the model has several")
    parser.add_argument("--top-k", type=int, default=5, help="tokens for each mask, candidates for each question (5)")
    parser.add_argument("--pooling", choices=("mean", "first"), default="mean", help="of embeddings (mean)")
    parser.add_argument(
        "--null-threshold",
        type=float,
        metavar="P",
        help="question_answering: probability of no answer above which none is given (default: the one that `roberta "
        "finetune` found on the development set, if MODEL is its output folder; else 0.5)",
    )
    parser.add_argument(
        "--valid-sequences", action="store_true", help="tags: the most probable sequence among those that are valid"
    )
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="P",
        help="multi_label: probability from which a label is given (default: as --null-threshold)",
    )
    parser.add_argument("--num-sentences", type=int, metavar="N", help="sentences of a summary (3)")
    parser.add_argument(
        "--length-share",
        type=float,
        metavar="SHARE",
        help="instead: the share of a text's words, from 0 to 1, that its summary has at least",
    )
    parser.add_argument(
        "--no-trigram-blocking",
        action="store_true",
        help="let sentences of a summary share three words in a row",
    )
    parser.add_argument("--max-length", type=int, help="most tokens of a sequence (default: as in training)")
    parser.add_argument("--batch-tokens", type=int, help="most positions of a batch (2048 on a CPU, 32768 on a GPU)")
    parser.add_argument("--device", help="where to compute (default: a GPU if there is one)")
    parser.add_argument(
        "--on-error",
        choices=("stop", "skip"),
        default="stop",
        help="at a bad line: stop (default), or write an entry with its number and the error, and go on",
    )
    parser.add_argument("--no-progress", action="store_true", help="show no progress on stderr")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Predict; 1 if lines were skipped."""
    from roberta_plugin.cli.interrupts import terminated_like_interrupted
    from roberta_plugin.prediction.predict import PredictSettings, predict

    settings = PredictSettings(
        model=args.model,
        task_kind=args.task_kind,
        input=None if args.input == "-" else Path(args.input),
        output=None if args.output == "-" else Path(args.output),
        format=args.format,
        text_column=args.text_column,
        text_pair_column=args.text_pair_column,
        id_column=args.id_column,
        data=args.data,
        tokenizer=args.tokenizer,
        head=args.head,
        max_length=args.max_length,
        batch_tokens=args.batch_tokens,
        device=args.device,
        on_error=args.on_error,
        top_k=args.top_k,
        pooling=args.pooling,
        null_threshold=args.null_threshold,
        valid_sequences=args.valid_sequences,
        threshold=args.threshold,
        num_sentences=args.num_sentences,
        length_share=args.length_share,
        no_trigram_blocking=args.no_trigram_blocking,
        show_progress=not args.no_progress,
    )
    with terminated_like_interrupted():
        result = predict(settings)
    if result.output is not None:
        print(f"{result.num_answers:,} answers ({result.task_kind}) in {result.seconds:.1f} s: {result.output}")
    if result.num_truncated:
        print(f"{result.num_truncated:,} records were cut to the model's length: 'truncated'.", file=sys.stderr)
    if result.num_errors:
        print(f"{result.num_errors:,} bad lines were skipped: see 'error' in their answers.", file=sys.stderr)
    return 1 if result.num_errors else 0
