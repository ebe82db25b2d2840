"""`roberta vocabulary`: train a tokenizer, or look at one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from roberta_plugin.cli.interrupts import call_in_child, terminated_like_interrupted
from roberta_plugin.data.text_inputs_files import FORMATS
from roberta_plugin.data.tokenizers.training import TRAINERS


def add_parser(subparsers: Any) -> None:
    """Add `roberta vocabulary train` and `roberta vocabulary show`."""
    parser = subparsers.add_parser(
        "vocabulary", help="train a tokenizer, or look at one", description="Train a tokenizer, or look at one."
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    train = actions.add_parser(
        "train",
        help="train a tokenizer on text files",
        description="Trains a tokenizer and writes its files and dict.txt, which `roberta binarize --tokenizer` takes.",
    )
    train.add_argument(
        "--kind",
        choices=list(TRAINERS),
        default="byte_level_bpe",
        help="byte_level_bpe: RoBERTa's, GPT-2's format (default); sentencepiece: XLM-R's, for many languages; "
        "character_bpe: BERT-like, of the paper's section 4.4",
    )
    train.add_argument("--input", nargs="+", required=True, metavar="FILE", help="text files or quoted patterns, or -")
    train.add_argument("--vocab-size", type=int, default=50000, help="tokens of the tokenizer (50000)")
    train.add_argument("--destination", type=Path, required=True, help="folder to write to")
    train.add_argument(
        "--sample-megabytes",
        type=float,
        default=200,
        metavar="MB",
        help="train on so much text, spread evenly over the input, the same in every run; 0 for all of it (200). A MB "
        "of English takes about 1 MB of memory, a MB of Chinese or other text without spaces up to 80 MB",
    )
    train.add_argument(
        "--min-frequency", type=int, help="how often a pair must occur to become a token (2; not for sentencepiece)"
    )
    train.add_argument(
        "--format", choices=FORMATS, default="auto", help="what the inputs hold: text or JSON Lines (auto: finds out)"
    )
    train.add_argument(
        "--json-field", default="text", help="field of a record of JSON Lines that holds the text (text)"
    )
    train.add_argument(
        "--skip-bad-lines", action="store_true", help="leave out lines that are no UTF-8 or no such record"
    )
    train.add_argument("--no-progress", action="store_true", help="show no progress")
    train.add_argument("--overwrite", action="store_true", help="replace a tokenizer that is there already")
    train.set_defaults(run=run_train)

    show = actions.add_parser("show", help="show how a text is cut", description="Shows how a text is cut into tokens.")
    show.add_argument("folder", type=Path, help="folder of the tokenizer, with dict.txt")
    show.add_argument("text", help="text to encode")
    show.set_defaults(run=run_show)


def run_train(args: argparse.Namespace) -> int:
    """Train and say what came out."""
    from roberta_plugin.data.tokenizers import KINDS

    present = [name for name in ("dict.txt", *(name for files, _ in KINDS for name in files))]
    present = [name for name in present if (args.destination / name).exists()]
    if present and not args.overwrite:
        raise FileExistsError(f"{args.destination} holds a {present[0]}: write to another folder, or add --overwrite.")
    if args.sample_megabytes < 0:
        raise ValueError(f"--sample-megabytes must be 0 (all) or more, got {args.sample_megabytes}.")
    with terminated_like_interrupted():
        name, size = call_in_child(train, args, on_wait=(lambda _: None) if args.no_progress else Heartbeat())
    print(f"{args.destination}: {name} of {size:,} tokens, and dict.txt")
    if size < args.vocab_size:
        print(
            f"WARNING: {size:,} tokens came out where --vocab-size asks for {args.vocab_size:,}: the text has no more "
            "that occur often enough. Give more text, or a smaller --vocab-size.",
            file=sys.stderr,
        )
    return 0


def train(args: argparse.Namespace) -> tuple[str, int]:
    """Train, and return the kind and the number of tokens."""
    from roberta_plugin.data.text_inputs import LineRules

    more: dict[str, Any] = {}
    if args.min_frequency is not None:
        if args.kind == "sentencepiece":
            raise ValueError(
                "--min-frequency is for byte_level_bpe and character_bpe; sentencepiece has no such thing."
            )
        more["min_frequency"] = args.min_frequency
    tokenizer = TRAINERS[args.kind](
        args.input,
        vocab_size=args.vocab_size,
        folder=args.destination,
        rules=LineRules(json_field=args.json_field, skip_bad_lines=args.skip_bad_lines),
        text_format=args.format,
        sample_bytes=round(args.sample_megabytes * 1e6) or None,
        progress=not args.no_progress,
        **more,
    )
    return tokenizer.name, len(tokenizer.symbols)


class Heartbeat:
    """A line every now and then while a library works that says nothing itself, further and further apart."""

    def __init__(self) -> None:
        self._next = 60.0

    def __call__(self, seconds: float) -> None:
        """Say how long it has been."""
        if seconds >= self._next:
            self._next = min(seconds * 1.5, seconds + 600)
            print(f"vocabulary: training since {seconds / 60:.0f} min", file=sys.stderr, flush=True)


def run_show(args: argparse.Namespace) -> int:
    """Print the tokens of a text with their ids."""
    from roberta_plugin.data.tokenizers import load_tokenizer
    from roberta_plugin.data.vocabulary import Vocabulary

    tokenizer, vocabulary = load_tokenizer(args.folder), Vocabulary.load(args.folder / "dict.txt")
    to_model = vocabulary.tokenizer_to_model(tokenizer)
    print("tokenizer id   model id   token")
    for index in tokenizer.encode(args.text):
        print(f"{index:>12}   {to_model[index]:>8}   {tokenizer.decode([index])!r}")
    return 0
