"""What a user can change about the preparation and the scoring of a task: one dataclass for each benchmark.

`roberta prepare`, `roberta finetune` and `roberta evaluate` make their options from the fields, `question_length`
becomes --question-length, with the help text that stands here. In Python, pass the dataclass:

    PrepareSettings(task="squad2", ..., options=SquadOptions(doc_stride=64))

None stands for "not given": a new folder is then prepared with the paper's value, and a folder that exists is used
with the value it was prepared with.
"""

from __future__ import annotations

from argparse import BooleanOptionalAction
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from roberta_plugin.finetuning.kinds import KINDS, SCHEMES, own_kinds
from roberta_plugin.finetuning.layouts import LONG_TEXTS, POOLINGS
from roberta_plugin.settings import Checked, setting
from roberta_plugin.tables import separator

Stage = Literal["prepare", "score"]


def option(help_text: str, *, default: Any = None, stage: Stage = "prepare", **more: Any) -> Any:
    """A field that is an option of a stage; `more` as in `settings.setting`."""
    return setting(default, help_text, stage=stage, **more)


@dataclass(frozen=True, kw_only=True)
class TaskOptions(Checked):
    """Options of a task; the subclasses have them."""

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


# Kinds of own data, as --kind names them; `pair` is a classification of two texts.
OWN_KINDS = (*(name.replace("_", "-") for name in own_kinds()), "pair")


def one_of_kinds(*kinds: str) -> Mapping[str, tuple[str | None, ...]]:
    """`goes_with` of an option of these kinds; if --kind is not given, a prepared folder says which one it is."""
    return {"kind": (*kinds, None)}


def kinds_with(name: str) -> tuple[str, ...]:
    """The kinds that have an option of `roberta prepare custom`, as --kind names them."""
    kinds = [kind.replace("_", "-") for kind, entry in KINDS.items() if name in entry.own_options]
    return tuple(each for kind in kinds for each in ((kind, "pair") if kind == "classification" else (kind,)))


_LABELS = one_of_kinds("classification", "pair")
_WINDOWS = {"long_texts": ("windows",)}
_EMBEDDING = one_of_kinds("embedding")


