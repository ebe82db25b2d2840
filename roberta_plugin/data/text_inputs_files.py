"""Names given by the user -> text inputs (file, URL or pipe, compression, format).

The name gives the format and the compression, and the content must agree. A .json file is examined for JSON Lines. Any
other file that begins like JSON Lines is refused unless --format is given, because its braces and keys would become
tokens. A folder that the library `datasets` saved is its Arrow files.

Example: `news.jsonl.gz` -> TextInput(suffix=".gz", form="jsonl"); `books/*.txt` -> one TextInput per file.
"""

from __future__ import annotations

import functools
import glob
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import IO, Any, Literal

from roberta_plugin.data.text_inputs_compressed import COMPRESSIONS, MAGIC, decompressed_pieces
from roberta_plugin.data.text_inputs_json import check_json_lines, looks_like_json_lines
from roberta_plugin.data.text_inputs_remote import (
    file_name,
    find,
    identity,
    is_url,
    is_web_page,
    open_url,
    without_secrets,
)
from roberta_plugin.json_files import parse_json
from roberta_plugin.moved import find_former_name
from roberta_plugin.progress import progress_bar
from roberta_plugin.settings import nearest

_OPEN_FILE = re.compile(r"/(?:dev|proc/self)/fd/(\d+)|/dev/stdin")


def open_input(path: str, *, is_sequential: bool = True) -> IO[bytes]:
    """Open a file or URL, or use a pipe that is already open: a pipe `/dev/fd/N` cannot be opened twice."""
    if is_url(path):
        remote: IO[bytes] = open_url(path, is_sequential=is_sequential)
        return remote
    if match := _OPEN_FILE.fullmatch(path):
        return open(int(match[1] or 0), "rb", closefd=False)
    return open(path, "rb")


Form = Literal["text", "jsonl", "csv", "tsv", "parquet", "arrow"]
TextFormat = Literal["auto", "text", "jsonl", "csv", "tsv", "parquet", "arrow"]
ENDINGS: Mapping[str, Form] = {
    **{".csv": "csv", ".tsv": "tsv"},
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow"),
}
STANDARD_INPUT = "-"
_PART = re.compile(r"part[-.](\d+)")  # Spark's, Dask's
_BYTES_TO_LOOK_AT = 2**16
_MANY = 2000  # files, which take a second or more
_looks: dict[tuple[Any, ...], TextInput] = {}
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
SPREADSHEET = (
    'save a spreadsheet as CSV (UTF-8) in its program, or convert it by `python -c "import pandas; '
    "pandas.read_excel('FILE').to_csv('FILE.csv', index=False)\"`"
)
# first bytes of files that are not plain text, their format, and the remedy
_NAMES = {".gz": "gzip", ".zst": "Zstandard", ".xz": "xz", ".bz2": "bzip2"}
_FOREIGN = (
    *((MAGIC[suffix], f"compressed with {name}", f"rename it to end in {suffix}") for suffix, name in _NAMES.items()),
    (b"PK\x03\x04", "a zip archive or a spreadsheet", f"unpack it; {SPREADSHEET}"),
    (b"\xd0\xcf\x11\xe0", "a spreadsheet", SPREADSHEET),
    (b"PAR1", "a Parquet file", "rename it to end in .parquet, or give --format parquet"),
    (b"ARROW1", "an Arrow file", "rename it to end in .arrow, or give --format arrow"),
    (b"\xff\xfe", "UTF-16 text", "convert it with `iconv -f UTF-16 -t UTF-8`"),
    (b"\xfe\xff", "UTF-16 text", "convert it with `iconv -f UTF-16 -t UTF-8`"),
)
_BZIP2_BLOCK = b"1AY&SY"  # after "BZh" and a digit; a text may begin with "BZh"


