"""`roberta vocabulary`: train a tokenizer, or look at one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

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
    train.add_argument("--input", nargs="+", required=True, metavar="FILE", help="text files or quoted patterns")
    train.add_argument("--vocab-size", type=int, default=50000, help="tokens of the tokenizer (50000)")
    train.add_argument("--destination", type=Path, required=True, help="folder to write to")
    train.add_argument("--overwrite", action="store_true", help="replace a tokenizer that is there already")
    train.set_defaults(run=run_train)

    show = actions.add_parser("show", help="show how a text is cut", description="Shows how a text is cut into tokens.")
    show.add_argument("folder", type=Path, help="folder of the tokenizer, with dict.txt")
    show.add_argument("text", help="text to encode")
    show.set_defaults(run=run_show)


def run_train(args: argparse.Namespace) -> int:
    """Train and say what came out."""
    if (args.destination / "dict.txt").exists() and not args.overwrite:
        raise FileExistsError(f"{args.destination} holds a dict.txt: write to another folder, or add --overwrite.")
    tokenizer = TRAINERS[args.kind](args.input, vocab_size=args.vocab_size, folder=args.destination)
    print(f"{args.destination}: {tokenizer.name} of {len(tokenizer.symbols):,} tokens, and dict.txt")
    return 0


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
