"""What a user can change about the preparation and the scoring of a task: one dataclass for each benchmark.

The dataclasses of extensions can be imported from here, too, and those for tables of your own have options of all kinds
that are registered (`option_slices.py`).

`roberta prepare`, `roberta finetune` and `roberta evaluate` make their options from the fields, `question_length`
becomes --question-length, with the help text that stands here. In Python, pass the dataclass:

    PrepareSettings(task="squad2", ..., options=SquadOptions(doc_stride=64))

None stands for "not given": a new folder is then prepared with the paper's value, and a folder that exists is used
with the value it was prepared with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from roberta_plugin.finetuning.kinds import KINDS, SCHEMES, own_kinds
from roberta_plugin.registry import BENCHMARKS
from roberta_plugin.settings import Checked, is_given, option_field, setting

Stage = Literal["prepare", "score"]


def option(help_text: str, *, default: Any = None, stage: Stage = "prepare", **more: Any) -> Any:
    """A field that is an option of a stage; `more` as in `settings.setting`."""
    return setting(default, help_text, stage=stage, **more)


@dataclass(frozen=True, kw_only=True)
class TaskOptions(Checked):
    """Options of a task; the subclasses have them.

    A subclass may also be a slice of options that an extension adds to those of tables of your own
    (`registry.OWN_OPTIONS`): its methods call `super()`.
    """

    source: ClassVar[tuple[str, str]] = ("--raw", "the folder with the official files")
    """The option that says what is prepared, and what it takes."""

    @property
    def own_kind(self) -> str | None:
        """The kind of tables of your own, as prepared folders record it; None: the task's row has one."""
        return None

    @property
    def usual_raw(self) -> Path | None:
        """What --raw is if it is not given; None: it is needed."""
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


@dataclass(frozen=True, kw_only=True)
class GlueOptions(TaskOptions):
    """GLUE's tasks have no options."""


XNLI_LANGUAGES = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")


@dataclass(frozen=True, kw_only=True)
class XnliOptions(TaskOptions):
    """Options of XNLI."""

    language: str | None = option(
        "language of the training text and of the development set that chooses checkpoints (en)", choices=XNLI_LANGUAGES
    )


@dataclass(frozen=True, kw_only=True)
class SquadOptions(FileOptions):
    """Options of squad1 and squad2."""

    question_length: int | None = option("tokens of a question; longer ones are cut", default_text=64, smallest=1)
    doc_stride: int | None = option(
        "tokens of the passage between the starts of two windows",
        default_text="128, or half the room for the passage",
        smallest=1,
    )
    strict: bool = option(
        "refuse answers that are not at their answer_start, instead of looking for them", default=False
    )
    n_best: int | None = option(
        "candidate answers written for each question", default_text=20, stage="score", smallest=1
    )
    max_answer_length: int | None = option("most tokens of an answer", default_text=30, stage="score", smallest=1)
    null_threshold: float | None = option(
        "probability of no answer above which a question is left unanswered",
        default_text="the threshold with the best F1 on the development set",
        stage="score",
        smallest=0.0,
        largest=1.0,
        metavar="P",
        tasks=("squad2",),
    )


@dataclass(frozen=True, kw_only=True)
class RaceOptions(TaskOptions):
    """Options of race and multiple_choice."""

    question_length: int | None = option(
        "tokens of question and option together; longer ones are cut", default_text=128, smallest=1
    )
    order: str | None = option(
        "which text comes first in the model's input (passage); checkpoints of fairseq's sentence_ranking need "
        "question",
        choices=("passage", "question"),
    )


@dataclass(frozen=True, kw_only=True)
class TaggingOptions(FileOptions):
    """Options of conll2003, wnut17 and tagging."""

    doc_stride: int | None = option(
        "tokens between the starts of two windows of a text that does not fit into one", default_text=128, smallest=1
    )
    label_pieces: str | None = option(
        "which tokens of a word learn its tag (first); the first one also gives the prediction",
        choices=("first", "all"),
    )
    context: str | None = option(
        "what the model reads at once: each sentence alone (sentence), or a whole document in windows",
        choices=("sentence", "document"),
    )
    tokens_column: str | None = option(
        "column of the words: its number from 1 on (1), its name in the first line or in CoNLL-U (FORM), or a field of "
        "JSON Lines (tokens)",
        metavar="COLUMN",
    )
    tags_column: str | None = option(
        "the same for the tags (the last column; of CoNLL-U UPOS, or a feature such as Case; the field tags or "
        "ner_tags)",
        metavar="COLUMN",
    )
    scheme: str | None = option(
        "how the files mark entities (default: found out); io: by types without letters; plain: the tags are no "
        "entities, such as parts of speech",
        choices=SCHEMES,
    )
    types: str | None = option(
        "types of the entities, separated by commas (default: those of the files)", metavar="TYPES", tasks=("tagging",)
    )
    label_names: tuple[str, ...] | None = option(
        "names of the tags 0, 1, ..., where a file has numbers and does not carry their names",
        metavar="TAG",
        nargs="+",
        tasks=("tagging",),
    )
    strict: bool = option(
        "refuse tags that are not valid in their scheme, instead of reading them as conlleval does", default=False
    )
    valid_sequences: bool = option(
        "choose the most probable sequence of tags among those that are valid", stage="score", default=False
    )


