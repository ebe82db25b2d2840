"""YAML files (recipes, grid files) -> options by name -> fairseq-train's arguments.

    file --read_file--> Section --subsection--> Sections --as_options, as_settings--> values by name
    options --with_recipe--> with the options of the recipe that they name --to_arguments--> fairseq-train's arguments

A `Section` knows its place in the file, so that errors name file and line. Every value stays the
text that was written: `1e-4` stays `1e-4`, `24:00:00` is not a number; `settings.py` makes typed settings from these
texts. As options of fairseq-train:

    lr: 1e-4                         --lr 1e-4
    bf16: true                       --bf16                   an option without a value
    bf16: false                                               left out
    lr: null    lr: ~    lr:                                  left out: fairseq's default
    keep: [1, 2]                     --keep 1 2
    data: A                          A                        first, as fairseq-train expects it
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from roberta_plugin.settings import check_names, convert, is_null, nearest, short

T = TypeVar("T")

RECIPES = Path(__file__).parent / "recipes"  # `pretraining/recipe.py` has their format
# An option, and the options of a recipe that have no meaning beside it, or contradict it.
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
UPDATES = ("max-update", "total-num-update", "warmup-updates")  # options that count updates
BY_UPDATE = ("lr-stages", "grow-tokens-per-sample", "grow-max-tokens")  # and those that name updates, UPDATE:VALUE ...
_UPDATE = re.compile(r"(?<![\d.])(\d+)(?=:)")
_MOST_VALUES = 100_000  # of a YAML file
_TRUES, _FALSES = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_OTHER_TRUTHS = {"yes": "true", "on": "true", "no": "false", "off": "false"}


class _Keys(dict[str, Any]):
    """A mapping with the line of each key."""

    lines: Mapping[str, int] = {}


class _Loader(yaml.BaseLoader):
    """Every scalar is text; a key that occurs twice is an error, which PyYAML does not check."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise _DocumentError("a key must be a word", line)
            if key.value == "<<":
                raise _DocumentError(
                    "<< merges nothing here: write the options out, or name a recipe that has them", line
                )
            if key.value in lines:
                raise _DocumentError(f"{key.value} is given twice", line)
            lines[key.value] = line
        keys = _Keys(super().construct_mapping(node, deep))
        keys.lines = lines
        return keys


class _DocumentError(Exception):
    """The fault, and its line."""


class _SectionError(ValueError):
    """An error in a section, with its place."""


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
        raise ValueError(f"{path}, line {line}: {message}.") from error
    except RecursionError:
        raise ValueError(f"{path}: its lists or mappings are nested too deeply: write it as those in slurm/.") from None
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(f"{path}{where}: this is not valid YAML: {error.problem or error}.") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ValueError(
            f"{path}, line {line}: this is not valid YAML: {error.reason} ({error.character:#04x})."
        ) from None
    if not isinstance(values, dict):
        raise ValueError(
            f"{path} must hold keys and their values, one per line, as in slurm/; it holds {short(values)}."
        )
    if _count_values(values, {}) > _MOST_VALUES:
        raise ValueError(
            f"{path} holds more than {_MOST_VALUES:,} values, once its anchors are written out: write each where it is "
            "needed, as in slurm/."
        )
    return values


def _count_values(value: object, counts: dict[int, float]) -> float:
    """The number of values, where an anchor's values count once for each use; infinite if it contains itself."""
    if not isinstance(value, list | dict):
        return 1
    if id(value) not in counts:
        counts[id(value)] = math.inf
        items = value.values() if isinstance(value, dict) else value
        counts[id(value)] = 1 + sum(_count_values(item, counts) for item in items)
    return counts[id(value)]


def read_file(path: Path) -> Section:
    """A YAML file as a whole; see `read_yaml`."""
    return Section(path, read_yaml(path))