@dataclass(frozen=True)
class TextInput:
    """A file, URL or pipe with text.

    Attributes:
        path: to open.
        name: as given by the user, but without the secrets of a URL, for messages.
        suffix: one of `COMPRESSIONS`, or "" for plain text; for a pipe it is detected when reading.
        form: text, JSON Lines or a table.
        is_stream: whether it is a pipe, which has no known length and can be read only once.
        is_unknown: whether the content has not been examined yet, as for a pipe.
        column: column or field of the text, if it is a table.
        delimiter: between the columns, if it is CSV, or not a comma.
    """

    path: str
    name: str
    suffix: str = ""
    form: Form = "text"
    is_stream: bool = False
    is_unknown: bool = False
    column: str = "text"
    delimiter: str = ","

    @property
    def is_remote(self) -> bool:
        """True if it is a URL."""
        return is_url(self.path)

    @property
    def is_columnar(self) -> bool:
        """True if it is Parquet or Arrow, whose columns and row groups can be read apart."""
        return self.form in ("parquet", "arrow")

    @property
    def is_table(self) -> bool:
        """True if it has rows and columns."""
        return self.is_columnar or self.form in ("csv", "tsv")

    @property
    def is_sequential(self) -> bool:
        """True if it can only be read from its beginning."""
        return not self.is_columnar and (self.is_stream or bool(self.suffix) or self.is_table or self.is_remote)

    @property
    def is_hashed_when_read(self) -> bool:
        """True if it is read once, so that its hash is computed meanwhile."""
        return self.is_stream or (self.is_remote and self.is_sequential)

    def identity(self, *, is_fresh: bool = False) -> tuple[str, int, int | str, str]:
        """Absolute path, or URL without its secrets; bytes, modification time or version, and format."""
        form = self.form + (self.delimiter if self.delimiter != "," else "")
        if self.is_stream:
            return self.name, 0, 0, form
        if self.is_remote:
            return without_secrets(self.path), *identity(self.path, is_fresh=is_fresh), form
        status = os.stat(self.path)
        return os.path.abspath(self.path), status.st_size, status.st_mtime_ns, form

    @property
    def size(self) -> int:
        """Bytes of the file; 0 if unknown."""
        return self.identity()[1]


def find_inputs(
    patterns: Iterable[str | os.PathLike[str]],
    *,
    text_format: TextFormat = "auto",
    column: str = "text",
    delimiter: str = ",",
) -> list[TextInput]:
    """File names, folders, patterns, URLs, pipes and "-" -> inputs, in order; the files of a pattern sorted by name.

    Raises:
        FileNotFoundError: if a file does not exist or a pattern matches none.
        ValueError: if a file is given twice, or is not readable text.
    """
    inputs: list[TextInput] = []
    seen: set[str] = set()
    for name in patterns:
        pattern = os.fspath(name)
        for path in _counted_aloud(_paths_of(pattern), text_format):
            key = path if is_url(path) else pattern if pattern == STANDARD_INPUT else _real_path(path)
            if key in seen:
                raise ValueError(f"The text file {without_secrets(path)} is given twice: name each input once.")
            seen.add(key)
            name = pattern if pattern == STANDARD_INPUT else without_secrets(path) if is_url(path) else path
            source = _look_at(path, name, text_format)
            inputs.append(replace(source, column=column, delimiter=delimiter if source.form in ("csv", "tsv") else ","))
    if not inputs:
        raise FileNotFoundError("No text file given: name at least one input.")
    return inputs


def _counted_aloud(paths: list[str], text_format: TextFormat) -> Iterable[str]:
    """The paths, with a bar where there are so many that a look at each takes a while, at the first time."""
    if len(paths) < _MANY or _look_key(paths[-1], text_format) in _looks:
        return paths
    bar: Iterable[str] = progress_bar("files of text", iterable=paths, unit="file")
    return bar


def _real_path(path: str) -> str:
    """As os.path.realpath, with one question for each folder instead of one for each part of each path."""
    folder, name = os.path.split(path)
    return os.path.realpath(path) if os.path.islink(path) else os.path.join(_real_folder(os.path.abspath(folder)), name)


@functools.cache
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder)


def named_form(name: str) -> tuple[Form | None, str]:
    """The format that a name gives (None: none) and the compression, also of a URL with a query.

    Example: "News.JSONL.gz" -> ("jsonl", ".gz")
    """
    name = (file_name(name) if is_url(name) else name).lower()
    suffix = next((suffix for suffix in COMPRESSIONS if name.endswith(suffix)), "")
    return ENDINGS.get(os.path.splitext(name.removesuffix(suffix))[1]), suffix


