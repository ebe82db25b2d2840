"""`roberta binarize`: text files -> a data-bin for fairseq-train."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_plugin.cli.interrupts import terminated_like_interrupted
from roberta_plugin.data.binarize.checks import MAX_UNKNOWN
from roberta_plugin.data.text_inputs import LineRules
from roberta_plugin.data.text_inputs_files import FORMATS
from roberta_plugin.settings import add_options, from_arguments

if TYPE_CHECKING:
    from roberta_plugin.data.tokenizers.base import Tokenizer
    from roberta_plugin.data.vocabulary import Vocabulary

_SPLITS = ("train", "valid", "test")
_DICTIONARY_OPTIONS = ("threshold", "nwords", "padding_factor")


def add_parser(subparsers: Any) -> None:
    """Add `roberta binarize` and its options."""
    parser = subparsers.add_parser(
        "binarize",
        help="convert text files into the binary files that fairseq-train reads",
        description="Tokenizes text and writes {train,valid,test}.bin and .idx, dict.txt, the tokenizer's files and "
        "manifest.json. The text is UTF-8 with one item per line and a blank line between documents. Files may be "
        "compressed (.gz, .zst, .xz, .bz2) or JSON Lines (.jsonl, or .json with one record per line). Quote patterns "
        "such as 'books/*.txt'; '-' is the standard input. The output equals that of fairseq's own encoder and "
        "fairseq-preprocess, byte for byte. After an interruption, the same command resumes where it stopped; text "
        "from a pipe is read again from its beginning. At the end the disk briefly holds the tokens twice.",
    )
    for split in _SPLITS:
        parser.add_argument(
            f"--{split}", nargs="+", action="extend", default=[], metavar="FILE", help=f"text of the split {split}"
        )
    parser.add_argument(
        "--split",
        nargs="+",
        action="append",
        default=[],
        metavar=("NAME", "FILE"),
        help="a split with another name, and its text",
    )
    parser.add_argument(
        "--tokenizer", type=Path, required=True, help="folder of the tokenizer, from `roberta tokenizer train`"
    )
    parser.add_argument(
        "--dict",
        type=Path,
        help="dict.txt to use (default: the one in the tokenizer's folder; if there is none, it is made from the text "
        "of --train, as fairseq-preprocess does)",
    )
    parser.add_argument(
        "--threshold", type=int, help="make dict.txt from --train without symbols that occur less often than this"
    )
    parser.add_argument(
        "--nwords", type=int, help="make dict.txt from --train with this many symbols, <s> <pad> </s> <unk> included"
    )
    parser.add_argument(
        "--padding-factor", type=int, help="make dict.txt from --train and pad its size to a multiple of this (8)"
    )
    parser.add_argument("--output-dir", type=Path, required=True, help="folder to write to")
    parser.add_argument("--workers", type=int, help="number of processes (default: the number of usable cores)")
    add_options(parser, LineRules)
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="auto",
        help="format of the inputs: text or JSON Lines (auto: by file name, and by content for .json files)",
    )
    parser.add_argument(
        "--blank-line-after-files",
        action="store_true",
        help="end each text file with a blank line, so that its last document does not run into the next file",
    )
    parser.add_argument(
        "--max-unknown",
        type=float,
        default=MAX_UNKNOWN,
        metavar="SHARE",
        help=f"refuse a split if a larger share of its tokens is <unk> ({MAX_UNKNOWN})",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace existing splits")
    parser.add_argument(
        "--part-bytes",
        type=int,
        help="bytes of text per part, the unit of work that a stopped run does not repeat (default: a sixteenth of the "
        "text, between 1 and 16 MiB)",
    )
    parser.add_argument("--no-progress", action="store_true", help="show neither a progress bar nor progress lines")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Binarize the splits one after the other."""
    from roberta_plugin.data.binarize.checks import warnings_about
    from roberta_plugin.data.binarize.pipeline import binarize
    from roberta_plugin.data.tokenizers import load_tokenizer

    splits = splits_of(args)
    tokenizer = load_tokenizer(args.tokenizer)
    rules = from_arguments(LineRules, vars(args))
    with terminated_like_interrupted():
        vocabulary = vocabulary_of(args, splits, tokenizer, rules)
        for split, files in splits.items():
            started = time.monotonic()
            manifest = binarize(
                files,
                split=split,
                tokenizer=tokenizer,
                vocabulary=vocabulary,
                destination=args.output_dir,
                workers=args.workers,
                progress=not args.no_progress,
                rules=rules,
                blank_line_after_files=args.blank_line_after_files,
                overwrite=args.overwrite,
                part_bytes=args.part_bytes,
                text_format=args.format,
                max_unknown=args.max_unknown,
            )
            print(summary(split, manifest["splits"][split]["counts"], time.monotonic() - started), flush=True)
            for warning in warnings_about(manifest, split):
                print(f"WARNING: {split}: {warning}", file=sys.stderr, flush=True)
    return 0


def vocabulary_of(
    args: argparse.Namespace, splits: dict[str, list[str]], tokenizer: Tokenizer, rules: LineRules
) -> Vocabulary:
    """The dict.txt that the options name; otherwise an existing one, or one made from the training text."""
    from roberta_plugin.data.binarize.dictionary import build_vocabulary
    from roberta_plugin.data.vocabulary import Vocabulary

    options = {name: getattr(args, name) for name in _DICTIONARY_OPTIONS if getattr(args, name) is not None}
    if args.dict and options:
        raise ValueError(
            "--dict names a dict.txt, but --threshold, --nwords and --padding-factor make a new one: give only one of "
            "the two."
        )
    if not options:
        # fairseq does not reuse the dict.txt of an earlier split by itself, but all splits of a folder must share one.
        for path in filter(None, [args.dict, args.tokenizer / "dict.txt", args.output_dir / "dict.txt"]):
            if path == args.dict or path.is_file():
                return Vocabulary.load(path)
    if "train" not in splits:
        raise ValueError(f"{args.tokenizer} has no dict.txt: name one with --dict, or give --train to make one from.")
    return build_vocabulary(
        splits["train"],
        tokenizer=tokenizer,
        workers=args.workers,
        progress=not args.no_progress,
        rules=rules,
        text_format=args.format,
        **options,
    )


def splits_of(args: argparse.Namespace) -> dict[str, list[str]]:
    """Names of the splits and their files."""
    splits = {split: getattr(args, split) for split in _SPLITS if getattr(args, split)}
    for name, *files in args.split:
        if name in splits or not files:
            raise ValueError(f"--split {name} needs an unused name and at least one file after it.")
        splits[name] = files
    if sum(files.count("-") for files in splits.values()) > 1:
        raise ValueError("The standard input can be read only once: give '-' for one split only.")
    if not splits:
        raise ValueError("Nothing to binarize: give text with --train, --valid, --test or --split.")
    return splits


def summary(split: str, counts: dict[str, int], seconds: float) -> str:
    """One line about a split."""
    megabytes = counts["text_bytes"] / 1e6
    unknown = counts["unknown"] / max(1, counts["tokens"] - counts["items"])
    bad = f", {counts['bad_lines']:,} bad lines left out" if counts["bad_lines"] else ""
    return (
        f"{split}: {counts['tokens']:,} tokens in {counts['items']:,} lines ({counts['blank_lines']:,} blank), "
        f"{unknown:.3%} unknown{bad}; {megabytes:,.1f} MB of text in {seconds:.1f} s"
    )
