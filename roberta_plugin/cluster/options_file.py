"""YAML files of options, read in one way for recipes and grid files, and made into a command line in one way.

Every value is text just as it is written: `1e-4` stays `1e-4`, `24:00:00` is no number. What the words mean as options
of fairseq-train:

    lr: 1e-4                         --lr 1e-4
    bf16: true                       --bf16                   an option without a value
    bf16: false                                               left out
    lr: null    lr: ~    lr:                                  left out: fairseq's default
    keep: [1, 2]                     --keep 1 2
    data: A                          A                        in front, as fairseq-train wants it
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_NULLS = ("", "~", "null", "Null", "NULL")
_TRUES, _FALSES = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_OTHER_TRUTHS = {"yes": "true", "on": "true", "no": "false", "off": "false"}


class _Loader(yaml.BaseLoader):
    """Every scalar is text; a key may occur only once, which YAML itself does not see to."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        known: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _DocumentError("a key must be a word", key.start_mark.line)
            if key.value in known:
                raise _DocumentError(f"{key.value} is there twice", key.start_mark.line)
            known.add(key.value)
        return super().construct_mapping(node, deep)  # type: ignore[no-any-return]


class _DocumentError(Exception):
    """What is wrong, and in which line (from 0)."""


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; its values are text, lists and mappings.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming the file and the line, for what is no UTF-8, no YAML or no mapping, or has a key twice.
    """
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}: give the path of a YAML file, as those in slurm/.")
    content = path.read_bytes()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(f"{path}, line {line}: this is not UTF-8 (byte {content[error.start]:#04x}).") from error
    try:
        values = yaml.load(text, Loader=_Loader)
    except _DocumentError as error:
        message, line = error.args
        raise ValueError(f"{path}, line {line + 1}: {message}.") from error
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(f"{path}{where}: this is not valid YAML: {error.problem or error}.") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold keys and their values, one a line, as in slurm/; it holds {values!r}.")
    return values


def is_null(value: Any) -> bool:
    """Whether a value says that there is none."""
    return isinstance(value, str) and value in _NULLS


def named_options(content: Any, *, where: str) -> dict[str, Any]:
    """Options by their names on the command line, without the dashes in front.

    Args:
        content: what stands below a key of the file.
        where: file and key, for messages.

    Raises:
        ValueError: for what is no mapping, or names an option twice (`adam_eps` and `adam-eps`).
    """
    if not isinstance(content, Mapping):
        raise ValueError(f"{where} must be options and their values, as `lr: 1e-4`, got {content!r}.")
    options: dict[str, Any] = {}
    for key, value in content.items():
        name = key.lstrip("-").replace("_", "-")
        if name in options:
            raise ValueError(f"{where}: {name} is there twice.")
        options[name] = value
    return options


def to_arguments(options: Mapping[str, Any], *, where: str) -> list[str]:
    """Options by name as words of a command line, `data` first; see the top of this file.

    Raises:
        ValueError: for a value that is no text and no list of texts, or a `yes` or `no`.
    """
    arguments: list[str] = []
    for name, value in options.items():
        if is_null(value) or value in _FALSES:
            continue
        if isinstance(value, str) and value.lower() in _OTHER_TRUTHS:
            raise ValueError(f"{where}: {name} is {value!r}: write {_OTHER_TRUTHS[value.lower()]}.")
        words = value if isinstance(value, list) else [value]
        if not words or not all(isinstance(word, str) and not is_null(word) for word in words):
            raise ValueError(f"{where}: {name} must be a value or a list of values, got {value!r}.")
        if name == "data":
            arguments[:0] = words
        elif value in _TRUES:
            arguments.append(f"--{name}")
        else:
            arguments += [f"--{name}", *words]
    return arguments


def locate(path: Path, message: str) -> str:
    """The file, with the line of the first option of `message` that it sets: `recipe.yaml, line 12`."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for name in re.findall(r"--([\w-]+)", message):
        spelled = "[-_]".join(map(re.escape, re.split("[-_]", name)))
        pattern = re.compile(rf"(^|[\s{{,\"'-]){spelled}[\"']?\s*:")
        for number, line in enumerate(lines, start=1):
            if pattern.search(line.split("#")[0]):
                return f"{path}, line {number}"
    return str(path)
