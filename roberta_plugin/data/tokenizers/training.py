"""Train a tokenizer on text files; the tokenizer's files and dict.txt go into a folder.

It is trained on a reproducible sample of a corpus: pieces spread evenly over all of it. Of plain files only the sampled
pieces are read, of Parquet and Arrow the sampled row groups if they are small, and other files from end to end. The
length of a pipe is unknown, so its sample is its beginning, kept in memory because a pipe can be read only once.

Example: max_bytes = 1 MB of files with 4 MB -> every fourth piece of 64 KB, the same ones in every run.

With several corpora (--corpora), each has its smoothed share of the sample; the pieces of a small one may be repeated.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.corpora import DEFAULT_ALPHA, find_corpora, smoothed_shares
from roberta_plugin.data.rounding import ceil_div
from roberta_plugin.data.text_inputs import (
    InputSettings,
    LineRules,
    count_lines,
    lines_of,
    num_lines_before,
    read_blocks,
)
from roberta_plugin.data.text_inputs_columnar import groups_of
from roberta_plugin.data.text_inputs_files import TextInput
from roberta_plugin.data.text_inputs_lines import BadLineError
from roberta_plugin.data.tokenizers import file_names
from roberta_plugin.data.tokenizers.additions import with_additions
from roberta_plugin.data.tokenizers.base import MADE_UP, UNKNOWN, Tokenizer
from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS, ByteLevelBpe
from roberta_plugin.data.tokenizers.sentencepiece import CONTROLS, SentencePiece
from roberta_plugin.data.tokenizers.whitespace import Whitespace, is_word, words_of
from roberta_plugin.files import hidden_folder, leftovers, sync_folder, write_text
from roberta_plugin.progress import Progress
from roberta_plugin.record import option_name
from roberta_plugin.registry import TOKENIZERS
from roberta_plugin.settings import REQUIRED, setting

# Symbols of a model, <s> <pad> </s> <unk> and <mask> included, are a multiple of this: products with 8 n columns are
# fast on a GPU. (fairseq-preprocess counts without <mask>, which its task adds.) SentencePiece gets no made-up symbols,
# because an export's Unigram model would find them in texts.
_NUM_SPECIALS = 5
_PADDING_FACTOR = 8
# The number of threads affects the rounding of sums, so it is the same on all machines.
_SENTENCEPIECE_THREADS = 8
MIN_FREQUENCY = 2
_STAGED = "tokenizer"  # in the name of the hidden folder in which they are written


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings(InputSettings):
    """How to train a tokenizer; the fields with help texts are options of `roberta tokenizer train`."""

    kind: str = setting(
        "byte_level_bpe",
        "; ".join(f"{kind}: {entry.about}" for kind, entry in TOKENIZERS.items()),
        choices=lambda: tuple(TOKENIZERS),
    )
    input: tuple[str, ...] = setting(
        (), "text files, URLs, quoted patterns, or - for standard input", nargs="+", metavar="FILE"
    )
    corpora: Path | None = setting(
        None,
        "instead of --input: a folder with a folder for each corpus, such as a language, whose files train.txt, "
        "train.1.jsonl.gz, ... are read",
        metavar="DIR",
    )
    dictionary: Path | None = setting(
        None,
        "for whitespace, instead of text: a dict.txt of fairseq, whose symbols are the words",
        flag="--dict",
        metavar="FILE",
        goes_with={"kind": ("whitespace",)},
        excludes=("input", "corpora"),
    )
    alpha: float | None = setting(
        None,
        "with --corpora: share of a corpus in the sample, its size to this power; XLM-R's is 0.3, 1 is by size",
        smallest=0,
        largest=1,
        default_text=DEFAULT_ALPHA,
        goes_with={"corpora": ()},
    )
    output_dir: Path = setting(REQUIRED, "folder to write to")
    vocab_size: int = setting(50000, "number of tokens, without <s> <pad> </s> <mask>; fewer if the text is too small")
    sample_megabytes: float = setting(
        200.0,
        "train on this much text, spread evenly over the input; 0: all. One MB of English needs about 1 MB of memory, "
        "one of Chinese up to 90",
        metavar="MB",
        smallest=0,
    )
    min_frequency: int | None = setting(
        None,
        "a pair, or of whitespace a word, must occur this often to become a token (not for sentencepiece)",
        goes_with={"kind": lambda: tuple(kind for kind, entry in TOKENIZERS.items() if entry.has_frequency)},
        default_text=MIN_FREQUENCY,
        smallest=1,
    )
    add_prefix_space: bool = setting(
        False,
        "of byte-level BPE: put a space in front of each text, so that a word is the same token at the beginning as "
        "elsewhere (BabyBERTa)",
        goes_with={"kind": ("byte_level_bpe",)},
    )
    no_progress: bool = setting(False, "show no progress")
    overwrite: bool = setting(False, "replace an existing tokenizer")
    character_coverage: float = 0.9995
    """For sentencepiece: share of the text's characters that get a piece; the others are unknown."""
    max_characters: int = 1000
    """For a BPE of characters: number of characters with a piece, the most frequent ones; the others are unknown."""
    language: str = "en"
    """For a BPE of characters: language code for Moses' rules."""