@dataclass(frozen=True)
class Section:
    """A part of a YAML file, or all of it. Errors name the file, line, section and the file's keys."""

    path: Path
    content: Any  # a text, a list or a mapping; an empty text means null
    name: str = ""  # as `probes, ppl`; empty: the whole file
    line: int | None = None

    def __bool__(self) -> bool:
        """True if the section holds anything."""
        return bool(self.content)

    def subsection(self, name: str, default: object = "") -> Section:
        """The part of this name; with the content `default` where it is left out or null."""
        parts = self.content if isinstance(self.content, _Keys) else _Keys()
        content = default if is_null(parts.get(name, "")) else parts[name]
        return Section(
            self.path, content, f"{self.name}, {name}" if self.name else name, parts.lines.get(name, self.line)
        )

    def subsections(self, example: str) -> dict[str, Section]:
        """All parts by name; a refusal shows the `example`."""
        if not isinstance(self.content, Mapping) or not self.content:
            raise self.error(f"{self.name} must hold one entry per line, as `{example}`, got {short(self.content)}.")
        return {name: self.subsection(name) for name in self.content}

    def as_options(self) -> dict[str, Any]:
        """Options of a command by name, with dashes within and none in front; see `named_options`."""
        with self.located():
            return {} if self.content == "" else named_options(self.content, where=self.name)

    def as_choices(self, name: str) -> dict[str, dict[str, Any]]:
        """Label -> options, from a mapping of options or from a list of values of the option `name`.

        Examples: {"small": {"lr": "1"}, "large": {"lr": "2"}}  ->  the same
                  ["1", "2"], with `name` "lr"                  ->  {"1": {"lr": "1"}, "2": {"lr": "2"}}
        """
        if isinstance(self.content, Mapping) and self.content:
            return {label: self.subsection(label).as_options() for label in self.content}
        values = self.content
        if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
            raise self.error(f"{self.name} must be a list of values such as [1, 2, 3], got {short(values)}.")
        if len(values) != len(set(values)):
            raise self.error(f"{self.name} has a value twice: {', '.join(values)}.")
        return {value: {_option_name(name): value} for value in values}

    def as_settings(self, kind: type[T], **values: Any) -> T:
        """The section as a dataclass, whose fields may be spelled with dashes; `values` override it."""
        options = {name.replace("-", "_"): value for name, value in self.as_options().items()}
        with self.located():
            return convert(kind, {**options, **values}, where=self.name or str(self.path))

    def check_keys(self, *, known: Iterable[str], needed: Iterable[tuple[str, ...]]) -> None:
        """Refuse keys that are not `known`. Of each tuple in `needed`, the section must have at least one key."""
        with self.located():
            check_names(self.content, known=known, where="the file")
        for names in needed:
            if not any(self.subsection(name) for name in names):
                raise self.error(f"the section {' or '.join(names)} is missing.")

    def error(self, message: str) -> ValueError:
        """The message as an error, after the place of the first option (--NAME) in it that this section has."""
        plain = re.sub(r"(?<![\w-])--(?=[a-z])", "", re.sub(r" \(--[\w-]+\)|(?<=') \(--[^()]*\)", "", message))
        named = "" if plain.startswith(self.name) else f"{self.name}: "
        return _SectionError(f"{self.place(message)}: {named}{plain}")

    @contextmanager
    def located(self) -> Iterator[None]:
        """Let a ValueError say where it is.

        Example:
            "--warm-up is 'x', ..." in the section budget  ->  "grid.yaml, line 8: budget: warm-up is 'x', ..."
        """
        try:
            yield
        except _SectionError:
            raise
        except ValueError as error:
            raise self.error(str(error).removeprefix(f"{self.path}: ").removeprefix(f"{self.path} ")) from error

    def place(self, message: str, *, nearer: Iterable[Section] = (), beneath: Iterable[Section] = ()) -> str:
        """The file, with the line of the first option of `message` that this section has: `recipe.yaml, line 12`.

        If a `nearer` section has the option, it is the line there; if neither has it, the line in a section `beneath`.
        """
        sections = [*nearer, self, *beneath]
        for name in options_in(message):
            for section in sections:
                for line in _lines_of(section.content, name):
                    return f"{section.path}, line {line}"
        return str(self.path) if self.line is None else f"{self.path}, line {self.line}"


