"""`roberta tokenizer`: train a tokenizer, or show how it splits a text."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from roberta_plugin.cli.interrupts import call_in_child, terminated_like_interrupted
from roberta_plugin.data.text_inputs import LineRules
from roberta_plugin.data.text_inputs_files import FORMATS
from roberta_plugin.data.tokenizers.training import TRAINERS
from roberta_plugin.settings import add_options, from_arguments


def add_parser(subparsers: Any) -> None:
    """Add `roberta tokenizer train` and `roberta tokenizer show`."""
    parser = subparsers.add_parser(
        "tokenizer",
        help="train a tokenizer, or show how it splits a text",
        description="Trains a tokenizer, or shows how one splits a text.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    train = actions.add_parser(
        "train",
        help="train a tokenizer on text files",
        description="Trains a tokenizer on text. Writes the tokenizer's files and dict.txt, which lists its tokens in "
        "the order of the model's ids. Give the folder to `roberta binarize --tokenizer`.",
    )
    train.add_argument(
        "--kind",
        choices=list(TRAINERS),
        default="byte_level_bpe",
        help="byte_level_bpe: as in RoBERTa, in GPT-2's format, encoder.json and vocab.bpe (default); sentencepiece: "
        "as in XLM-R, for many languages, sentencepiece.bpe.model; character_bpe: on words, as in BERT and in section "
        "4.4 of the paper, character_bpe.json",
    )
    train.add_argument(
        "--input", nargs="+", required=True, metavar="FILE", help="text files, quoted patterns, or - for standard input"
    )
    train.add_argument(
        "--vocab-size", type=int, default=50000, help="number of tokens, without <s> <pad> </s> <mask> (50000)"
    )
    train.add_argument("--output-dir", type=Path, required=True, help="folder to write to")
    train.add_argument(
        "--sample-megabytes",
        type=float,
        default=200,
        metavar="MB",
        help="train on this much text, spread evenly over the input, the same in every run; 0 for all of it (200). One "
        "MB of English needs about 1 MB of memory, one MB of Chinese or other text without spaces up to 90 MB",
    )
    train.add_argument(
        "--min-frequency", type=int, help="a pair must occur this often to become a token (2; not for sentencepiece)"
    )
    train.add_argument(
        "--format", choices=FORMATS, default="auto", help="format of the inputs: text or JSON Lines (auto: detect it)"
    )
    add_options(train, LineRules, skip=["keep_spaces", "split_sentences"])
    train.add_argument("--no-progress", action="store_true", help="show no progress")
    train.add_argument("--overwrite", action="store_true", help="replace an existing tokenizer")
    train.set_defaults(run=run_train)

    show = actions.add_parser(
        "show",
        help="show how a tokenizer splits a text",
        description="Shows how a tokenizer splits a text into tokens, with the tokenizer's and the model's ids.",
    )
    show.add_argument("folder", type=Path, help="folder with the tokenizer's files and dict.txt")
    show.add_argument("text", help="text to encode")
    show.set_defaults(run=run_show)


def run_train(args: argparse.Namespace) -> int:
    """Train a tokenizer and print its size."""
    from roberta_plugin.data.tokenizers import KINDS

    names = ("dict.txt", *(name for files, _ in KINDS for name in files))
    present = [name for name in names if (args.output_dir / name).exists()]
    if present and not args.overwrite:
        raise FileExistsError(
            f"{args.output_dir} already holds {present[0]}: write to another folder, or add --overwrite."
        )
    if args.sample_megabytes < 0:
        raise ValueError(f"--sample-megabytes must be 0 (all) or more, got {args.sample_megabytes}.")
    with terminated_like_interrupted():
        name, size = call_in_child(train, args, on_wait=(lambda _: None) if args.no_progress else Heartbeat())
    print(f"{args.output_dir}: {name} of {size:,} tokens, and dict.txt")
    if size < args.vocab_size:
        print(
            f"WARNING: the tokenizer has only {size:,} tokens, --vocab-size asks for {args.vocab_size:,}: no more "
            "pairs occur often enough in the text. Give more text, or a smaller --vocab-size.",
            file=sys.stderr,
        )
    return 0


def train(args: argparse.Namespace) -> tuple[str, int]:
    """Train a tokenizer; return its kind and its number of tokens."""
    more: dict[str, Any] = {}
    if args.min_frequency is not None:
        if args.kind == "sentencepiece":
            raise ValueError("--min-frequency is for byte_level_bpe and character_bpe; sentencepiece does not have it.")
        more["min_frequency"] = args.min_frequency
    tokenizer = TRAINERS[args.kind](
        args.input,
        vocab_size=args.vocab_size,
        folder=args.output_dir,
        rules=from_arguments(LineRules, vars(args)),
        text_format=args.format,
        sample_bytes=round(args.sample_megabytes * 1e6) or None,
        progress=not args.no_progress,
        **more,
    )
    return tokenizer.name, len(tokenizer.symbols)


class Heartbeat:
    """Prints a line at growing intervals while a library works that reports no progress itself."""

    def __init__(self) -> None:
        self._next = 60.0

    def __call__(self, seconds: float) -> None:
        """Print the elapsed time if a line is due."""
        if seconds >= self._next:
            self._next = min(seconds * 1.5, seconds + 600)
            print(f"tokenizer: training for {seconds / 60:.0f} min", file=sys.stderr, flush=True)


def run_show(args: argparse.Namespace) -> int:
    """Print the tokens of a text with their ids."""
    from roberta_plugin.data.tokenizers import load_tokenizer
    from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
    from roberta_plugin.data.vocabulary import Vocabulary

    tokenizer, vocabulary = load_tokenizer(args.folder), Vocabulary.load(args.folder / "dict.txt")
    to_model = vocabulary.tokenizer_to_model(tokenizer)
    print("tokenizer id   model id   token")
    for index in tokenizer.encode(args.text):
        token = repr(tokenizer.decode([index]))
        if "\ufffd" in token and isinstance(tokenizer, ByteLevelBpe):
            token = f"'{tokenizer.decode([index], errors='backslashreplace')}'"  # bytes of a character, such as \xc3
        print(f"{index:>12}   {to_model[index]:>8}   {token}")
    return 0
