"""A reproducible sample of a corpus: pieces spread evenly over all of it. Used to train tokenizers.

Of plain files only the sampled pieces are read; compressed files are read from end to end. The length of a pipe is
unknown, so its sample is its beginning, kept in memory because a pipe can be read only once.

Example: max_bytes = 1 MB of files with 4 MB -> every fourth piece of 64 KB, the same ones in every run.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence

from roberta_plugin.data.rounding import ceil_div
from roberta_plugin.data.text_inputs import BadLineError, LineRules, count_lines, lines_of, read_blocks
from roberta_plugin.data.text_inputs_files import TextInput
from roberta_plugin.progress import Progress

_PIECE_BYTES = 2**16
_ARCHIVES_TO_LOOK_INTO = 16
_BYTES_TO_LOOK_INTO = 2**20


class TextSample:
    """About `max_bytes` of text from `sources`, in order; all of it if there is less.

    Attributes:
        total_bytes: bytes of text in all sources; for compressed files an estimate.
        num_bytes: bytes in the sample.
    """

    def __init__(self, sources: Sequence[TextInput], *, max_bytes: int | None, rules: LineRules) -> None:
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
        self.total_bytes = from_pipes + of_files
        self.num_bytes = from_pipes + round(self._share * of_files)

    @property
    def is_whole(self) -> bool:
        """Whether the sample is the whole text, except for pipes."""
        return self._share == 1.0

    def lines(self, *, progress: Progress | None = None) -> Iterator[list[str]]:
        """Lines of the sample, in lists; the same in every call."""
        owed, num_bytes = 0.0, 0
        for source in self._sources:
            for start, line, size, block in self._pieces(source):
                owed += self._share * size
                if owed * 2 < size:  # take a piece as soon as more than half of it is owed
                    continue
                owed -= size
                for part in _blocks(source, start, size) if block is None else [block]:
                    yield self._lines_of(source, start, line, part)
                    line += count_lines(part)
                    num_bytes += len(part)
                    if progress is not None:
                        progress.show(num_bytes)

    def _pieces(self, source: TextInput) -> Iterator[tuple[int, int, int, bytes | None]]:
        """First byte, first line, number of bytes and, if already read, text of each piece."""
        if not source.is_sequential and self._share < 1:
            size = os.path.getsize(source.path)
            edges = [*range(0, size, _PIECE_BYTES), size]
            yield from ((start, 1, end - start, None) for start, end in itertools.pairwise(edges))
            return
        line = 1
        blocks = self._kept.get(source.path)
        block_bytes = _BYTES_TO_LOOK_INTO if self._share == 1 else _PIECE_BYTES
        for block in read_blocks(source, block_bytes=block_bytes) if blocks is None else blocks:
            yield 0, line, len(block), block
            line += count_lines(block)

    def _lines_of(self, source: TextInput, start: int, line: int, block: bytes) -> list[str]:
        try:
            return lines_of(block, source=source, first_line=line, rules=self._rules)[0]
        except BadLineError as error:
            before = sum(map(count_lines, read_blocks(source, end=start))) if start else 0
            raise BadLineError(error.path, before + error.line, error.reason, error.remedy) from None


def _blocks(source: TextInput, start: int, size: int) -> Iterator[bytes]:
    return read_blocks(source, start=start, end=start + size)


def _beginning(source: TextInput, max_bytes: int | None) -> list[bytes]:
    blocks: list[bytes] = []
    for block in read_blocks(source):
        blocks.append(block)
        if max_bytes is not None and sum(map(len, blocks)) >= max_bytes:
            break
    return blocks


def _estimate_bytes(sources: Sequence[TextInput]) -> int:
    """Bytes of text; the ratio of compressed files is estimated from the beginnings of some of them."""
    plain = sum(os.path.getsize(source.path) for source in sources if not source.suffix)
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
    compressed = sum(os.path.getsize(source.path) for source in archives)
    return plain + round(compressed * num_bytes / max(1, num_read))
