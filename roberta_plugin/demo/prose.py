"""Docstrings -> paragraphs of plain English, one per line.

Stage of `roberta_plugin/demo/__init__.py`. Simple rules, in this order: remove code; remove headings, bullets and the
names before descriptions of parameters; remove markup; keep only paragraphs that read as prose.

Example: ":param x: The value of `x` that every later call of this function uses." -> "The value of x that every later
call of this function uses."
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

MIN_WORDS = 6
MIN_WORD_SHARE = 0.75  # share of words among the space-separated parts of a paragraph

_UNDERLINE = re.compile(r"^\s*([-=~^*+#\"'`.:])\1{2,}\s*$")
# Possible beginnings of an entry: `.. note::`, `:param x:`, a bullet, a number, `name (type):`
_ENTRY_MARKS = (
    re.compile(r"^\s*\.\.(?:\s+\[\w+\])?(?:\s+[\w-]+::(?:\s+[\d.]+$)?)?(?:\s+|$)"),
    re.compile(r"^\s*[:@](?:param|type|arg|return|rtype|raise|keyword|var|ivar|cvar)\w*\b[^:]*:\s*"),
    re.compile(r"^\s*(?:[-*+]|\(?(?:\d{1,2}|[a-z])[.)])\s+"),
    re.compile(r"^\s+\*{0,2}`{0,2}[\w.]+`{0,2}\*{0,2}\s*(?:\(.*?\))?:\s+"),
)
_NUMPY_PARAMETER = re.compile(r"^\s*\*{0,2}\w+(?:,\s*\*{0,2}\w+)*\s+:(?:\s|$)")  # `x : array_like`: nothing to keep
_ROLE = re.compile(r":[\w:+-]+:`[~!]?([^`<]*?)(?:\s*<[^`]*>)?`")
_QUOTED = re.compile(r"`{1,2}([^`]+)`{1,2}_{0,2}")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,2})([^*\s](?:[^*]*[^*\s])?)\1(?![\w*])")
_CITATION = re.compile(r"\s*\[[\w.#*-]+\]_+")
_WORD = re.compile(r"^[(\"']*[A-Za-z]+(?:['-][A-Za-z]+)*[)\"']*[.,;:!?]*[)\"']*$")


def paragraphs_of(docstring: str) -> Iterator[str]:
    """The prose paragraphs of a docstring, each cleaned and on one line."""
    for block in _blocks(_without_code(docstring.expandtabs().splitlines())):
        text = _without_markup(" ".join(line.strip() for line in block))
        if is_prose(text):
            yield text


def is_prose(text: str) -> bool:
    """Whether the text has enough words and consists mostly of words."""
    parts = text.split()
    num_words = sum(_WORD.match(part) is not None for part in parts)
    return num_words >= MIN_WORDS and num_words >= MIN_WORD_SHARE * len(parts)


def _without_code(lines: Iterable[str]) -> Iterator[str]:
    """Remove doctests, up to the next blank line, and the indented lines after a line ending in `::`."""
    in_doctest = False
    literal_indent: int | None = None
    for line in lines:
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        in_doctest = bool(stripped) and (in_doctest or stripped.startswith((">>>", "$ ")))
        if stripped and literal_indent is not None and indent <= literal_indent:
            literal_indent = None
        if in_doctest or (stripped and literal_indent is not None):
            continue
        # `.. note::` ends the same way, but prose follows it
        if stripped.endswith("::") and (not stripped.startswith("..") or "code" in stripped or "math" in stripped):
            literal_indent = indent
        yield line


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Runs of lines between blank lines, headings and the beginnings of entries, without the marks of entries."""
    block: list[str] = []
    for line in lines:
        if _UNDERLINE.match(line):
            block = block[:-1]  # the heading above it
            continue
        text = _without_entry_mark(line)
        if text != line or not text.strip():
            if block:
                yield block
            block = []
        if text.strip():
            block.append(text)
    if block:
        yield block


def _without_entry_mark(line: str) -> str:
    if _NUMPY_PARAMETER.match(line):
        return ""
    for mark in _ENTRY_MARKS:
        line = mark.sub("", line, count=1)
    return line


def _without_markup(text: str) -> str:
    text = _ROLE.sub(r"\1", text)
    text = _QUOTED.sub(r"\1", text)
    text = _EMPHASIS.sub(r"\2", text)
    text = _CITATION.sub("", text)
    return " ".join(text.replace("::", ":").split())
