"""Train tokenizers on text files; each function writes the tokenizer's files and dict.txt into a folder."""

from __future__ import annotations

import io
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.text_inputs import FAIRSEQ_RULES, LineRules
from roberta_plugin.data.text_inputs_files import TextFormat, find_inputs
from roberta_plugin.data.text_inputs_sample import TextSample
from roberta_plugin.data.tokenizers import KINDS
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS, ByteLevelBpe
from roberta_plugin.data.tokenizers.character_bpe import UNKNOWN, WORD_START, CharacterBpe
from roberta_plugin.data.tokenizers.sentencepiece import CONTROLS, SentencePiece
from roberta_plugin.files import atomic_write
from roberta_plugin.progress import Progress

# fairseq-preprocess pads a dictionary to a multiple of 8, its four special symbols included.
_NUM_SPECIALS = 4
_PADDING_FACTOR = 8
# The number of threads affects the rounding of sums, so it is the same on all machines.
_SENTENCEPIECE_THREADS = 8


def train_byte_level_bpe(
    files: Sequence[str | os.PathLike[str]],
    *,
    vocab_size: int,
    folder: str | os.PathLike[str],
    min_frequency: int = 2,
    rules: LineRules = FAIRSEQ_RULES,
    text_format: TextFormat = "auto",
    sample_bytes: int | None = None,
    progress: bool = False,
) -> ByteLevelBpe:
    """Train byte-level BPE in GPT-2's format and write encoder.json, vocab.bpe and dict.txt.

    Args:
        files: text files or patterns, as `roberta binarize` takes them.
        vocab_size: number of tokenizer ids, 256 bytes included; fewer if the text has no more pairs. The model's
            vocabulary adds <s> <pad> </s> <unk> <mask> and padding symbols up to a multiple of 8.
        folder: where to write; created if missing.
        min_frequency: how often a pair must occur to be merged.
        rules: what counts as a line of text.
        text_format: "text" or "jsonl" for all files; "auto" detects it.
        sample_bytes: train on about this much of the text, spread evenly; None for all of it.
        progress: show a progress bar.

    Raises:
        ValueError: if `vocab_size` is too small, a file is not text, or all files are empty.
    """
    from tokenizers import Tokenizer as HuggingFaceTokenizer
    from tokenizers import models, pre_tokenizers, trainers

    if vocab_size < len(BYTE_CHARACTERS):
        raise ValueError(f"--vocab-size must be at least 256, the number of bytes, got {vocab_size}.")
    sample = _open_sample(files, rules, text_format, sample_bytes)
    trained = HuggingFaceTokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        initial_alphabet=BYTE_CHARACTERS,
        special_tokens=[],
        show_progress=progress and sys.stderr.isatty(),
    )
    with Progress("read", sample.num_bytes, is_shown=progress) as bar:
        trained.train_from_iterator(sample.lines(progress=bar), trainer)
    model = json.loads(trained.to_str())["model"]
    tokenizer = ByteLevelBpe(
        sorted(model["vocab"], key=model["vocab"].__getitem__), [(first, second) for first, second in model["merges"]]
    )
    _write(tokenizer, count_ids(tokenizer, sample), Path(folder))
    return tokenizer


def train_sentencepiece(
    files: Sequence[str | os.PathLike[str]],
    *,
    vocab_size: int,
    folder: str | os.PathLike[str],
    character_coverage: float = 0.9995,
    rules: LineRules = FAIRSEQ_RULES,
    text_format: TextFormat = "auto",
    sample_bytes: int | None = None,
    progress: bool = False,
) -> SentencePiece:
    """Train SentencePiece's unigram model, as in XLM-R, and write sentencepiece.bpe.model and dict.txt.

    The trainer holds all lines in memory: use `sample_bytes` for a large corpus.

    Args:
        files: text files or patterns, as `roberta binarize` takes them.
        vocab_size: number of tokenizer ids, <unk> <s> </s> included; fewer if the text is too small.
        folder: where to write; created if missing.
        character_coverage: share of the characters of the text that get a piece; the others are unknown.
        rules: what counts as a line of text.
        text_format: "text" or "jsonl" for all files; "auto" detects it.
        sample_bytes: train on about this much of the text, spread evenly; None for all of it.
        progress: show a progress bar while reading.

    Raises:
        ValueError: if the text or `vocab_size` is too small, a file is not text, or all files are empty.
    """
    import sentencepiece

    sample = _open_sample(files, rules, text_format, sample_bytes)
    model = io.BytesIO()
    try:
        with Progress("read", sample.num_bytes, is_shown=progress) as bar:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(line for lines in sample.lines(progress=bar) for line in lines if line),
                model_writer=model,
                model_type="unigram",
                vocab_size=vocab_size,
                hard_vocab_limit=False,
                character_coverage=character_coverage,
                num_threads=_SENTENCEPIECE_THREADS,
                minloglevel=2,
            )
    except RuntimeError as error:
        raise ValueError(f"SentencePiece could not be trained with --vocab-size {vocab_size}: {error}") from error
    tokenizer = SentencePiece(model.getvalue())
    counts = count_ids(tokenizer, sample)
    _write(tokenizer, counts, Path(folder), order=range(len(CONTROLS), len(counts)), padding_factor=1)
    return tokenizer


