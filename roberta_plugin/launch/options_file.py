"""The reader of YAML files (recipes, grid files) and the converter of options to fairseq-train's arguments.

Every value stays the text that was written: `1e-4` stays `1e-4`, `24:00:00` is not a number; `settings.py` makes typed
settings from these texts. As options of fairseq-train:

    lr: 1e-4                         --lr 1e-4
    bf16: true                       --bf16                   an option without a value
    bf16: false                                               left out
    lr: null    lr: ~    lr:                                  left out: fairseq's default
    keep: [1, 2]                     --keep 1 2
    data: A                          A                        first, as fairseq-train expects it
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from roberta_plugin.settings import is_null, nearest

RECIPES = Path(__file__).parent / "recipes"  # `pretraining/recipe.py` has their format
# An option, and those of a recipe that mean nothing beside it, or contradict it.
_REPLACED = {
    "lr-scheduler": ("lr-stages", "lr-decay-shape", "warmup-updates", "total-num-update"),
    "arch": ("encoder-layers", "encoder-embed-dim", "encoder-ffn-embed-dim", "encoder-attention-heads"),
    "batch-size": ("max-tokens", "grow-max-tokens"),
    "max-tokens": ("batch-size", "grow-max-tokens"),
    "update-sequences": ("max-tokens", "grow-max-tokens"),
    "tokens-per-sample": ("grow-tokens-per-sample",),
    "input-format": ("grow-tokens-per-sample", "sample-break-mode"),
    "fp16": ("bf16",),
    "amp": ("bf16",),
    "bf16": ("fp16",),
}
_TRUES, _FALSES = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_OTHER_TRUTHS = {"yes": "true", "on": "true", "no": "false", "off": "false"}


class _Loader(yaml.BaseLoader):
    """Every scalar is text; a key that occurs twice is an error, which PyYAML does not check."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _DocumentError("a key must be a word", key.start_mark.line)
            if key.value in keys:
                raise _DocumentError(f"{key.value} is given twice", key.start_mark.line)
            keys.add(key.value)
        return super().construct_mapping(node, deep)  # type: ignore[no-any-return]


class _DocumentError(Exception):
    """The fault, and its line (from 0)."""


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; its values are text, lists and mappings.

    Raises:
        ValueError: naming file and line, for a file that is not UTF-8, YAML or a mapping, or that has a key twice.
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
    except RecursionError:
        raise ValueError(f"{path}: its lists or mappings are nested too deeply: write it as those in slurm/.") from None
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(f"{path}{where}: this is not valid YAML: {error.problem or error}.") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold keys and their values, one per line, as in slurm/; it holds {values!r}.")
    return values


def named_options(content: Any, *, where: str) -> dict[str, Any]:
    """Options by their names on the command line, without the dashes in front.

    Raises:
        ValueError: if it is not a mapping, or names an option twice (`adam_eps` and `adam-eps`).
    """
    if not isinstance(content, Mapping):
        raise ValueError(f"{where} must be options and their values, as `lr: 1e-4`, got {content!r}.")
    options: dict[str, Any] = {}
    for key, value in content.items():
        name = key.lstrip("-").replace("_", "-")
        if name in options:
            raise ValueError(f"{where}: --{name} is given twice.")
        options[name] = value
    return options


def replaced_by(names: Iterable[str]) -> set[str]:
    """These options, and those of a recipe of the package that they replace."""
    return {other for name in names for other in (name, *_REPLACED.get(name, ()))}


def recipe_path(name: str, *, folder: Path = Path()) -> Path:
    """The file of a recipe: by its name in the package, or a YAML file, relative to `folder`.

    Raises:
        ValueError: if the package has none of that name, with the nearest ones.
    """
    if name.endswith((".yaml", ".yml")) or "/" in name:
        return folder / name
    if not (RECIPES / f"{name}.yaml").is_file():
        names = sorted(each.stem for each in RECIPES.glob("*.yaml"))
        raise ValueError(
            f"--recipe {name}: there is no such recipe{nearest(name, names)}. There are {', '.join(names)}; or give a "
            "file."
        )
    return RECIPES / f"{name}.yaml"


def to_arguments(options: Mapping[str, Any], *, where: str) -> list[str]:
    """Options by name as arguments of a command, `data` first; see the top of this file.

    Raises:
        ValueError: for a value that is neither a text nor a list of texts, and for `yes` and `no`.

    Example:
        to_arguments({"lr": "1e-4", "bf16": "true", "data": "d"}, where="x.yaml")  ->  ["d", "--lr", "1e-4", "--bf16"]
    """
    arguments: list[str] = []
    for name, value in options.items():
        if is_null(value) or value in _FALSES:
            continue
        if isinstance(value, str) and value.lower() in _OTHER_TRUTHS:
            raise ValueError(f"{where}: --{name} is {value!r}: write {_OTHER_TRUTHS[value.lower()]}.")
        texts = value if isinstance(value, list) else [value]
        if not texts or not all(isinstance(text, str) and not is_null(text) for text in texts):
            raise ValueError(f"{where}: --{name} must be a value or a list of values, got {value!r}.")
        if name == "data":
            arguments[:0] = texts
        elif value in _TRUES:
            arguments.append(f"--{name}")
        else:
            arguments += [f"--{name}", *texts]
    return arguments


def locate(path: Path, message: str, *, section: str = "") -> str:
    """The file, with the line of the first option of `message` that it sets: `recipe.yaml, line 12`.

    With a section, as `probes, ppl`, only the part after its keys is searched.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()

    def find(name: str, start: int) -> int | None:
        spelled = "[-_]".join(map(re.escape, re.split("[-_]", name)))
        pattern = re.compile(rf"(^|[\s{{,\"'-]){spelled}[\"']?\s*:")
        return next((n for n in range(start, len(lines)) if pattern.search(lines[n].split("#")[0])), None)

    start = 0
    for key in section.split(", ") if section else ():
        start = find(key, start) or start
    numbers = (find(name, start) for name in re.findall(r"--([\w-]+)", message))
    number = next((number for number in numbers if number is not None), None)
    return str(path) if number is None else f"{path}, line {number + 1}"


@contextmanager
def in_section(path: Path, section: str) -> Iterator[None]:
    """Let a ValueError name the file, the line and the section, and keys as the file spells them instead of options.

    Example:
        "--warm-up is 'x', ..." in the section budget  ->  "study.yaml, line 8: budget: warm-up is 'x', ..."
    """
    try:
        yield
    except ValueError as error:
        message = str(error).removeprefix(f"{path}: ")
        plain = re.sub(r"(?<![\w-])--(?=[a-z])", "", re.sub(r" \(--[\w-]+\)", "", message))
        raise ValueError(f"{locate(path, message, section=section)}: {section}: {plain}") from error
