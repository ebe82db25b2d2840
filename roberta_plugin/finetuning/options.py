"""The options of the preparation and the scoring of a task: one dataclass for each benchmark.

The dataclasses of extensions can be imported from here, too. The dataclass for tables of your own has the options of
all registered kinds (`option_slices.py`).

`roberta prepare`, `roberta finetune` and `roberta evaluate` make their options from the fields: `question_length`
becomes --question-length, with the help text of the field. In Python, pass the dataclass:

    PrepareSettings(task="squad2", ..., options=SquadOptions(doc_stride=64))

None stands for "not given": a new folder is then prepared with the paper's value, and a folder that exists is used
with the value it was prepared with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from roberta_plugin.finetuning.kinds import KINDS, own_kinds
from roberta_plugin.registry import BENCHMARKS
from roberta_plugin.settings import Checked, is_given, option_field, setting

Stage = Literal["prepare", "score"]


def option(help_text: str, *, default: object = None, stage: Stage = "prepare", **more: Any) -> Any:
    """A field that is an option of a stage; `more` are arguments of `settings.setting`."""
    return setting(default, help_text, stage=stage, **more)


@dataclass(frozen=True, kw_only=True)
class TaskOptions(Checked):
    """The base class of the options of a task.

    A subclass may also be a slice of options that an extension adds to those of tables of your own
    (`registry.TABLE_OPTIONS`): its methods call `super()`.
    """

    source: ClassVar[tuple[str, str]] = ("--raw", "the folder with the official files")
    """The option that names what is prepared, and a description of its value."""

    @property
    def own_kind(self) -> str | None:
        """The kind of tables of your own, as prepared folders record it; None: the benchmark has a fixed kind."""
        return None

    @property
    def usual_raw(self) -> Path | None:
        """The default of --raw; None: it must be given."""
        return None

    @property
    def can_fold(self) -> bool:
        """True if --fold cuts a development set from --train."""
        return any(item.name == "fold" for item in fields(self))

    def with_fold(self, number: int, total: int) -> Self:
        """The same options for part `number` (from 1) of `total` as the development set."""
        return replace(self, **{"fold": f"{number}/{total}"})

    def taking_over(self, settings: Mapping[str, Any]) -> Self:
        """The same options with settings of a model in place of those that are not given.

        An option that goes with one that is given is not taken over.
        """

        def is_free(item: Field[Any]) -> bool:
            leaders = [option_field(self, name) for name in item.metadata.get("goes_with", ()) if name != "kind"]
            return getattr(self, item.name) is None and not any(is_given(self, leader) for leader in leaders)

        names = {item.name for item in fields(self) if is_free(item)}
        return replace(self, **{name: value for name, value in settings.items() if name in names})

    def recorded(self) -> dict[str, Any]:
        """Settings of tables of your own that a slice records in the prepared folder, of whichever kind."""
        return {}

    def given(self, stage: Stage) -> dict[str, Any]:
        """The options of a stage that differ from their defaults, by field name.

        Example:
            SquadOptions(n_best=5, doc_stride=64).given("score")  ->  {"n_best": 5}
        """
        values = {item: getattr(self, item.name) for item in fields(self) if item.metadata["stage"] == stage}
        return {item.name: value for item, value in values.items() if value != item.default}


@dataclass(frozen=True, kw_only=True)
class FileOptions(TaskOptions):
    """Options of a task whose files may have any names."""

    train: str | None = option("file in --raw to train on, if its name differs from the usual ones", metavar="FILE")
    valid: str | None = option("file of the development set", metavar="FILE")
    test: str | None = option("file of the test set", metavar="FILE")

    @property
    def files(self) -> dict[str, str]:
        """The files that are named, by split."""
        names = {"train": self.train, "valid": self.valid, "test": self.test}
        return {split: name for split, name in names.items() if name is not None}


def own_kind_names() -> tuple[str, ...]:
    """Kinds of tables of your own, as --kind names them."""
    return tuple(name for kind in own_kinds() for name in _names_of(kind))


def kinds_with(name: str) -> tuple[str, ...]:
    """The kinds that have an option of `roberta prepare custom`, as --kind names them."""
    return tuple(each for kind, entry in KINDS.items() if name in entry.shared_options for each in _names_of(kind))


def find_own_kind(name: str) -> str:
    """The kind that --kind names, as prepared folders record it."""
    name = name.replace("_", "-")
    return next((kind for kind in own_kinds() if name in _names_of(kind)), name.replace("-", "_"))


def _names_of(kind: str) -> tuple[str, ...]:
    return kind.replace("_", "-"), *KINDS[kind].own_aliases


def of_kinds(*kinds: str) -> Mapping[str, tuple[str | None, ...]]:
    """`goes_with` of an option of these kinds; without --kind, a prepared folder has recorded the kind."""
    return {"kind": (*kinds, None)}


def of_kinds_with(name: str) -> Mapping[str, Callable[[], tuple[str | None, ...]]]:
    """`goes_with` of an option of the kinds that have it in their `KindEntry.shared_options`."""
    return {"kind": lambda: (*kinds_with(name), None)}


def set_texts(options: TaskOptions, *names: str) -> None:
    """Make fields that may be lists, as a prepared folder records them, into tuples of texts.

    Raises:
        ValueError: if a value occurs twice.
    """
    for name in names:
        value = getattr(options, name)
        values = None if value is None else tuple(map(str, value)) or None
        object.__setattr__(options, name, values)
        if values is not None and len(set(values)) != len(values):
            raise ValueError(f"--{name.replace('_', '-')} {' '.join(values)}: a value occurs twice.")


def __getattr__(name: str) -> Any:
    """The options of a benchmark, wherever its extension defines them, such as `CustomOptions`."""
    for family in BENCHMARKS:
        if BENCHMARKS[family].options.endswith(f":{name}"):
            return BENCHMARKS.load(family, "options")
    raise AttributeError(f"{__name__} has no {name}")
