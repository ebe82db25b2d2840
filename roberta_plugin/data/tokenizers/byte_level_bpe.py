"""Byte-level BPE in GPT-2's format: encoder.json (pieces and ids) and vocab.bpe (merges, best first).

Ids equal those of fairseq's GPT-2 encoder on any text. Two engines compute them: gigatoken, which is fast, with bounded
memory, and the plain one below, which is the definition: GPT-2's pattern splits text into words, the bytes of each word
are merged by rank, and the results are cached. gigatoken's tables of letters and digits come from another Unicode
version than the `regex` module's, which defines the pattern. Therefore lines with characters newer than Python's own
tables go to the plain engine.

Example: merges "t h", "th e", "\u0120 c" (\u0120 stands for a space), best first. "the cat" is split into the words
"the" and " cat". t h e -> th e -> the; \u0120 c a t -> \u0120c a t. The ids are those of the pieces the, \u0120c, a, t.
"""

from __future__ import annotations

import hashlib
import heapq
import importlib
import importlib.util
import json
import os
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import regex  # type: ignore[import-untyped]
from numpy.typing import NDArray

from roberta_plugin.data.tokenizers.base import LocatedTokens, check_known, join_ids, locate_bytes
from roberta_plugin.files import atomic_write
from roberta_plugin.json_files import parse_json

FILES = ("encoder.json", "vocab.bpe")
PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
_ASCII = bytes(range(128))
_MAX_REMEMBERED_WORDS = 2**18
_LONGEST_REMEMBERED_WORD = 64  # characters