class Listed(Protocol):
    """A dict.txt: its symbols and its content, as `Vocabulary` has them."""

    symbols: list[str]

    def as_text(self) -> str:
        """The content of the file."""
        ...


def train_tokenizer(settings: TokenizerSettings, *, listed: Listed | None = None) -> Tokenizer:
    """Train a tokenizer, and write its files and dict.txt; `listed` is what --dict names.

    Raises:
        ValueError: if the text or `vocab_size` is too small, a file is not text, or `min_frequency` is given for
            SentencePiece.
        FileExistsError: if the folder has a tokenizer, without `overwrite`.
    """
    if settings.dictionary is None and bool(settings.input) == (settings.corpora is not None):
        raise ValueError("Give the text to train on as --input FILE ... or as --corpora DIR, one of the two.")
    folder = settings.output_dir
    present = [name for name in _files() if (folder / name).exists()]
    is_unfinished = "dict.txt" not in present and leftovers(folder / _STAGED)
    if present and not is_unfinished and not settings.overwrite:
        raise FileExistsError(f"{folder} already holds {present[0]}: write to another folder, or add --overwrite.")
    if settings.dictionary is not None:
        _check_taken_as_it_is(settings)
        assert listed is not None
        words = Whitespace.of_symbols(listed.symbols)
        _write_files(words, listed.as_text(), folder)
        return words
    sample = _sample_of(settings)
    if not any(line and not line.isspace() for lines in sample.lines() for line in lines):
        names = str(settings.corpora or ", ".join(settings.input))
        raise ValueError(f"{names}: there is no text to train a tokenizer on, only blank lines or nothing.")
    tokenizer: Tokenizer = TOKENIZERS.load(settings.kind, "train")(sample, settings)
    counts = count_ids(tokenizer, sample)
    if isinstance(tokenizer, SentencePiece):
        _write(tokenizer, counts, folder, order=range(len(CONTROLS), len(counts)), padding_factor=1)
    else:
        by_frequency = np.argsort(-counts, kind="stable")  # ties in ascending order
        unknown = tokenizer.symbols.index(UNKNOWN) if UNKNOWN in tokenizer.symbols else -1
        _write(tokenizer, counts, folder, order=by_frequency[by_frequency != unknown].tolist())
    return tokenizer


def _files() -> tuple[str, ...]:
    return ("dict.txt", *file_names())


def _check_taken_as_it_is(settings: TokenizerSettings) -> None:
    kept = {"kind", "dictionary", "output_dir", "overwrite", "no_progress"}
    usual = TokenizerSettings(output_dir=settings.output_dir)
    for item in fields(settings):
        if item.name not in kept and getattr(settings, item.name) != getattr(usual, item.name):
            raise ValueError(
                f"{option_name(item.name)} has no effect with --dict, which is taken as it is: leave it out."
            )


def _sample_of(settings: TokenizerSettings) -> TextSample:
    max_bytes = round(settings.sample_megabytes * 1e6) or None
    if settings.corpora is None:
        inputs = settings.sources(settings.input)
        settings.check_used(inputs)
        return TextSample(inputs, max_bytes=max_bytes, rules=settings.rules)
    groups = {name: settings.sources(splits["train"]) for name, splits in find_corpora(settings.corpora).items()}
    settings.check_used(source for group in groups.values() for source in group)
    alpha = DEFAULT_ALPHA if settings.alpha is None else settings.alpha
    sample = TextSample(
        [source for sources in groups.values() for source in sources],
        max_bytes=max_bytes,
        rules=settings.rules,
        groups=list(groups.values()),
        alpha=alpha,
    )
    for name, share, size in zip(groups, sample.group_shares, sample.group_bytes, strict=True):
        if not size:
            raise ValueError(
                f"{settings.corpora / name}: there is no text in the files train.*: add some, or move it away."
            )
        if not settings.no_progress:
            sys.stderr.write(f"{name}: {size / 1e6:,.1f} MB, {share:.1%} of the sample (alpha {alpha:g})\n")
    return sample