def options_in(message: str) -> list[str]:
    """The options that a message names, without the dashes in front; keys in parentheses, of any characters, first."""
    return list(map(_option_name, [*re.findall(r"\((--[^()]*)\)", message), *re.findall(r"--[\w-]+", message)]))


def _option_name(key: str) -> str:
    """The name of an option on the command line, without the dashes in front."""
    return key.lstrip("-").replace("_", "-")


def _lines_of(content: Any, name: str) -> Iterator[int]:
    """The lines that set an option, at any depth."""
    for key, value in content.items() if isinstance(content, _Keys) else ():
        if _option_name(key) == name:
            yield content.lines[key]
        yield from _lines_of(value, name)


def named_options(content: object, *, where: str) -> dict[str, Any]:
    """Options by their names on the command line, without the dashes in front.

    Raises:
        ValueError: if it is not a mapping, or names an option twice (`adam_eps` and `adam-eps`).
    """
    if not isinstance(content, Mapping):
        raise ValueError(f"{where} must be options and their values, as `lr: 1e-4`, got {short(content)}.")
    options: dict[str, Any] = {}
    for key, value in content.items():
        name = _option_name(key)
        if name in options:
            raise ValueError(f"{where}: --{name} is given twice.")
        options[name] = value
    return options


def replaced_by(names: Iterable[str]) -> set[str]:
    """These options, and the options of a recipe of the package that they replace."""
    return {other for name in names for other in (name, *_REPLACED.get(name, ()))}


def recipe_path(name: str, *, folder: Path = Path()) -> Path:
    """The file of a recipe: by its name in the package, or a YAML file, relative to `folder`.

    Raises:
        ValueError: if the package has no recipe of that name; the message has the nearest names.
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


def recipe_files(path: Path) -> list[Section]:
    """The file, its base, and the recipes whose options theirs change, each named by the one before.

    Raises:
        ValueError: for a recipe that is not there, or that starts from itself; names file and line.
    """
    files = _with_base(path)
    chain = list(files)
    while named := [
        (file, recipe) for file in files if (recipe := _recipe_of(file.subsection("train"), train_of(file)))
    ]:
        file, recipe = named[0]
        files = _with_base(recipe)
        if {each.path.resolve() for each in files} & {each.path.resolve() for each in chain}:
            raise file.subsection("train").error(f"--recipe leads back to {recipe}: name another one.")
        chain += files
    return chain


def _recipe_of(train: Section, options: Mapping[str, Any]) -> Path | None:
    """The file of the recipe that the options of a section name."""
    name = options.get("recipe", "")
    with train.located():
        path = None if is_null(name) else recipe_path(str(name), folder=train.path.parent)
        if path is not None and not path.is_file():
            raise ValueError(f"--recipe: there is no file {path}: recipe is a name, or a path as seen from this file.")
        return path


def _with_base(path: Path) -> list[Section]:
    """The file and, if it names one, its base."""
    file = read_file(path)
    base = file.subsection("base")
    if isinstance(base.content, list | dict):
        raise base.error("base must be the path of a recipe; options of fairseq-train belong under train.")
    if base and not (path.parent / base.content).is_file():
        raise base.error(f"there is no file {path.parent / base.content}: base is a path as seen from this file.")
    return [file, read_file(path.parent / base.content)] if base else [file]


def train_of(recipe: Section) -> dict[str, Any]:
    """fairseq-train's options of a recipe; empty where they are a list of arguments."""
    train = recipe.subsection("train")
    is_list = isinstance(train.content, list) and all(isinstance(argument, str) for argument in train.content)
    return {} if is_list else train.as_options()


def all_options(train: Section) -> dict[str, Any]:
    """fairseq-train's options of a section, with the options of the recipe that it names."""
    options = train.as_options()
    recipe = _recipe_of(train, options)
    return with_recipe(options, recipe_files(recipe)) if recipe else options