def _byte_characters() -> list[str]:
    """The printable character that represents each byte (256,): itself if printable, else one from 256 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


BYTE_CHARACTERS = _byte_characters()
_BYTE_OF_CHARACTER = {character: byte for byte, character in enumerate(BYTE_CHARACTERS)}


class ByteLevelBpe:
    """Byte-level BPE. It can encode any text, and `decode` restores it.

    Attributes:
        pieces: the piece of each id, bytes written as `BYTE_CHARACTERS`.
        merges: pairs of pieces, best first.
        symbols: symbol in dict.txt of each id, its number in decimal, as fairseq's encoder writes it.
    """

    name = "byte_level_bpe"

    def __init__(
        self, pieces: Sequence[str], merges: Sequence[tuple[str, str]], *, use_fast_engine: bool = True
    ) -> None:
        """Make a tokenizer.

        Raises:
            ValueError: if a byte or the result of a merge has no id.
        """
        self.pieces = list(pieces)
        self.merges = list(merges)
        self.symbols = [str(index) for index in range(len(self.pieces))]
        self._use_fast_engine = use_fast_engine
        self._ids = {piece: index for index, piece in enumerate(self.pieces)}
        self._ranks = {merge: rank for rank, merge in enumerate(self.merges)}
        self._remembered: dict[str, list[int]] = {}
        self._find_words = regex.compile(PATTERN).findall
        for character in BYTE_CHARACTERS:
            if character not in self._ids:
                raise ValueError(
                    f"encoder.json has no id for the byte character {character!r}: the file is incomplete."
                )
        for rank, (first, second) in enumerate(self.merges):
            if first + second not in self._ids:
                raise ValueError(
                    f"vocab.bpe, line {rank + 2}: {first + second!r} has no id in encoder.json: the files belong to "
                    "different tokenizers."
                )

    @classmethod
    def load(cls, folder: Path, *, use_fast_engine: bool = True) -> ByteLevelBpe:
        """Read encoder.json and vocab.bpe."""
        return read_files(folder / "encoder.json", folder / "vocab.bpe", use_fast_engine=use_fast_engine)

    def save(self, folder: Path) -> None:
        """Write encoder.json and vocab.bpe."""
        for name, content in zip(FILES, self._file_contents, strict=True):
            with atomic_write(folder / name) as file:
                file.write(content)

    def description(self) -> dict[str, Any]:
        """Kind, number of ids, and SHA-256 of the files as `save` writes them."""
        digests = {
            name: hashlib.sha256(content).hexdigest() for name, content in zip(FILES, self._file_contents, strict=True)
        }
        return {"kind": self.name, "num_ids": len(self.pieces), "sha256": digests}

    def encode(self, text: str) -> list[int]:
        """Ids of a text; line ends are ordinary characters.

        Raises:
            UnicodeEncodeError: if the text contains half of a surrogate pair, which has no UTF-8 bytes.
        """
        ids: list[int] = []
        for word in self._find_words(text):
            word_ids = self._remembered.get(word)
            if word_ids is None:
                word_ids = self._encode_word(word)
                if len(self._remembered) >= _MAX_REMEMBERED_WORDS:
                    self._remembered.clear()
                if len(word) <= _LONGEST_REMEMBERED_WORD:
                    self._remembered[word] = word_ids
            ids += word_ids
        return ids

    def encode_lines(self, lines: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Ids of all lines back to back, and the number of ids of each line."""
        if not lines:
            return join_ids([])
        if self._engine is None:
            return join_ids([self.encode(line) for line in lines])
        filled = [line for line in lines if line]
        text = "\n".join(filled).encode("utf-8")
        if young := _young_characters(text):
            return self._encode_lines_apart(lines, young)
        lengths = np.zeros(len(lines), dtype=np.int32)
        if not filled:
            return np.empty(0, dtype=np.int32), lengths
        ids, filled_lengths = self._engine.encode_lines(filled, text)
        lengths[[line != "" for line in lines]] = filled_lengths
        return ids, lengths

    def _encode_lines_apart(self, lines: Sequence[str], young: set[str]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """`encode_lines` if some lines have young characters: the plain engine encodes these, the fast one others."""
        is_young = np.array([not young.isdisjoint(line) for line in lines], dtype=np.bool_)
        old_ids, old_lengths = self.encode_lines([line for line, slow in zip(lines, is_young, strict=True) if not slow])
        young_ids, young_lengths = join_ids([self.encode(lines[index]) for index in np.flatnonzero(is_young).tolist()])
        lengths = np.empty(len(lines), dtype=np.int32)
        lengths[~is_young], lengths[is_young] = old_lengths, young_lengths
        ids = np.empty(len(old_ids) + len(young_ids), dtype=np.int32)
        of_young = np.repeat(is_young, lengths)
        ids[~of_young], ids[of_young] = old_ids, young_ids
        return ids, lengths

    def locate(self, text: str) -> LocatedTokens:
        """Ids of a text and their positions; a token that is part of a character covers the whole character."""
        ids, _ = self.encode_lines([text])
        return locate_bytes(text, ids, self._num_bytes[ids])

    def decode(self, ids: Sequence[int], *, errors: str = "replace") -> str:
        """Text of ids; bytes that are not valid UTF-8, such as half of a character, become U+FFFD as in fairseq.

        `errors` is as in `bytes.decode`.
        """
        check_known(ids, len(self.pieces))
        characters = "".join(self.pieces[index] for index in ids)
        return bytes(_BYTE_OF_CHARACTER[character] for character in characters).decode("utf-8", errors=errors)

    def word_starts(self) -> NDArray[np.bool_]:
        """True for ids that begin a word: their pieces begin with a space (number of ids,)."""
        space = BYTE_CHARACTERS[ord(" ")]
        return np.array([piece.startswith(space) for piece in self.pieces], dtype=np.bool_)

    def begins_word(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        """True for tokens of a text (N,) that begin a word of GPT-2's pattern (N,), which may be a punctuation mark."""
        text = self.decode(ids.tolist(), errors="surrogateescape")
        words = np.cumsum([0, *(len(word.encode("utf-8", "surrogateescape")) for word in self._find_words(text))])
        num_bytes = self._num_bytes[ids]
        return np.isin(np.cumsum(num_bytes) - num_bytes, words)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(ByteLevelBpe, use_fast_engine=self._use_fast_engine), (self.pieces, self.merges)

    @cached_property
    def _num_bytes(self) -> NDArray[np.int32]:
        """Number of bytes of the text that each id represents (number of ids,)."""
        return np.array([len(piece) for piece in self.pieces], dtype=np.int32)

    @cached_property
    def _engine(self) -> GigatokenEngine | None:
        """The fast engine; None if gigatoken is not installed or not wanted."""
        if not self._use_fast_engine:
            return None
        try:
            return GigatokenEngine(self._ids, self.merges)
        except ImportError:
            return None

    def _encode_word(self, word: str) -> list[int]:
        """Merge all occurrences of the pair of lowest rank, from left to right, until no pair has a rank.

        `tokenizers.models.BPE` takes a better pair that a merge has created before the merge's other occurrences.
        """
        pieces = [BYTE_CHARACTERS[byte] for byte in word.encode("utf-8")]  # "" where one was joined to its left
        before = list(range(-1, len(pieces) - 1))  # position of the piece to the left, -1 for none
        after = list(range(1, len(pieces) + 1))  # position of the piece to the right, len(pieces) for none
        heap: list[tuple[int, int, str, str]] = []  # rank, position of the first piece, the pair

        def consider(position: int) -> None:
            if position >= 0 and after[position] < len(pieces):
                first, second = pieces[position], pieces[after[position]]
                rank = self._ranks.get((first, second))
                if rank is not None:
                    heapq.heappush(heap, (rank, position, first, second))

        for position in range(len(pieces) - 1):
            consider(position)
        while heap:
            # Merge all occurrences of a pair before any pair that these merges create.
            same_rank = [heapq.heappop(heap)]
            while heap and heap[0][0] == same_rank[0][0]:
                same_rank.append(heapq.heappop(heap))
            for _, position, first, second in same_rank:
                following = after[position]
                if pieces[position] != first or following >= len(pieces) or pieces[following] != second:
                    continue  # a merge to the left has used one of the two
                pieces[position], pieces[following] = first + second, ""
                after[position] = after[following]
                if after[position] < len(pieces):
                    before[after[position]] = position
                consider(position)
                consider(before[position])
        return [self._ids[piece] for piece in pieces if piece]

    @cached_property
    def _file_contents(self) -> tuple[bytes, bytes]:
        merges = "".join(f"{first} {second}\n" for first, second in self.merges)
        return json.dumps(self._ids).encode(), f"#version: 0.2\n{merges}".encode()


def read_files(encoder_json: Path, vocab_bpe: Path, *, use_fast_engine: bool = True) -> ByteLevelBpe:
    """The tokenizer in two files in GPT-2's format, of any names."""
    pieces, merges = _read_pieces(encoder_json), _read_merges(vocab_bpe)
    try:
        return ByteLevelBpe(pieces, merges, use_fast_engine=use_fast_engine)
    except ValueError as error:
        raise ValueError(f"In {encoder_json.parent}: {error}") from error


def _young_characters(text: bytes) -> set[str]:
    """Characters missing from Python's Unicode tables, which the engines may classify differently."""
    others = text.translate(None, _ASCII).decode("utf-8")
    return {character for character in set(others) if unicodedata.category(character) == "Cn"}


def _read_pieces(path: Path) -> list[str]:
    try:
        ids = parse_json(path.read_bytes())
    except ValueError as error:
        raise ValueError(
            f"{path} is not valid JSON ({error}): it must be in the format of GPT-2's encoder.json."
        ) from error
    if (
        not isinstance(ids, dict)
        or not set(map(type, ids.values())) <= {int}
        or sorted(ids.values()) != [*range(len(ids))]
    ):
        raise ValueError(f"{path} must map pieces to the ids 0, 1, 2, ... without gaps, as GPT-2's encoder.json does.")
    pieces = sorted(ids, key=ids.__getitem__)
    if not all(pieces) or not _BYTE_OF_CHARACTER.keys() >= set("".join(pieces)):
        wrong = next(piece for piece in pieces if not piece or not _BYTE_OF_CHARACTER.keys() >= set(piece))
        raise ValueError(f"{path}: the piece {wrong!r} (id {ids[wrong]}) is not written in GPT-2's byte characters.")
    return pieces


def _read_merges(path: Path) -> list[tuple[str, str]]:
    try:
        head, *lines = path.read_bytes().decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not valid UTF-8 ({error}): it must be in the format of GPT-2's vocab.bpe."
        ) from error
    # GPT-2's own reader drops the first line and everything after the last line end.
    if not head.startswith("#version") or not lines or lines.pop():
        raise ValueError(
            f"{path} must begin with a line '#version: 0.2' and end with a line end, like GPT-2's vocab.bpe."
        )
    pairs = [tuple(line.split()) for line in lines]
    if set(map(len, pairs)) <= {2} and len(set(pairs)) == len(pairs):
        return pairs  # type: ignore[return-value]
    merges: list[tuple[str, str]] = []
    seen: set[tuple[str, ...]] = set()
    for number, line in enumerate(lines, start=2):
        pair = tuple(line.split())
        if len(pair) != 2 or pair in seen:
            problem = "occurs twice" if pair in seen else "is not a pair of pieces"
            raise ValueError(f"{path}, line {number}: the merge {line!r} {problem}.")
        seen.add(pair)
        merges.append((pair[0], pair[1]))
    return merges


_MAX_GROWTH = 150 * 2**20  # bytes that the process may grow before the engine is recreated
LINE_END = "\u010a"  # as GPT-2 writes the byte 10
_MEMORY_OF_PROCESS = Path("/proc/self/statm")


class GigatokenEngine:
    """Byte-level BPE with GPT-2's pattern.

    gigatoken 0.10 caches the tokens of every word it has seen and never frees any: on text with ever new words it grows
    by six bytes per byte of text. It is therefore recreated (0.1 s) when the process has grown too much. The ids do not
    depend on the cache. This is issue 36 of github.com/marcelroed/gigatoken: when a release has its remedy (pull
    request 46, `set_max_cache_bytes`), that replaces the watch on memory here, and setup.py may name the release.
    """

    def __init__(self, ids: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> None:
        """Make an engine.

        Raises:
            ImportError: if gigatoken, or what it needs, is not installed.
        """
        self._line_end_id = ids[LINE_END]
        self._json = json.dumps(_hugging_face_json(ids, merges))
        self._start()

    def encode_lines(self, lines: Sequence[str], text: bytes) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Ids of all lines back to back, and the number of ids of each line.

        Args:
            lines: one or more lines that are not empty.
            text: the same lines as UTF-8 with a line end between them.
        """
        if _resident_bytes() > self._start_bytes + _MAX_GROWTH:
            self._start()
        if text.count(b"\n") != len(lines) - 1 or lines != list(map(str.strip, lines)):
            importlib.import_module("awkward")  # gigatoken's own import swallows Ctrl-C and MemoryError
            layout = self._tokenizer.encode_batch(list(lines), parallel=False).layout
            lengths = np.diff(np.asarray(layout.offsets.data))
            return np.asarray(layout.content.data).view(np.int32), lengths.astype(np.int32)
        # Twice as fast: without white space around it, a line end is a word and one token, found nowhere else.
        ids = self._tokenizer.encode(text).view(np.int32)
        is_end = ids == self._line_end_id
        lengths = np.diff(np.flatnonzero(is_end), prepend=-1, append=len(ids)) - 1
        return ids[~is_end], lengths.astype(np.int32)

    def _start(self) -> None:
        import gigatoken

        if importlib.util.find_spec("awkward") is None:
            raise ImportError("gigatoken is installed without awkward, which it needs")
        self._tokenizer: Any = None  # frees the old one first
        self._tokenizer = gigatoken.Tokenizer.from_json(self._json)
        self._start_bytes = _resident_bytes()


def _resident_bytes() -> int:
    """Resident memory of this process; 0 on systems without /proc."""
    try:
        return int(_MEMORY_OF_PROCESS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        return 0


def _hugging_face_json(ids: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The tokenizer in the format of Hugging Face's tokenizers, which gigatoken reads."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {
        "type": "BPE",
        "vocab": dict(ids),
        "merges": list(merges),
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
    }
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "truncation": None,
        "padding": None,
        "model": model,
    }