@dataclass(frozen=True, kw_only=True)
class CustomOptions(FileOptions):
    """Options of custom: tables of your own."""

    kind: str | None = option("what is learned", default_text="classification", choices=OWN_KINDS)
    train: str | None = option(
        "table to train on, also by URL: .csv, .tsv, .jsonl, also .gz, .zst, .xz, .bz2, .parquet, .arrow or a folder "
        "of datasets (tagging: no .csv, but CoNLL columns); relative to --raw, if given",
        metavar="FILE",
    )
    valid: str | None = option("table of the development set (default: a share of --train)", metavar="FILE")
    test: str | None = option("table of the test set, which may lack the label column", metavar="FILE")
    text_column: str | None = option(
        "column of the text (text; question-answering: context; tagging: the words, tokens)", metavar="COLUMN"
    )
    text_pair_column: str | None = option(
        "column of a second text; with multiple-choice and question-answering, of the question; with embedding, of the "
        "text that is near",
        goes_with=one_of_kinds(*(kind for kind in OWN_KINDS if kind != "tagging")),
        metavar="COLUMN",
    )
    label_column: tuple[str, ...] | None = option(
        "column of the label or number; multi-label: of a list of labels, or a column of 0 and 1 for each label; "
        "embedding: of a pair's score",
        default_text="label; question-answering: answer; tagging: tags",
        metavar="COLUMN",
        nargs="+",
    )
    choices_columns: tuple[str, ...] | None = option(
        "multiple-choice: columns of the options, or one column of lists",
        default_text="options",
        goes_with=one_of_kinds("multiple-choice"),
        metavar="COLUMN",
        nargs="+",
    )
    negative_column: tuple[str, ...] | None = option(
        "embedding: columns of texts that are wrong for the text of --text-column",
        goes_with=_EMBEDDING,
        metavar="COLUMN",
        nargs="+",
    )
    embedding_loss: str | None = option(
        "embedding: what is learned",
        default_text="simcse from texts, multiple-negatives-ranking from pairs and wrong texts, cosine-similarity from "
        "pairs with a --label-column",
        goes_with=_EMBEDDING,
        choices=("multiple-negatives-ranking", "triplet", "cosine-similarity", "simcse"),
    )
    score_range: tuple[float, ...] | None = option(
        "embedding: lowest and highest score of --label-column",
        default_text="0 1",
        goes_with=_EMBEDDING,
        metavar="NUMBER",
        nargs=2,
    )
    pooling: str | None = option(
        "embedding: the mean of all tokens, the features of <s>, or the largest values",
        default_text="as the model that is fine-tuned, else mean",
        goes_with=_EMBEDDING,
        choices=("mean", "first", "max"),
    )
    normalize: bool | None = option(
        "embedding: give vectors the length 1, or leave theirs",
        default_text="as the model that is fine-tuned, else theirs",
        goes_with=_EMBEDDING,
        action=BooleanOptionalAction,
    )
    id_column: str | None = option(
        "column of the ids in the prediction files (default: the line number)", metavar="COLUMN"
    )
    group_column: str | None = option(
        "column of groups, such as a person or document, whose rows are all in the training or all in the development "
        "set",
        default_text="the text; of pairs, the text that most rows share",
        excludes=("valid",),
        metavar="COLUMN",
    )
    labels: tuple[str, ...] | None = option(
        "the labels in the order of their numbers",
        default_text="those found, sorted",
        goes_with=one_of_kinds(*kinds_with("labels")),
        metavar="LABEL",
        nargs="+",
    )
    label_names: tuple[str, ...] | None = option(
        "names of the labels or tags 0, 1, ..., where the column has numbers and the file does not carry their names",
        default_text="those of the file, dataset_info.json or README.md",
        goes_with=one_of_kinds(*kinds_with("label_names")),
        metavar="LABEL",
        nargs="+",
    )
    positive_label: str | None = option(
        "classification: of two labels, the one that f1, average_precision and thresholds are of",
        default_text="the second",
        goes_with=_LABELS,
        metavar="LABEL",
    )
    delimiter: str | None = option(
        "separator of the columns of .csv, such as ';' or '\\t'; '\\t' also of a .tsv whose cells are quoted as in CSV",
        default_text="a comma",
        metavar="CHARACTER",
    )
    scheme: str | None = option(
        "tagging: how the tables mark entities; io: by types without letters; plain: the tags are no entities, such as "
        "parts of speech",
        default_text="found out",
        goes_with=one_of_kinds("tagging"),
        choices=SCHEMES,
    )
    decimal: str | None = option(
        "decimal mark of the numbers in --label-column",
        default_text="a point",
        goes_with=one_of_kinds("regression", "embedding"),
        choices=(".", ","),
        metavar="CHARACTER",
    )
    label_separator: str | None = option(
        "multi-label: separator of the labels of a row",
        default_text="a comma",
        goes_with=one_of_kinds("multi-label"),
        metavar="TEXT",
    )
    valid_share: float | None = option(
        "share of the texts of each label in --train that is the development set, by a hash of the text; with a fold, "
        "it chooses, and the fold judges",
        default_text="0.1, with a fold 0",
        excludes=("valid",),
        smallest=0.001,
        largest=0.999,
        metavar="SHARE",
    )
    fold: str | None = option(
        "part K of N of the texts of --train is the development set; `roberta finetune --folds` prepares all",
        excludes=("valid",),
        metavar="K/N",
    )
    class_weights: tuple[str, ...] | None = option(
        "weights of the labels in the loss: none, balanced (inverse to their frequency), LABEL=WEIGHT for some labels "
        "(the others have 1), or a table with the columns label and weight",
        default_text="none",
        metavar="WEIGHTS",
        nargs="+",
    )
    long_texts: str | None = option(
        "what is read of a text longer than --max-length: its head, its tail, both, or all of it in windows whose "
        "features are pooled",
        default_text="as the model that is fine-tuned, if it has this kind, else head",
        goes_with=one_of_kinds(*kinds_with("long_texts")),
        choices=LONG_TEXTS,
    )
    window_stride: int | None = option(
        "--long-texts windows: most tokens between the starts of two windows",
        default_text="as many as a window has: no overlap",
        goes_with=_WINDOWS,
        smallest=1,
    )
    max_windows: int | None = option(
        "--long-texts windows: most windows of a text in training, evenly spread; else all are read",
        default_text=8,
        goes_with=_WINDOWS,
        smallest=1,
    )
    window_pooling: str | None = option(
        "--long-texts windows: mean or maximum of their features",
        default_text="mean",
        goes_with=_WINDOWS,
        choices=POOLINGS,
    )
    threshold: float | None = option(
        "probability from which a label is predicted (of two, --positive-label); of no answer, above which a question "
        "has none",
        default_text="the best by F1 on the development set; of two labels 0.5",
        stage="score",
        goes_with=one_of_kinds("classification", "pair", "multi-label", "question-answering"),
        excludes=("tune_threshold",),
        smallest=0.0,
        largest=1.0,
        metavar="P",
    )
    tune_threshold: str | None = option(
        "classification: instead of --threshold, the one with the best value of this metric on the development set; f1 "
        "is that of --positive-label",
        stage="score",
        goes_with=_LABELS,
        choices=("f1", "macro_f1", "mcc", "accuracy", "acc_and_f1"),
    )
    calibrate: bool = option(
        "classification: divide the logits by the temperature with the smallest loss on the development set, in "
        "predictions too",
        stage="score",
        goes_with=_LABELS,
        default=False,
    )
    temperature: float | None = option(
        "classification: divide the logits by this number",
        stage="score",
        goes_with=_LABELS,
        excludes=("calibrate",),
        above=0.0,
        metavar="T",
    )

    def __post_init__(self) -> None:
        """Check the values.

        Values may be those that a prepared folder records: lists instead of tuples, and multi_label for multi-label.
        """
        for name in ("label_column", "choices_columns", "labels", "label_names", "negative_column"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, tuple(map(str, value)) or None)
        if isinstance(self.class_weights, str):
            object.__setattr__(self, "class_weights", (self.class_weights,))
        if self.kind is not None:
            object.__setattr__(self, "kind", self.kind.replace("_", "-"))
        super().__post_init__()
        kind = self.kind or "classification"
        if self.class_weights not in (None, ("none",)) and kind not in kinds_with("class_weights"):
            raise ValueError(f"--class-weights goes with labels, and --kind {kind} has none of its own: leave it out.")
        if kind == "pair" and self.text_pair_column is None:
            raise ValueError("--kind pair needs --text-pair-column: the column of the second text.")
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", separator(self.delimiter))
        if len(self.label_column or ()) > 1 and kind != "multi-label":
            raise ValueError(f"--label-column takes one column with --kind {kind}; several go with multi-label.")
        if self.score_range is not None and not self.score_range[0] < self.score_range[1]:
            raise ValueError(
                f"--score-range {self.score_range[0]:g} {self.score_range[1]:g}: give the lowest score first, then the "
                "highest."
            )
        for name in ("labels", "label_names", "label_column", "choices_columns", "negative_column"):
            values = getattr(self, name) or ()
            if len(set(values)) != len(values):
                raise ValueError(f"--{name.replace('_', '-')} {' '.join(values)}: one of them occurs twice.")
        if self.fold is not None:
            self.part()

    def part(self) -> tuple[int, int]:
        """Which part is the development set, and of how many.

        Example:
            CustomOptions(fold="2/5").part()  ->  (2, 5)

        Raises:
            ValueError: if --fold does not say it.
        """
        number, separator, total = (self.fold or "").partition("/")
        if not separator or not number.isdecimal() or not total.isdecimal() or not 1 <= int(number) <= int(total) != 1:
            raise ValueError(f"--fold must be a part and their number, such as 2/5, got {self.fold!r}.")
        return int(number), int(total)
