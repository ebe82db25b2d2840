"""JSON Lines or another form of JSON, by how a text begins.

Programs write records as an array, indented or not, as an object with a list of them, or by column. Those are refused
with a command that makes JSON Lines of them.

Example: '[{"text": "a"}]' is an array; `jq -c '.[]'` makes a line of each record.
"""

from __future__ import annotations

import re

from roberta_plugin.json_files import parse_json

_BEGIN_OF_OBJECT = re.compile(rb'\{\s*"')
_MEMBER = rb'"[^"]*"\s*:\s*(?:"(?:[^"\\]|\\.)*"|\{[^{}]*\}|[^\s"\[{,]+)\s*,\s*'  # of one value, or flat
_WRAPPED = re.compile(rb"\{\s*(?:" + _MEMBER + rb')*"(data|rows|records|examples|instances)"\s*:\s*\[\s*\{')
_TABLE_OF_PANDAS = re.compile(rb'\{\s*"schema"\s*:.{,65536}?"pandas_version".{,1024}?"(data)"\s*:', re.DOTALL)
_ARRAY = re.compile(rb"\[\s*(?:\{|$)")
_BY_COLUMN = re.compile(rb'\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\{\s*"0"\s*:')  # as pandas writes it by default


def looks_like_json_lines(head: bytes) -> bool:
    """True if the first line of a text that begins with `head` is a JSON object."""
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not _BEGIN_OF_OBJECT.match(head):
        return False
    line, line_end, _ = head.partition(b"\n")
    try:
        return isinstance(parse_json(line), dict)
    except ValueError:
        return not line_end  # the beginning of a long record


def check_json_lines(head: bytes, name: str) -> None:
    """Refuse JSON whose records are not one per line, by how it begins.

    Raises:
        ValueError: naming the file, its form, and how to convert it.
    """
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    line, _, rest = head.partition(b"\n")
    is_line = looks_like_json_lines(head)
    if not head.startswith((b"{", b"[")) or (is_line and rest.strip()):
        return
    if _ARRAY.match(line):
        raise _not_lines(name, "an array", ".[]", "json.load(sys.stdin)")
    if _BY_COLUMN.match(head):
        raise ValueError(
            f"{name} is JSON, but not one record per line: it has the columns one after the other, as pandas writes "
            f"them. Convert it: `python -c \"import pandas; pandas.read_json('{name}').to_json('{name}l', "
            "orient='records', lines=True)\"`."
        )
    if wrapped := _WRAPPED.match(head) or _TABLE_OF_PANDAS.match(head):
        key = wrapped[1].decode()
        raise _not_lines(name, f"an object with a list {key!r}", f".{key}[]", f"json.load(sys.stdin)['{key}']")
    if line.startswith(b"{") and line.rstrip().endswith((b"{", b"[", b",")):
        raise _not_lines(name, "an object of several lines", ".", "[json.load(sys.stdin)]")


def _not_lines(name: str, what: str, query: str, records: str) -> ValueError:
    return ValueError(
        f"{name} is JSON, but not one record per line: it is {what}. Convert it to JSON Lines, by `jq -c '{query}' "
        f'FILE > FILE.jsonl` or `python -c "import json, sys; [print(json.dumps(each)) for each in {records}]" < FILE '
        "> FILE.jsonl`."
    )
