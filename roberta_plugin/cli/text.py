"""`roberta tokenizer` and `roberta binarize`: text -> a tokenizer -> a data-bin for fairseq-train."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from roberta_plugin.cli.command import call_in_child, command
from roberta_plugin.data.binarize.pipeline import BinarizeSettings, DictionarySettings, build_vocabulary, warnings_about
from roberta_plugin.data.binarize.pipeline import binarize as write_split
from roberta_plugin.data.corpora import DEFAULT_ALPHA, SPLITS, find_corpora
from roberta_plugin.data.text_inputs import LineRules
from roberta_plugin.data.tokenizers import is_of_hugging_face, load_tokenizer
from roberta_plugin.data.tokenizers.additions import base_of
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
from roberta_plugin.data.tokenizers.figures import measure
from roberta_plugin.data.tokenizers.training import TokenizerSettings, train_tokenizer
from roberta_plugin.data.tokenizers.whitespace import is_meant
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.settings import REQUIRED, Checked, setting


@command(TokenizerSettings, LineRules, skip=("keep_spaces", "split_sentences"))
def train(settings: TokenizerSettings, rules: LineRules) -> int:
    """Trains a tokenizer on text. Writes the tokenizer's files and dict.txt, which lists its tokens in the order of the
    model's ids. Give the folder to `roberta binarize --tokenizer`.
    """
    on_wait = (lambda _: None) if settings.no_progress else WaitReport()
    name, size = call_in_child(_train, replace(settings, rules=rules), on_wait=on_wait)
    print(f"{settings.output_dir}: {name} of {size:,} tokens, and dict.txt")
    if size < settings.vocab_size and settings.kind != "whitespace":
        print(
            f"WARNING: the tokenizer has only {size:,} tokens, --vocab-size asks for {settings.vocab_size:,}: no more "
            "pairs occur often enough in the text. Give more text, or a smaller --vocab-size.",
            file=sys.stderr,
        )
    return 0


def _train(settings: TokenizerSettings) -> tuple[str, int]:
    listed = Vocabulary.load(settings.dictionary) if settings.dictionary else None
    tokenizer = train_tokenizer(settings, listed=listed)
    return tokenizer.name, len(tokenizer.symbols)


class WaitReport:
    """Prints a line at growing intervals while a library works that reports no progress itself."""

    def __init__(self) -> None:
        self._next = 60.0

    def __call__(self, seconds: float) -> None:
        """Print the elapsed time if a line is due."""
        if seconds >= self._next:
            self._next = min(seconds * 1.5, seconds + 600)
            print(f"tokenizer: training for {seconds / 60:.0f} min", file=sys.stderr, flush=True)


@dataclass(frozen=True, kw_only=True)
class ShowSettings(Checked):
    """The fields are options of `roberta tokenizer show`."""

    folder: Path = setting(
        REQUIRED, "folder with the tokenizer's files and dict.txt, or a model's name", flag="folder", gives="tokenizer"
    )
    text: str = setting(REQUIRED, "text to encode", flag="text")


@command(ShowSettings)
def show(settings: ShowSettings) -> int:
    """Shows how a tokenizer splits a text into tokens, with the tokenizer's and the model's ids."""
    tokenizer, vocabulary = load_tokenizer(settings.folder), Vocabulary.from_tokenizer(settings.folder)
    to_model = vocabulary.tokenizer_to_model(tokenizer)
    base = base_of(tokenizer)
    figures = measure(tokenizer, [settings.text])
    print("tokenizer id   model id   token")
    for index in tokenizer.encode(settings.text):
        token = repr(tokenizer.decode([index]))
        if "\ufffd" in token and isinstance(base, ByteLevelBpe) and index < len(base.symbols):
            token = f"'{base.decode([index], errors='backslashreplace')}'"  # bytes of a character, such as \xc3
        print(f"{index:>12}   {to_model[index]:>8}   {token}")
    if figures is not None:
        print(f"{figures.describe()}; `roberta check TEXT --tokenizer ...` compares tokenizers on a text")
    return 0


def _files(split: str) -> tuple[str, ...]:
    files: tuple[str, ...] = setting((), f"text of the split {split}", nargs="+", action="extend", metavar="FILE")
    return files


@dataclass(frozen=True, kw_only=True)
class Splits(Checked):
    """Texts to binarize, and the folder to write to."""

    train: tuple[str, ...] = _files("train")
    valid: tuple[str, ...] = _files("valid")
    test: tuple[str, ...] = _files("test")
    split: tuple[tuple[str, ...], ...] = setting(
        (), "a split with another name, and its text", nargs="+", action="append", metavar=("NAME", "FILE")
    )
    corpora: Path | None = setting(
        None,
        "instead of --train, --valid and --test: a folder with a folder for each corpus, such as a language, with "
        "train.txt, valid.txt, ...; each becomes a data-bin OUTPUT_DIR/NAME, all with one dictionary",
        metavar="DIR",
        excludes=("train", "valid", "test", "split"),
    )
    tokenizer: Path = setting(
        REQUIRED,
        "folder of the tokenizer, from `roberta tokenizer train`, a model's name (org/name), or whitespace: the "
        "symbols of --dict are the words of the text",
        gives="tokenizer",
    )
    dictionary: Path | None = setting(
        None,
        "dict.txt to use (default: the one in the tokenizer's folder, or of Hugging Face's files there; without one, "
        "it is made from the text of --train, as fairseq-preprocess does)",
        flag="--dict",
    )
    output_dir: Path = setting(REQUIRED, "folder to write to")
    no_progress: bool = setting(False, "show neither a progress bar nor progress lines")


@command(Splits, DictionarySettings, LineRules, BinarizeSettings)
def binarize(inputs: Splits, new: DictionarySettings, rules: LineRules, settings: BinarizeSettings) -> int:
    """Tokenizes text and writes {train,valid,test}.bin and .idx, dict.txt, the tokenizer's files and manifest.json. The
    text is UTF-8 with one item per line and a blank line between documents. Files may be compressed (.gz, .zst, .xz,
    .bz2). JSON Lines (.jsonl, or .json with one record per line), CSV, TSV, Parquet, Arrow and folders that the library
    datasets saved have a document in --text-column of each row. Quote patterns such as 'books/*.txt'; '-' is the
    standard input; URLs such as hf://, s3:// and https:// are read. The output equals fairseq's (its encoder and
    fairseq-preprocess) byte for byte. After an interruption, the same command resumes where it stopped; text from a
    pipe is read again from its beginning. At the end the disk briefly holds the tokens twice.
    """
    settings = replace(settings, rules=rules)
    corpora = files_by_corpus(inputs)
    training = {"train": [file for splits in corpora.values() for file in splits.get("train", ())]}
    if (rules.text_column, settings.delimiter) != (LineRules().text_column, BinarizeSettings().delimiter):
        files = [file for splits in corpora.values() for each in splits.values() for file in each]
        settings.check_used(source for file in dict.fromkeys(files) for source in settings.sources([file]))
    is_of_words = inputs.dictionary is not None and is_meant(inputs.tokenizer)
    symbols = Vocabulary.load(inputs.dictionary).symbols if inputs.dictionary and is_of_words else None
    tokenizer = load_tokenizer(inputs.tokenizer, symbols=symbols)
    vocabulary = choose_vocabulary(inputs, training if training["train"] else {}, tokenizer, new, settings)
    for name, splits in corpora.items():
        for split, files in splits.items():
            started, shown = time.monotonic(), f"{name}/{split}" if name else split
            manifest = write_split(
                files,
                split=split,
                tokenizer=tokenizer,
                vocabulary=vocabulary,
                destination=inputs.output_dir / name,
                settings=settings,
                progress=not inputs.no_progress,
            )
            print(summary(shown, manifest["splits"][split]["counts"], time.monotonic() - started), flush=True)
            for warning in warnings_about(manifest, split):
                print(f"WARNING: {shown}: {warning}", file=sys.stderr, flush=True)
    if inputs.corpora is not None:
        print(how_to_train(inputs.output_dir, corpora))
    return 0


def files_by_corpus(inputs: Splits) -> dict[str, dict[str, list[str]]]:
    """Files by corpus and split; the name of a single corpus is empty."""
    if inputs.corpora is None:
        return {"": files_by_split(inputs)}
    if inputs.output_dir.resolve().is_relative_to(inputs.corpora.resolve()):
        raise ValueError(
            f"--output-dir {inputs.output_dir} lies in --corpora {inputs.corpora}, where each folder is a corpus of "
            "text: name another folder."
        )
    return find_corpora(inputs.corpora)


def how_to_train(folder: Path, corpora: dict[str, dict[str, list[str]]]) -> str:
    """Arguments of fairseq-train for a mixture of these corpora, with a loss for each."""
    data = shlex.quote(",".join(str(folder / name) for name in corpora))
    subsets = ",".join(f"valid@{name}" for name, splits in corpora.items() if "valid" in splits)
    validation = f" --valid-subset valid,{subsets}" if subsets else " --disable-validation"
    return f"To train on all of them: fairseq-train {data} --corpus-alpha {DEFAULT_ALPHA}{validation} ..."


def choose_vocabulary(
    inputs: Splits,
    splits: dict[str, list[str]],
    tokenizer: Tokenizer,
    new: DictionarySettings,
    settings: BinarizeSettings,
) -> Vocabulary:
    """The dict.txt that the options name; otherwise an existing one, or one made from the training text."""
    makes_one = any(value is not None for value in asdict(new).values())
    if inputs.dictionary and makes_one:
        raise ValueError(
            "--dict names a dict.txt, but --threshold, --nwords and --padding-factor make a new one: give only one of "
            "the two."
        )
    if not makes_one:
        # fairseq does not reuse the dict.txt of an earlier split by itself, but all splits of a folder must share one.
        if inputs.dictionary:
            return Vocabulary.load(inputs.dictionary)
        for folder in (inputs.tokenizer, inputs.output_dir):
            if (folder / "dict.txt").is_file() or is_of_hugging_face(folder):
                return Vocabulary.from_tokenizer(folder)
    if "train" not in splits:
        raise ValueError(f"{inputs.tokenizer} has no dict.txt: name one with --dict, or give --train to make one from.")
    return build_vocabulary(
        splits["train"],
        tokenizer=tokenizer,
        settings=new,
        reading=settings,
        workers=settings.workers,
        progress=not inputs.no_progress,
    )


def files_by_split(inputs: Splits) -> dict[str, list[str]]:
    """Names of the splits and their files."""
    splits = {split: list(files) for split in SPLITS if (files := getattr(inputs, split))}
    for name, *files in inputs.split:
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
    bad = (
        f", {counts['bad_lines']:,} bad {'line' if counts['bad_lines'] == 1 else 'lines'} skipped"
        if counts["bad_lines"]
        else ""
    )
    return (
        f"{split}: {counts['tokens']:,} tokens in {counts['items']:,} lines ({counts['blank_lines']:,} blank), "
        f"{unknown:.3%} unknown{bad}; {megabytes:,.1f} MB of text in {seconds:.1f} s"
    )