def train_byte_level_bpe(sample: TextSample, settings: TokenizerSettings) -> Tokenizer:
    """Merges of the most frequent pairs, from single bytes on."""
    from tokenizers import Tokenizer as HuggingFaceTokenizer
    from tokenizers import models, pre_tokenizers, trainers

    if settings.vocab_size < len(BYTE_CHARACTERS):
        raise ValueError(f"--vocab-size must be at least 256, the number of bytes, got {settings.vocab_size}.")
    trained = HuggingFaceTokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=settings.add_prefix_space)
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocab_size,
        min_frequency=settings.min_frequency or MIN_FREQUENCY,
        initial_alphabet=BYTE_CHARACTERS,
        special_tokens=[],
        show_progress=not settings.no_progress and sys.stderr.isatty(),
    )
    with Progress("read", sample.num_bytes, is_shown=not settings.no_progress) as bar:
        trained.train_from_iterator(sample.lines(progress=bar), trainer)
    model = json.loads(trained.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
    tokenizer = ByteLevelBpe(pieces, [(first, second) for first, second in model["merges"]])
    return with_additions(tokenizer, [], add_prefix_space=settings.add_prefix_space)


def train_sentencepiece(sample: TextSample, settings: TokenizerSettings) -> SentencePiece:
    """The unigram model; the trainer holds all lines in memory."""
    import sentencepiece

    model = io.BytesIO()
    try:
        with Progress("read", sample.num_bytes, is_shown=not settings.no_progress) as bar:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(line for lines in sample.lines(progress=bar) for line in lines if line),
                model_writer=model,
                model_type="unigram",
                vocab_size=settings.vocab_size,
                hard_vocab_limit=False,
                character_coverage=settings.character_coverage,
                num_threads=_SENTENCEPIECE_THREADS,
                minloglevel=2,
            )
    except RuntimeError as error:
        size = settings.vocab_size
        raise ValueError(f"SentencePiece could not be trained with --vocab-size {size}: {error}") from error
    return SentencePiece(model.getvalue())


def train_whitespace(sample: TextSample, settings: TokenizerSettings) -> Whitespace:
    """The most frequent words."""
    counts: Counter[str] = Counter()
    with Progress("read", sample.num_bytes, is_shown=not settings.no_progress) as bar:
        for lines in sample.lines(progress=bar):
            for line in lines:
                counts.update(words_of(line))
    least = settings.min_frequency or MIN_FREQUENCY
    words = [
        word for word, count in counts.items() if count >= least and is_word(word) and not word.startswith(MADE_UP)
    ]
    if not words:
        raise ValueError(f"No word of the text occurs {least} times: give more text, or a smaller --min-frequency.")
    return Whitespace(sorted(words, key=lambda word: (-counts[word], word))[: settings.vocab_size])


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
    order: Sequence[int],
    padding_factor: int = _PADDING_FACTOR,
) -> None:
    """Write the tokenizer's files, and dict.txt with the symbols in the given order."""
    num_made_up = -(len(order) + _NUM_SPECIALS) % padding_factor
    rows = [f"{tokenizer.symbols[index]} {counts[index]}\n" for index in order]
    made_up = [f"madeupword{number:04d} 0\n" for number in range(num_made_up)]
    _write_files(tokenizer, "".join([*rows, *made_up]), folder)


def _write_files(tokenizer: Tokenizer, dictionary: str, folder: Path) -> None:
    with hidden_folder(folder / _STAGED) as staged:
        tokenizer.save(staged)
        write_text(staged / "dict.txt", dictionary)
        # dict.txt is removed first and comes last, so a folder with a dict.txt is complete. Files of another kind are
        # removed, or the folder would hold two tokenizers.
        for name in _files():
            (folder / name).unlink(missing_ok=True)
        for path in sorted(staged.iterdir(), key=lambda path: path.name == "dict.txt"):
            os.replace(path, folder / path.name)
        sync_folder(folder)


_PIECE_BYTES = 2**16
_LARGEST_PIECE_BYTES = 2**22  # of a row group; larger ones would make a sample of few pieces
_ARCHIVES_TO_LOOK_INTO = 16
_BYTES_TO_LOOK_INTO = 2**20


