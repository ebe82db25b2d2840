"""`roberta tokenizer`: train a tokenizer, give a model another one, or show how it splits a text."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from roberta_plugin.cli.interrupts import call_in_child, terminated_like_interrupted
from roberta_plugin.conversion.settings import ExtendSettings
from roberta_plugin.data.text_inputs import LineRules
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.tokenizers.additions import base_of
from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
from roberta_plugin.data.tokenizers.training import TokenizerSettings, train_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.settings import add_options, from_arguments


def define(parser: argparse.ArgumentParser) -> None:
    """Describe `roberta tokenizer train`, `extend` and `show`, and add their options."""
    parser.description = "Trains a tokenizer, gives a model another one, or shows how one splits a text."
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    train_parser = actions.add_parser(
        "train",
        help="train a tokenizer on text files",
        description="Trains a tokenizer on text. Writes the tokenizer's files and dict.txt, which lists its tokens in "
        "the order of the model's ids. Give the folder to `roberta binarize --tokenizer`.",
    )
    add_options(train_parser, TokenizerSettings)
    add_options(train_parser, LineRules, skip=["keep_spaces", "split_sentences"])
    extend = actions.add_parser(
        "extend",
        help="give a trained model new words, or another tokenizer",
        description="Writes a trained model with further words, or with another tokenizer: symbols that it has keep "
        "their embeddings, new ones begin with the mean of the pieces that they were before (Gee et al. 2022). The "
        "folder is then the tokenizer of `roberta binarize` and the model of --finetune-from-model.",
    )
    add_options(extend, ExtendSettings)
    show = actions.add_parser(
        "show",
        help="show how a tokenizer splits a text",
        description="Shows how a tokenizer splits a text into tokens, with the tokenizer's and the model's ids.",
    )
    show.add_argument("folder", type=Path, help="folder with the tokenizer's files and dict.txt")
    show.add_argument("text", help="text to encode")


@terminated_like_interrupted()
def run(args: argparse.Namespace) -> int:
    """Train, extend, or show."""
    if args.action == "show":
        return show_tokens(args.folder, args.text)
    if args.action == "extend":
        return extend_model(from_arguments(ExtendSettings, vars(args)))
    settings = from_arguments(TokenizerSettings, vars(args), rules=from_arguments(LineRules, vars(args)))
    name, size = call_in_child(train, settings, on_wait=(lambda _: None) if settings.no_progress else Heartbeat())
    print(f"{settings.output_dir}: {name} of {size:,} tokens, and dict.txt")
    if size < settings.vocab_size:
        print(
            f"WARNING: the tokenizer has only {size:,} tokens, --vocab-size asks for {settings.vocab_size:,}: no more "
            "pairs occur often enough in the text. Give more text, or a smaller --vocab-size.",
            file=sys.stderr,
        )
    return 0


def extend_model(settings: ExtendSettings) -> int:
    """Give a model another vocabulary, and say what its rows are."""
    from roberta_plugin.conversion.vocabulary_change import extend_vocabulary

    change = extend_vocabulary(settings)
    print(
        f"{change.folder}: {change.num_symbols:,} symbols, {change.num_kept:,} of them with their own row as before, "
        f"{change.num_from_pieces:,} with the mean of their pieces"
        + (f", {change.num_unknown:,} with the mean of all rows" if change.num_unknown else "")
    )
    if change.stays_here:
        print(
            f"note: The added tokens {', '.join(map(repr, change.stays_here))} have ids before the new pieces, which "
            "the files of transformers cannot express: this model cannot be exported for them."
        )
    return 0


def train(settings: TokenizerSettings) -> tuple[str, int]:
    """Train a tokenizer; return its kind and its number of tokens."""
    tokenizer = train_tokenizer(settings)
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


def show_tokens(folder: Path, text: str) -> int:
    """Print the tokens of a text with their ids."""
    tokenizer, vocabulary = load_tokenizer(folder), Vocabulary.load(folder / "dict.txt")
    to_model = vocabulary.tokenizer_to_model(tokenizer)
    base = base_of(tokenizer)
    print("tokenizer id   model id   token")
    for index in tokenizer.encode(text):
        token = repr(tokenizer.decode([index]))
        if "\ufffd" in token and isinstance(base, ByteLevelBpe) and index < len(base.symbols):
            token = f"'{base.decode([index], errors='backslashreplace')}'"  # bytes of a character, such as \xc3
        print(f"{index:>12}   {to_model[index]:>8}   {token}")
    return 0