def train_character_bpe(
    files: Sequence[str | os.PathLike[str]],
    *,
    vocab_size: int,
    folder: str | os.PathLike[str],
    min_frequency: int = 2,
    max_characters: int = 1000,
    language: str = "en",
    rules: LineRules = FAIRSEQ_RULES,
    text_format: TextFormat = "auto",
    sample_bytes: int | None = None,
    progress: bool = False,
) -> CharacterBpe:
    """Train character-level BPE on words by Moses' rules and write character_bpe.json and dict.txt.

    Args:
        files: text files or patterns, as `roberta binarize` takes them.
        vocab_size: number of tokenizer ids, <unk> included; section 4.4 of the paper uses 30K.
        folder: where to write; created if missing.
        min_frequency: how often a pair must occur to be merged.
        max_characters: number of characters that get a piece, the most frequent ones; the others are unknown.
        language: language code for Moses' rules.
        rules: what counts as a line of text.
        text_format: "text" or "jsonl" for all files; "auto" detects it.
        sample_bytes: train on about this much of the text, spread evenly; None for all of it.
        progress: show a progress bar.

    Raises:
        ValueError: if `vocab_size` is too small for the characters, or a file is not text.
    """
    import tokenizers
    from tokenizers import models, pre_tokenizers, trainers

    sample = _open_sample(files, rules, text_format, sample_bytes)
    characters = most_frequent_characters(sample, max_characters)
    if vocab_size < len(characters) + 2:
        raise ValueError(
            f"--vocab-size must be at least {len(characters) + 2}, for the {len(characters)} most frequent characters "
            f"of the text, got {vocab_size}."
        )
    trained = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN))
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        initial_alphabet=[WORD_START, *characters],
        limit_alphabet=len(characters) + 1,  # the trainer chooses between equally frequent ones at random
        special_tokens=[UNKNOWN],
        show_progress=progress and sys.stderr.isatty(),
    )
    cut = CharacterBpe(trained.to_str(), language=language)
    with Progress("read", sample.num_bytes, is_shown=progress) as bar:
        trained.train_from_iterator(
            ([" ".join(cut.words(line)) for line in lines] for lines in sample.lines(progress=bar)), trainer
        )
    tokenizer = CharacterBpe(trained.to_str(), language=language)
    counts = count_ids(tokenizer, sample)
    unknown_id = tokenizer.symbols.index(UNKNOWN)
    _write(tokenizer, counts, Path(folder), order=[index for index in by_frequency(counts) if index != unknown_id])
    return tokenizer


def _open_sample(
    files: Sequence[str | os.PathLike[str]], rules: LineRules, text_format: TextFormat, sample_bytes: int | None
) -> TextSample:
    sample = TextSample(find_inputs(files, text_format=text_format), max_bytes=sample_bytes, rules=rules)
    if not any(line and not line.isspace() for lines in sample.lines() for line in lines):
        names = ", ".join(os.fspath(name) for name in files)
        raise ValueError(f"{names}: there is no text to train a tokenizer on, only blank lines or nothing.")
    return sample


def most_frequent_characters(sample: TextSample, number: int) -> list[str]:
    """The most frequent characters of the text, without white space; ties in Unicode order."""
    counts: Counter[str] = Counter()
    for lines in sample.lines():
        counts.update("".join(lines))
    characters = sorted((character for character in counts if not character.isspace()), key=lambda c: (-counts[c], c))
    return [character for character in characters if character != WORD_START][:number]


def count_ids(tokenizer: Tokenizer, sample: TextSample) -> NDArray[np.int64]:
    """Frequency of each tokenizer id in the text (number of ids,)."""
    counts = np.zeros(len(tokenizer.symbols), dtype=np.int64)
    for lines in sample.lines():
        counts += np.bincount(tokenizer.encode_lines(lines)[0], minlength=len(counts))
    return counts


def _write(
    tokenizer: Tokenizer,
    counts: NDArray[np.int64],
    folder: Path,
    *,
    order: Sequence[int] | None = None,
    padding_factor: int = _PADDING_FACTOR,
) -> None:
    """Write the tokenizer's files, then dict.txt: symbols in the given order, by default the most frequent first."""
    folder.mkdir(parents=True, exist_ok=True)
    # dict.txt is removed first and written last, so a folder with a dict.txt is complete. Files of another kind are
    # removed, or the folder would hold two tokenizers.
    for name in ("dict.txt", *(name for files, _ in KINDS for name in files)):
        (folder / name).unlink(missing_ok=True)
    tokenizer.save(folder)
    listed = by_frequency(counts) if order is None else order
    num_made_up = -(len(listed) + _NUM_SPECIALS) % padding_factor
    rows = itertools.chain(
        (f"{tokenizer.symbols[index]} {counts[index]}\n" for index in listed),
        (f"madeupword{number:04d} 0\n" for number in range(num_made_up)),
    )
    with atomic_write(folder / "dict.txt", "w") as file:
        file.writelines(rows)


def by_frequency(counts: NDArray[np.int64]) -> list[int]:
    """Ids, the most frequent first; ties in ascending order."""
    return [int(index) for index in np.argsort(-counts, kind="stable")]


TRAINERS: dict[str, Callable[..., Tokenizer]] = {
    "byte_level_bpe": train_byte_level_bpe,
    "sentencepiece": train_sentencepiece,
    "character_bpe": train_character_bpe,
}