def unclear_format_error(name: str) -> ValueError:
    """The error for an input that begins like JSON Lines but whose name does not say so."""
    return ValueError(
        f"{name} begins like JSON Lines, but its name does not end in .jsonl: give --format jsonl, or --format text "
        "to tokenize its lines as they are, braces included."
    )


def _paths_of(pattern: str) -> list[str]:
    if pattern == STANDARD_INPUT:
        # Worker processes have another standard input, but inherit this copy.
        return [f"/dev/fd/{os.dup(0)}"]
    if is_url(pattern):
        urls, is_folder = find(pattern)
        return dataset_files(pattern) if is_folder else urls
    pattern = pattern.removeprefix("file://")
    if os.path.isfile(pattern) or is_stream(pattern):
        return [pattern]
    if os.path.isdir(pattern):
        return dataset_files(pattern)
    if paths := [path for path in sorted(glob.glob(pattern, recursive=True)) if os.path.isfile(path)]:
        return paths
    folder, name = os.path.split(pattern)
    siblings = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
    near = nearest(name, siblings).replace(": the", "The", 1)
    raise FileNotFoundError(
        f"No text file {pattern}: give files, URLs, '-' for the standard input, or a pattern in quotes such as "
        f"'books/*.txt'.{near and f' {near}.'}"
    )


def dataset_files(folder: str) -> list[str]:
    """The Arrow files of a folder, or URL of one, that `save_to_disk` of the library `datasets` wrote, in order.

    Raises:
        FileNotFoundError: if it is not such a folder, or one of its files is missing.
        ValueError: if it holds several splits, or rows that were chosen without copying them.
    """
    folder = folder.rstrip("/")
    shown = without_secrets(folder)
    if splits := _content(f"{folder}/dataset_dict.json", "splits", str):
        raise ValueError(
            f"{shown} holds several splits of a data set: name one of them: "
            f"{', '.join(f'{shown}/{name}' for name in splits['splits'])}."
        )
    state = _content(f"{folder}/state.json", "_data_files", dict)
    if state is None:
        return _parts(folder)
    if chosen := [name for name, value in state.items() if "indices" in name and value]:
        raise ValueError(
            f"{shown}/state.json: the rows of this data set are chosen by {chosen[0]}, as old versions of the library "
            "saved it: save it again by `load_from_disk(FOLDER).flatten_indices().save_to_disk(NEW_FOLDER)`."
        )
    names = [each.get("filename") for each in state["_data_files"]]
    if bad := [name for name in names if not isinstance(name, str) or not name or "/" in name]:
        raise ValueError(f"{folder}/state.json names the file {bad[0]!r}: copy the folder again.")
    paths = [f"{folder}/{name}" for name in names]
    if missing := [path for path in paths if not is_url(path) and not os.path.isfile(path)]:
        raise FileNotFoundError(f"{missing[0]} is listed in state.json and missing: copy the folder again.")
    return paths


def _parts(folder: str) -> list[str]:
    """The files of a folder in which Spark or Dask wrote a table in parts, in order.

    Raises:
        FileNotFoundError: if it is another folder.
    """
    names = [] if is_url(folder) else [name for name in os.listdir(folder) if not name.startswith((".", "_"))]
    numbers = {name: int(match[1]) for name in names if (match := _PART.match(name))}
    forms = {".json" if name.lower().endswith(".json") else named_form(name)[0] for name in names}
    if names and len(numbers) == len(names) and len(forms) == 1 and None not in forms:
        return [f"{folder}/{name}" for name in sorted(names, key=lambda name: (numbers[name], name))]
    endings = Counter(os.path.splitext(name)[1] for name in names if named_form(name)[0])
    ending = endings.most_common(1)[0][0] if endings else ".txt"
    raise FileNotFoundError(
        f"{folder} is a folder, and not one that `save_to_disk` of the library datasets wrote, or of a table in parts "
        f"(part-00000.parquet): name its files, such as '{folder}/*{ending}'."
    )


def _content(path: str, key: str, kind: type) -> dict[str, Any] | None:
    """The object in a JSON file, which has a list of this kind under a key; None if there is no such file."""
    try:
        with open_input(path) as file:
            content = parse_json(file.read())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ValueError(f"{without_secrets(path)} is not valid JSON ({error}): copy the folder again.") from error
    fields: dict[str, Any] = content if isinstance(content, dict) else {}
    values = fields.get(key)
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        shown = without_secrets(path)
        raise ValueError(f"{shown} has no list {key!r} as the library datasets writes it: copy the folder again.")
    return fields


