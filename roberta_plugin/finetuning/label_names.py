"""Numbers in a column of labels -> their names, or no label.

A data set of the hub has numbers for its labels. Their names are in

    the schema of the Parquet or Arrow file, where the library `datasets` writes its features
    dataset_info.json or dataset_infos.json beside the file, as in a folder of `save_to_disk`
    the header of README.md beside the file, or in the folder above

or are given by --label-names. Where numbers have names, -1 means that a row has no label (SNLI, test sets of GLUE).
Without names, a -1 beside labels from 0 on is refused, unless --labels lists the numbers that are labels.

Example: {"names": ["neg", "pos"], "_type": "ClassLabel"} of the column "label": 1 -> "pos", -1 -> no label.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from roberta_plugin.data.text_inputs_columnar import schema_metadata
from roberta_plugin.data.text_inputs_files import find_inputs
from roberta_plugin.finetuning.records import parse_cell, parse_json
from roberta_plugin.tables import files_of, named_format

logger = logging.getLogger(__name__)

OPTION = "--label-names"
NO_LABEL = -1
_WHOLE = re.compile(r"\s*[-+]?[0-9]{1,9}\s*")
_MOST_SHOWN = 8


class Numbering(NamedTuple):
    """The meaning of the numbers in a column of labels."""

    names: tuple[str, ...] = ()
    """The names of 0, 1, ...; empty: the numbers themselves are the labels."""
    source: str = ""
    """The file or option that has the names, for messages."""
    is_class: bool = False
    """True if -1 is a label like any other."""

    def is_none(self, value: object) -> bool:
        """True if a cell, or each entry of its list, is -1 and means that there is no label."""
        if self.is_class:
            return False
        parsed = parse_json(value) if isinstance(value, str) else value
        values = parsed if isinstance(parsed, list) else [value]
        return bool(values) and all(whole_number(each) == NO_LABEL for each in values)

    def name(self, value: object, place: str) -> Any:
        """The name of a number; other values are returned unchanged.

        Raises:
            ValueError: if no name has this number.
        """
        if not self.names or (isinstance(value, str) and value.strip() in self.names):
            return value
        number = whole_number(value)
        if number is None:
            return value
        if isinstance(value, str) and any(whole_number(name) is not None for name in self.names):
            raise ValueError(
                f"{place}: {value!r} may be a number or a name of {self._shown()}. Write the names into the column, or "
                "save the table as Parquet or JSON Lines, which distinguish numbers from texts."
            )
        if not 0 <= number < len(self.names):
            raise ValueError(
                f"{place}: {number} is none of the labels 0 to {len(self.names) - 1}, which are {self._shown()}. "
                "Correct the row, or leave it out."
            )
        return self.names[number]

    def _shown(self) -> str:
        more = ", ..." if len(self.names) > _MOST_SHOWN else ""
        return f"{', '.join(self.names[:_MOST_SHOWN])}{more} ({self.source})"

    def log(self, path: Path, column: str) -> None:
        """Say which names are used."""
        if self.names:
            logger.warning(f"{path}: the numbers in the column {column!r} are labels from 0 on: {self._shown()}")


def whole_number(value: object) -> int | None:
    """The whole number in a cell, also if it is written as a text; None for anything else.

    Examples: 2, "2" and 2.0 (pandas, in a column with a missing value) -> 2; True, 2.5 and "two" -> None
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 1e9 else None
    return int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else None


def numbering_of(
    path: Path,
    column: str,
    cells: Sequence[tuple[str, Any]],
    *,
    given: Sequence[str] | None,
    listed: Sequence[str] | None = None,
    before: Numbering | None = None,
) -> Numbering:
    """Find out what the numbers in a column mean.

    Args:
        path: the table.
        column: the column of the labels.
        cells: the place and the value of each row.
        given: the names of --label-names.
        listed: the labels of --labels.
        before: the numbering of the training table, for other tables.

    Raises:
        ValueError: if -1 may be a label or not.
    """
    numbers = _first_places(column, cells)
    if not numbers.keys() - {None}:
        return before or Numbering()
    if given:
        return Numbering(tuple(given), OPTION)
    if (found := names_in_files(path, column)) is not None:
        return found
    if before is not None:
        return before
    others = [number for number in numbers if number != NO_LABEL]
    if NO_LABEL not in numbers or not others:
        return Numbering()
    if listed is not None:
        return Numbering(is_class=str(NO_LABEL) in listed)
    known = [number for number in others if number is not None]
    if len(known) == len(others) and min(known) == 0:
        labels = " ".join(map(str, sorted(known)[:_MOST_SHOWN]))
        raise ValueError(
            f"{numbers[NO_LABEL]}: the column {column!r} holds -1 beside {labels.replace(' ', ', ')}. In many data "
            f"sets -1 means that there is no label. Give --labels {labels} to leave such rows out, {OPTION} to name "
            f"the labels as well, or --labels {NO_LABEL} {labels} if -1 is a label."
        )
    return Numbering(is_class=True)