class TextSample:
    """About `max_bytes` of text from `sources`, in order; all of it if there is less.

    Attributes:
        total_bytes: bytes of text in all sources; for compressed files an estimate.
        num_bytes: bytes in the sample.
        group_bytes: bytes of text in each of the `groups`, and `group_shares` their shares of the sample.

    Args:
        sources: the files and pipes.
        max_bytes: bytes of the sample; None for all of the text.
        rules: how lines are read.
        groups: sources of each corpus, without pipes.
        alpha: exponent of the shares of these corpora; see `smoothed_shares`.
    """

    def __init__(
        self,
        sources: Sequence[TextInput],
        *,
        max_bytes: int | None,
        rules: LineRules,
        groups: Sequence[Sequence[TextInput]] = (),
        alpha: float = 1.0,
    ) -> None:
        self._sources = sources
        self._rules = rules
        self._kept: dict[str, list[bytes]] = {}
        room = max_bytes
        for source in sources:
            if source.is_stream:
                self._kept[source.path] = _beginning(source, room)
                room = room if room is None else max(0, room - sum(map(len, self._kept[source.path])))
        from_pipes = sum(len(block) for blocks in self._kept.values() for block in blocks)
        of_files = _estimate_bytes([source for source in sources if not source.is_stream])
        self._share = 1.0 if room is None or of_files <= room else room / of_files
        self._shares: dict[str, float] = {}  # by path, where they are not all the same; above 1, pieces are repeated
        self.group_bytes = [_estimate_bytes(group) for group in groups]
        self.group_shares = smoothed_shares(self.group_bytes, alpha) if groups else []
        for group, size, share in zip(groups, self.group_bytes, self.group_shares, strict=True):
            for source in group:
                self._shares[source.path] = share * self._share * of_files / max(1, size)
        self.total_bytes = from_pipes + of_files
        self.num_bytes = from_pipes + round(self._share * of_files)

    @property
    def is_whole(self) -> bool:
        """True if the sample is the whole text, except for pipes."""
        return self._share == 1.0 and not self._shares

    def lines(self, *, progress: Progress | None = None) -> Iterator[list[str]]:
        """Lines of the sample, in lists; the same in every call."""
        owed, num_bytes = 0.0, 0
        for source in self._sources:
            for start, end, line, size, block in self._pieces(source):
                owed += self._shares.get(source.path, self._share) * size
                while size and owed * 2 >= size:  # take a piece as soon as more than half of it is owed
                    owed -= size
                    first = line
                    for part in read_blocks(source, start=start, end=end) if block is None else [block]:
                        yield self._lines_of(source, start, first, part)
                        first += count_lines(part, source)
                        num_bytes += len(part)
                        if progress is not None:
                            progress.show(num_bytes)

    def _pieces(self, source: TextInput) -> Iterator[tuple[int, int | None, int, int, bytes | None]]:
        """Bounds as of `read_blocks`, first line, number of bytes and, if already read, text of each piece."""
        is_sampled = self._shares.get(source.path, self._share) != 1
        if is_sampled and source.is_columnar:
            groups = groups_of(source)
            if max((group.num_bytes for group in groups), default=0) <= _LARGEST_PIECE_BYTES:
                yield from ((number, number + 1, 1, group.num_bytes, None) for number, group in enumerate(groups))
                return
        elif is_sampled and not source.is_sequential:
            size = source.size
            edges = [*range(0, size, _PIECE_BYTES), size]
            yield from ((start, end, 1, end - start, None) for start, end in itertools.pairwise(edges))
            return
        line = 1
        blocks = self._kept.get(source.path)
        block_bytes = _BYTES_TO_LOOK_INTO if self.is_whole else _PIECE_BYTES
        for block in read_blocks(source, block_bytes=block_bytes) if blocks is None else blocks:
            yield 0, None, line, len(block), block
            line += count_lines(block, source)

    def _lines_of(self, source: TextInput, start: int, line: int, block: bytes) -> list[str]:
        try:
            return lines_of(block, source=source, first_line=line, rules=self._rules)[0]
        except BadLineError as error:
            raise error.after(num_lines_before(source, start)) from None


def _beginning(source: TextInput, max_bytes: int | None) -> list[bytes]:
    blocks: list[bytes] = []
    for block in read_blocks(source):
        blocks.append(block)
        if max_bytes is not None and sum(map(len, blocks)) >= max_bytes:
            break
    return blocks


def _estimate_bytes(sources: Sequence[TextInput]) -> int:
    """Bytes of text; the ratio of compressed files is estimated from the beginnings of some of them."""
    columns = sum(group.num_bytes for source in sources if source.is_columnar for group in groups_of(source))
    plain = columns + sum(source.size for source in sources if not (source.suffix or source.is_columnar))
    archives = [source for source in sources if source.suffix]
    if not archives:
        return plain
    num_read = num_bytes = 0
    step = ceil_div(len(archives), _ARCHIVES_TO_LOOK_INTO)

    def on_read(count: int) -> None:
        nonlocal num_read
        num_read += count

    for source in archives[::step]:
        for block in read_blocks(source, on_read=on_read):
            num_bytes += len(block)
            if num_bytes >= _BYTES_TO_LOOK_INTO:
                break
    compressed = sum(source.size for source in archives)
    return plain + round(compressed * num_bytes / max(1, num_read))
