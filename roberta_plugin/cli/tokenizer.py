"""`roberta tokenizer`: train a tokenizer, or show how it splits a text."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from roberta_plugin.cli.interrupts import call_in_child, terminated_like_interrupted
from roberta_plugin.data.text_inputs import InputSettings, LineRules
from roberta_plugin.data.tokenizers import KINDS, load_tokenizer
from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
from roberta_plugin.data.tokenizers.training import TRAINERS
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.settings import REQUIRED, add_options, from_arguments, setting


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings(InputSettings):
    """How to train a tokenizer; the fields are options of `roberta tokenizer train`."""

    kind: str = setting(
        "byte_level_bpe",
        "byte_level_bpe: as in RoBERTa, in GPT-2's format, encoder.json and vocab.bpe; sentencepiece: as in XLM-R, for "
        "many languages, sentencepiece.bpe.model; character_bpe: on words, as in BERT and in section 4.4 of the paper, "
        "character_bpe.json",
        choices=tuple(TRAINERS),
    )
    input: tuple[str, ...] = setting(
        REQUIRED, "text files, quoted patterns, or - for standard input", nargs="+", metavar="FILE"
    )
    output_dir: Path = setting(REQUIRED, "folder to write to")
    vocab_size: int = setting(50000, "number of tokens, without <s> <pad> </s> <mask>")
    sample_megabytes: float = setting(
        200.0,
        "train on this much text, spread evenly over the input, the same in every run; 0 for all of it. One MB of "
        "English needs about 1 MB of memory, one MB of Chinese or other text without spaces up to 90 MB",
        metavar="MB",
        smallest=0,
    )
    min_frequency: int | None = setting(
        None, "a pair must occur this often to become a token (not for sentencepiece)", default_text=2
    )
    no_progress: bool = setting(False, "show no progress")
    overwrite: bool = setting(False, "replace an existing tokenizer")


def define(parser: argparse.ArgumentParser) -> None:
    """Describe `roberta tokenizer train` and `roberta tokenizer show`, and add their options."""
    parser.description = "Trains a tokenizer, or shows how one splits a text."
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    train_parser = actions.add_parser(
        "train",
        help="train a tokenizer on text files",
        description="Trains a tokenizer on text. Writes the tokenizer's files and dict.txt, which lists its tokens in "
        "the order of the model's ids. Give the folder to `roberta binarize --tokenizer`.",
    )
    add_options(train_parser, TokenizerSettings)
    add_options(train_parser, LineRules, skip=["keep_spaces", "split_sentences"])
    show = actions.add_parser(
        "show",
        help="show how a tokenizer splits a text",
        description="Shows how a tokenizer splits a text into tokens, with the tokenizer's and the model's ids.",
    )
    show.add_argument("folder", type=Path, help="folder with the tokenizer's files and dict.txt")
    show.add_argument("text", help="text to encode")


def run(args: argparse.Namespace) -> int:
    """Train, or show."""
    if args.action == "show":
        return show_tokens(args.folder, args.text)
    settings = from_arguments(TokenizerSettings, vars(args), rules=from_arguments(LineRules, vars(args)))
    folder = settings.output_dir
    names = ("dict.txt", *(name for files, _ in KINDS for name in files))
    present = [name for name in names if (folder / name).exists()]
    if present and not settings.overwrite:
        raise FileExistsError(f"{folder} already holds {present[0]}: write to another folder, or add --overwrite.")
    with terminated_like_interrupted():
        name, size = call_in_child(train, settings, on_wait=(lambda _: None) if settings.no_progress else Heartbeat())
    print(f"{folder}: {name} of {size:,} tokens, and dict.txt")
    if size < settings.vocab_size:
        print(
            f"WARNING: the tokenizer has only {size:,} tokens, --vocab-size asks for {settings.vocab_size:,}: no more "
            "pairs occur often enough in the text. Give more text, or a smaller --vocab-size.",
            file=sys.stderr,
        )
    return 0


def train(settings: TokenizerSettings) -> tuple[str, int]:
    """Train a tokenizer; return its kind and its number of tokens."""
    if settings.min_frequency is not None and settings.kind == "sentencepiece":
        raise ValueError("--min-frequency is for byte_level_bpe and character_bpe; sentencepiece does not have it.")
    tokenizer = TRAINERS[settings.kind](
        settings.input,
        vocab_size=settings.vocab_size,
        folder=settings.output_dir,
        rules=settings.rules,
        text_format=settings.text_format,
        sample_bytes=round(settings.sample_megabytes * 1e6) or None,
        progress=not settings.no_progress,
        **({} if settings.min_frequency is None else {"min_frequency": settings.min_frequency}),
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


def show_tokens(folder: Path, text: str) -> int:
    """Print the tokens of a text with their ids."""
    tokenizer, vocabulary = load_tokenizer(folder), Vocabulary.load(folder / "dict.txt")
    to_model = vocabulary.tokenizer_to_model(tokenizer)
    print("tokenizer id   model id   token")
    for index in tokenizer.encode(text):
        token = repr(tokenizer.decode([index]))
        if "\ufffd" in token and isinstance(tokenizer, ByteLevelBpe):
            token = f"'{tokenizer.decode([index], errors='backslashreplace')}'"  # bytes of a character, such as \xc3
        print(f"{index:>12}   {to_model[index]:>8}   {token}")
    return 0