def is_stream(path: str) -> bool:
    """True if it is a pipe, a terminal or another device."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)


def _look_key(path: str, text_format: TextFormat) -> tuple[Any, ...] | None:
    """The state of a file on which a look at it depends; None for a URL and a pipe."""
    if is_url(path) or is_stream(path):
        return None
    status = os.stat(path)
    return path, text_format, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, os.getcwd()


def _look_at(path: str, name: str, text_format: TextFormat) -> TextInput:
    """Look at the first bytes of an input, once for as long as it does not change."""
    if (key := _look_key(path, text_format)) is None:
        return _first_look_at(path, name, text_format)
    if key not in _looks:
        _looks[key] = _first_look_at(path, name, text_format)
    return _looks[key]


def _first_look_at(path: str, name: str, text_format: TextFormat) -> TextInput:
    form: Form = "text" if text_format == "auto" else text_format
    if name == STANDARD_INPUT or is_stream(path):
        _check_pipe(name, form)
        return TextInput(path, name, form=form, is_stream=True, is_unknown=text_format == "auto")
    if path.lower().endswith(SPREADSHEETS):
        raise ValueError(f"{name} is a spreadsheet, not text: {SPREADSHEET}.")
    by_name, suffix = named_form(path)
    source = TextInput(path, name, suffix, by_name or "text" if text_format == "auto" else form)
    if source.is_columnar:
        if suffix:
            raise ValueError(f"{name}: Parquet and Arrow are compressed within. Unpack the file.")
        return source
    with open_input(path) as file:
        head = file.read(_BYTES_TO_LOOK_AT)
    if suffix and not head:
        raise ValueError(f"{name} is empty, so it is not a {suffix} file: copy or download it again.")
    if not suffix:
        _check_beginning(head, source, is_any_text=text_format != "auto")
    if text_format != "auto" or by_name is not None:
        return source
    if suffix:  # whether it is JSON Lines shows in what is compressed
        with open_input(path) as file:
            pieces = decompressed_pieces(file, suffix, name, _BYTES_TO_LOOK_AT)
            head = next((piece for piece, _ in pieces if piece), b"")
    is_json = (file_name(path) if is_url(path) else path).lower().removesuffix(suffix).endswith(".json")
    return replace(source, form="jsonl" if _is_jsonl(head, name, is_json=is_json) else "text")


def _check_pipe(name: str, form: Form) -> None:
    """Refuse what cannot be read from a pipe."""
    if sys.platform != "linux":
        raise ValueError(f"{name}: reading text from a pipe needs Linux. Write the text to a file first.")
    if form in ("parquet", "arrow"):
        raise ValueError(f"{name}: Parquet and Arrow cannot be read from a pipe. Write it to a file first.")


def _check_beginning(head: bytes, source: TextInput, *, is_any_text: bool) -> None:
    """Refuse a file or URL whose first bytes are not plain text; with `is_any_text`, web pages are text."""
    for beginning, what, remedy in _FOREIGN:
        # "BZh" alone may begin a text, so the block that follows in a bzip2 file is looked for, too.
        if head.startswith(beginning) and (beginning != b"BZh" or head[4:].startswith(_BZIP2_BLOCK)):
            raise ValueError(f"{source.name} is {what}, but its name does not say so: {remedy}.")
    if source.is_remote and not is_any_text and is_web_page(source.path, head):
        raise ValueError(
            f"{source.name} answers with a web page in HTML, as one to log in, and not with text: check the address "
            "and your access to it, or give --format to read the page as it is."
        )
    if source.form == "jsonl":
        check_json_lines(head, source.name)


def _is_jsonl(head: bytes, name: str, *, is_json: bool) -> bool:
    if is_json:
        try:
            check_json_lines(head, name)
        except ValueError as error:
            raise ValueError(f"{error} Or give --format text to tokenize its lines as they are.") from None
    if looks_like_json_lines(head):
        if not is_json:
            raise unclear_format_error(name)
        return True
    return False


def __getattr__(name: str) -> Any:
    """Former names."""
    return find_former_name(__name__, name)