def _first_places(column: str, cells: Sequence[tuple[str, Any]]) -> dict[int | None, str]:
    """The place of the first row with each number; None for cells, or items of a list, that are not numbers."""
    numbers: dict[int | None, str] = {}
    for place, value in cells:
        parsed = parse_cell(value, f"{place}, the column {column!r}") if isinstance(value, str) else value
        for each in parsed if isinstance(parsed, list) else [value]:
            numbers.setdefault(whole_number(each), place)
    return numbers


def names_in_files(path: Path, column: str) -> Numbering | None:
    """The names that a table, or a file beside it, has for the numbers of a column."""
    for source, features in _features(path):
        if names := _names(_feature(features, column)):
            return Numbering(names, source)
    return _of_readme(path, column)


def _features(path: Path) -> Iterator[tuple[str, Any]]:
    """The features of a table as the library `datasets` writes them, each with the file or schema that has them."""
    if named_format(path) in ("parquet", "arrow"):
        for source in find_inputs(files_of(path), text_format=named_format(path) or "auto"):
            content = _parsed(schema_metadata(source).get(b"huggingface", b"null"))
            if isinstance(content, Mapping) and isinstance(content.get("info"), Mapping):
                yield f"the schema of {Path(source.name).name}", content["info"].get("features")
    folder = path if path.is_dir() else path.parent
    if (file := folder / "dataset_info.json").is_file():
        content = _parsed(file.read_bytes())
        yield file.name, content.get("features") if isinstance(content, Mapping) else None
    if (file := folder / "dataset_infos.json").is_file():
        content = _parsed(file.read_bytes())
        entries = content.values() if isinstance(content, Mapping) else []
        found = [each.get("features") for each in entries if isinstance(each, Mapping)]
        if len(found) == 1:
            yield file.name, found[0]


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None  # the file is not one of `datasets`


def _feature(features: object, column: str) -> Any:
    return features.get(column) if isinstance(features, Mapping) else None


def _names(feature: object) -> tuple[str, ...]:
    """The names of a ClassLabel, or of a list of ClassLabels; empty for other features."""
    if isinstance(feature, list) and len(feature) == 1:
        return _names(feature[0])
    if not isinstance(feature, Mapping):
        return ()
    if "feature" in feature:
        return _names(feature["feature"])
    names = feature.get("names")
    is_class = feature.get("_type", "ClassLabel") == "ClassLabel"
    return tuple(map(str, names)) if is_class and isinstance(names, list) else ()


def _of_readme(path: Path, column: str) -> Numbering | None:
    """The names in the header of a README.md, as the hub writes it."""
    folder = path if path.is_dir() else path.parent
    for readme in (folder / "README.md", folder.resolve().parent / "README.md"):
        entries = [(each, _yaml_names(each, column)) for each in _entries(readme)]
        known = [(str(each.get("config_name", "")), names) for each, names in entries if names]
        parts = {*path.resolve().parts, *re.split(r"[-_.]", path.name)}
        chosen = {names for config, names in known if config in parts} or {names for _, names in known}
        if len(chosen) == 1:
            return Numbering(chosen.pop(), readme.name)
        if chosen:
            configs = ", ".join(config for config, _ in known)
            raise ValueError(
                f"{readme}: the configurations {configs} have different names for the numbers of {column!r}, and "
                f"the name of {path} does not tell to which one it belongs. Name the labels by {OPTION}."
            )
    return None


def _entries(readme: Path) -> list[Mapping[str, Any]]:
    """The entries of dataset_info in the header of a README.md."""
    try:
        text = readme.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return []
    header = re.match(r"---\s*\n(.*?)\n---\s*(\n|$)", text, re.DOTALL)
    try:
        content = yaml.safe_load(header[1]) if header else None
    except yaml.YAMLError:
        return []
    found = content.get("dataset_info") if isinstance(content, Mapping) else None
    return [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, Mapping)]


def _yaml_names(entry: Mapping[str, Any], column: str) -> tuple[str, ...]:
    """The names of a column's class_label in an entry of dataset_info; empty if it has none."""
    features = entry.get("features")
    for feature in features if isinstance(features, list) else []:
        if not isinstance(feature, Mapping) or feature.get("name") != column:
            continue
        names = _find_class_label(feature).get("names")
        # The hub writes a mapping, such as {"0": neg, "1": pos}; older files have a list.
        if isinstance(names, Mapping) and all(whole_number(key) is not None for key in names):
            names = [names[key] for key in sorted(names, key=lambda key: int(key))]
        if isinstance(names, list):  # YAML reads an unquoted true as a bool
            return tuple("true" if name is True else "false" if name is False else str(name) for name in names)
    return ()


def _find_class_label(feature: Mapping[str, Any]) -> Mapping[str, Any]:
    """The class_label of a column, which may be inside of lists; empty if there is none.

    Examples: {"name": "label", "dtype": {"class_label": ...}}
              {"name": "tags", "sequence": {"class_label": ...}}, and with "list" for "sequence" in newer files
    """
    found: Any = feature
    while isinstance(found, Mapping) and (found is feature or "class_label" not in found):
        found = next((found[key] for key in ("dtype", "sequence", "list") if key in found), None)
    label = found.get("class_label") if isinstance(found, Mapping) else None
    return label if isinstance(label, Mapping) else {}