def options_of_recipe(train: Section) -> dict[str, Any]:
    """fairseq-train's options of the recipe that a section names; empty without one."""
    recipe = _recipe_of(train, train.as_options())
    return with_recipe({}, recipe_files(recipe)) if recipe else {}


def place_of(message: str, file: Section, *, nearer: Iterable[Section] = ()) -> str:
    """As `Section.place`, also in the recipe that the options of a grid file start from."""
    train = file.subsection("train") or file.subsection("base")
    recipe = _recipe_of(train, train.as_options())
    return file.place(message, nearer=nearer, beneath=recipe_files(recipe) if recipe else ())


def with_recipe(options: Mapping[str, Any], recipe: Iterable[Section]) -> dict[str, Any]:
    """fairseq-train's options, and beneath them the options of a recipe's files, the nearest first.

    Options of a recipe of the package give way to those that replace them, as `max-tokens` does `batch-size`; an option
    without a value takes the recipe's out.
    """
    for file in recipe:
        beneath = train_of(file)
        if file.path.parent == RECIPES:
            out = replaced_by(name for name, value in options.items() if not is_null(value)) | options.keys()
            beneath = {name: value for name, value in beneath.items() if name not in out}
        options = {**beneath, **options}
    return {name: value for name, value in options.items() if name != "recipe" and not is_null(value)}


def scale_updates(options: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """Options of fairseq-train with `factor` times as many updates, and all that is said by updates in proportion.

    Example:
        scale_updates({"max-update": "9", "lr-stages": "3:1 9:0"}, 2)  ->  {"max-update": "18", "lr-stages": "6:1 18:0"}
    """

    def times(number: str) -> str:
        return str(round(float(number) * factor))

    return {
        name: times(value)
        if name in UPDATES
        else _UPDATE.sub(lambda match: times(match[1]), value)
        if name in BY_UPDATE
        else value
        for name, value in options.items()
    }


def note_on_updates(options: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    """That options change a recipe's number of updates and leave what it says by updates; empty if they do not."""
    number, planned = str(options.get("max-update", "")), str(recipe.get("max-update", ""))
    if not (number.isdecimal() and planned.isdecimal() and int(planned)) or int(number) == int(planned):
        return ""
    names = (*UPDATES[1:], *BY_UPDATE)
    kept = {name: recipe[name] for name in names if recipe.get(name) and options.get(name) == recipe[name]}
    scaled = scale_updates(kept, int(number) / int(planned))
    changed = {name: value for name, value in scaled.items() if value != kept[name]}
    if not changed:
        return ""
    stay = ", ".join(f"{name} {kept[name]}" for name in changed)
    return (
        f"max-update is {int(number):,} and the recipe's {int(planned):,}, by which it says {stay}: these stay. For a "
        f"training of the recipe's shape give {', '.join(f'{name}: {value}' for name, value in changed.items())}."
    )


def to_arguments(options: Mapping[str, Any], *, where: str = "") -> list[str]:
    """Options by name as arguments of a command, `data` first; see the top of this file.

    Raises:
        ValueError: for a value that is neither a text nor a list of texts, and for `yes` and `no`.

    Example:
        to_arguments({"lr": "1e-4", "bf16": "true", "data": "d"}, where="x.yaml")  ->  ["d", "--lr", "1e-4", "--bf16"]
    """
    arguments: list[str] = []
    begin = f"{where}: " if where else ""
    for name, value in options.items():
        if is_null(value) or value in _FALSES:
            continue
        if isinstance(value, str) and value.lower() in _OTHER_TRUTHS:
            raise ValueError(f"{begin}--{name} is {short(value)}: write {_OTHER_TRUTHS[value.lower()]}.")
        texts = value if isinstance(value, list) else [value]
        if not texts or not all(isinstance(text, str) and not is_null(text) for text in texts):
            raise ValueError(f"{begin}--{name} must be a value or a list of values, got {short(value)}.")
        if name == "data":
            arguments[:0] = texts
        elif value in _TRUES:
            arguments.append(f"--{name}")
        else:
            arguments += [f"--{name}", *texts]
    return arguments
