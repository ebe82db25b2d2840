"""`roberta binarize`: text files -> a data-bin for fairseq-train."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

_SPLITS = ("train", "valid", "test")


def add_parser(subparsers: Any) -> None:
    """Add `roberta binarize` and its options."""
    parser = subparsers.add_parser(
        "binarize",
        help="turn text files into the binary files that fairseq-train reads",
        description="Tokenizes text and writes {train,valid,test}.bin and .idx, dict.txt, the tokenizer's files and "
        "manifest.json. Text is UTF-8, a line an item, a blank line between documents; files may be compressed (.gz, "
        ".zst, .xz) or JSON Lines (.jsonl), and patterns such as 'books/*.txt' may be given in quotes. The files are "
        "those of fairseq's own encoder and fairseq-preprocess, byte for byte. Interrupted? The same command goes on "
        "where it stopped.",
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
        help="a split of another name, and its text",
    )
    parser.add_argument(
        "--tokenizer", type=Path, required=True, help="folder of the tokenizer: encoder.json and vocab.bpe, ..."
    )
    parser.add_argument("--dict", type=Path, help="dict.txt to use (default: the one in the tokenizer's folder)")
    parser.add_argument("--destination", type=Path, required=True, help="folder to write to")
    parser.add_argument("--workers", type=int, help="processes (default: as many as there are processors)")
    parser.add_argument(
        "--keep-spaces",
        action="store_true",
        help="keep white space at both ends of lines, which fairseq's encoder strips: better for code and verse, but "
        "no longer the same bytes",
    )
    parser.add_argument("--json-field", default="text", help="field of a .jsonl record that holds the text (text)")
    parser.add_argument(
        "--blank-line-after-files",
        action="store_true",
        help="end each text file with a blank line, so that its last document does not run into the next file",
    )
    parser.add_argument(
        "--skip-bad-lines",
        action="store_true",
        help="leave out and count lines that are no UTF-8 or no such record (default: stop there)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace splits that are there already")
    parser.add_argument(
        "--part-bytes",
        type=int,
        help="bytes of text that a worker does at a time and that a stopped run need not do again (default: a "
        "sixteenth of the text, between 1 and 16 MiB)",
    )
    parser.add_argument("--no-progress", action="store_true", help="show no progress bar")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Binarize the splits one after the other."""
    from roberta_plugin.data.binarize import binarize
    from roberta_plugin.data.text_inputs import LineRules
    from roberta_plugin.data.tokenizers import load_tokenizer
    from roberta_plugin.data.vocabulary import Vocabulary

    splits = splits_of(args)
    tokenizer = load_tokenizer(args.tokenizer)
    vocabulary = Vocabulary.load(args.dict or args.tokenizer / "dict.txt")
    for split, files in splits.items():
        started = time.monotonic()
        manifest = binarize(
            files,
            split=split,
            tokenizer=tokenizer,
            vocabulary=vocabulary,
            destination=args.destination,
            workers=args.workers,
            progress=not args.no_progress,
            rules=LineRules(
                keep_spaces=args.keep_spaces, json_field=args.json_field, skip_bad_lines=args.skip_bad_lines
            ),
            blank_line_after_files=args.blank_line_after_files,
            overwrite=args.overwrite,
            part_bytes=args.part_bytes,
        )
        print(summary(split, manifest["splits"][split]["counts"], time.monotonic() - started), flush=True)
    return 0


def splits_of(args: argparse.Namespace) -> dict[str, list[str]]:
    """Names of the splits and their files."""
    splits = {split: getattr(args, split) for split in _SPLITS if getattr(args, split)}
    for name, *files in args.split:
        if name in splits or not files:
            raise ValueError(f"--split {name} needs a name that is not used yet, and at least one file after it.")
        splits[name] = files
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