@dataclass(frozen=True, kw_only=True)
class SuperGlueOptions(TaskOptions):
    """Options of WinoGrande; the other tasks of SuperGLUE have none."""

    size: str | None = option(
        "size of the training set (xl)", choices=("xs", "s", "m", "l", "xl"), tasks=("WinoGrande",)
    )


@dataclass(frozen=True, kw_only=True)
class SummariesOptions(FileOptions):
    """Options of summaries and cnn_dailymail."""

    sentence_length: int | None = option("tokens of a sentence; longer ones are cut", default_text=200, smallest=1)
    doc_stride: int | None = option(
        "tokens between the starts of two windows of a document that does not fit into one",
        default_text="half of --max-length",
        smallest=1,
    )
    oracle_sentences: int | None = option(
        "most sentences of a document that are labelled as its summary", default_text=3, smallest=1
    )
    id_field: str | None = option(
        "column of the id (id; without one, the number of the line)", metavar="FIELD", tasks=("summaries",)
    )
    text_field: str | None = option(
        "column of the text, or of a list of its sentences (text)", metavar="FIELD", tasks=("summaries",)
    )
    summary_field: str | None = option(
        "column of the summary, or of a list of its sentences (summary)", metavar="FIELD", tasks=("summaries",)
    )
    train: str | None = option(
        "table in --raw to train on, if its name differs from the usual ones", metavar="FILE", tasks=("summaries",)
    )
    valid: str | None = option("file of the development set", metavar="FILE", tasks=("summaries",))
    test: str | None = option("file of the test set", metavar="FILE", tasks=("summaries",))
    num_sentences: int | None = option("sentences of a summary", default_text=3, stage="score", smallest=1)
    length_share: float | None = option(
        "instead of a number of sentences: the share of the document's words that a summary has at least",
        stage="score",
        excludes=("num_sentences",),
        smallest=0.0,
        largest=1.0,
        metavar="SHARE",
    )
    min_probability: float | None = option(
        "instead of a number of sentences: choose those with this probability or more",
        stage="score",
        excludes=("num_sentences", "length_share"),
        smallest=0.0,
        largest=1.0,
        metavar="P",
    )
    no_trigram_blocking: bool = option(
        "also choose sentences that share three words in a row with one chosen before", stage="score", default=False
    )


def own_kind_names() -> tuple[str, ...]:
    """Kinds of tables of your own, as --kind names them."""
    return tuple(name for kind in own_kinds() for name in _names_of(kind))


def kinds_with(name: str) -> tuple[str, ...]:
    """The kinds that have an option of `roberta prepare custom`, as --kind names them."""
    return tuple(each for kind, entry in KINDS.items() if name in entry.own_options for each in _names_of(kind))


def find_own_kind(name: str) -> str:
    """The kind that --kind names, as prepared folders record it."""
    name = name.replace("_", "-")
    return next((kind for kind in own_kinds() if name in _names_of(kind)), name.replace("-", "_"))


def _names_of(kind: str) -> tuple[str, ...]:
    return kind.replace("_", "-"), *KINDS[kind].own_aliases


def of_kinds(*kinds: str) -> Mapping[str, tuple[str | None, ...]]:
    """`goes_with` of an option of these kinds; if --kind is not given, a prepared folder says which one it is."""
    return {"kind": (*kinds, None)}


def of_kinds_with(name: str) -> Mapping[str, Callable[[], tuple[str | None, ...]]]:
    """`goes_with` of an option of the kinds that have it in their `KindEntry.own_options`."""
    return {"kind": lambda: (*kinds_with(name), None)}


def set_texts(options: TaskOptions, *names: str) -> None:
    """Make tuples of texts of fields that may have lists of values, as a prepared folder records them.

    Raises:
        ValueError: if a value occurs twice.
    """
    for name in names:
        value = getattr(options, name)
        values = None if value is None else tuple(map(str, value)) or None
        object.__setattr__(options, name, values)
        if values is not None and len(set(values)) != len(values):
            raise ValueError(f"--{name.replace('_', '-')} {' '.join(values)}: one of them occurs twice.")


def __getattr__(name: str) -> Any:
    """The options of a benchmark, wherever its extension defines them, such as `CustomOptions`."""
    for family in BENCHMARKS:
        if BENCHMARKS[family].options.endswith(f":{name}"):
            return BENCHMARKS.load(family, "options")
    raise AttributeError(f"{__name__} has no {name}")
