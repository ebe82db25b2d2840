"""The fast engine of byte-level BPE: the gigatoken library, with bounded memory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAX_GROWTH = 150 * 2**20  # bytes that the process may grow before the engine is recreated
LINE_END = "\u010a"  # as GPT-2 writes the byte 10
_MEMORY_OF_PROCESS = Path("/proc/self/statm")


class GigatokenEngine:
    """Byte-level BPE with GPT-2's pattern.

    gigatoken caches the tokens of every word it has seen and never frees any: on text with ever new words it grows by
    six bytes per byte of text. It is therefore recreated (0.1 s) when the process has grown too much. The ids do not
    depend on the cache.
    """

    def __init__(self, ids: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> None:
        """Make an engine.

        Raises:
            ImportError: if gigatoken is not installed.
        """
        self._line_end_id = ids[LINE_END]
        self._json = json.dumps(_hugging_face_json(ids, merges))
        self._start()

    def encode_lines(self, lines: Sequence[str], text: bytes) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Ids of all lines back to back, and the number of ids of each line.

        Args:
            lines: one line or more, none of them empty.
            text: the same lines as UTF-8 with a line end between them.
        """
        if _resident_bytes() > self._start_bytes + _MAX_GROWTH:
            self._start()
        if text.count(b"\n") != len(lines) - 1 or lines != list(map(str.strip, lines)):
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
