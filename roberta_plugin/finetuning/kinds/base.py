"""The interface of a kind of task: facts for other packages, scores of raw outputs, and answers about records.

    training       head, task, head_sizes, metrics, selection
    exports        description, has_labels, hugging_face, graph_outputs; usage, card_rows, decision: texts of cards
    preparation    write: examples -> the files of a split
    raw outputs    outputs, outputs_by: the names and the rows of `RawOutputs`
    results        judged: raw outputs for a split -> entries and metrics; validated, outcome and baseline call it
    answers        answering: the kind with an open model, for `AnsweringKind`

Shapes: N examples or questions, S their sequences, C classes.
"""

from __future__ import annotations

import logging
from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.finetuning.kinds import KINDS, kind_class, own_kinds
from roberta_plugin.finetuning.kinds.answering import OWN as OWN
from roberta_plugin.finetuning.kinds.answering import Answer as Answer
from roberta_plugin.finetuning.kinds.answering import AnsweringKind, AnswerOptions, Hub
from roberta_plugin.finetuning.kinds.answering import Official as Official
from roberta_plugin.finetuning.kinds.answering import marked as marked
from roberta_plugin.finetuning.kinds.outputs import DEVELOPMENT, HELD_OUT, Decisions, Outcome, RawOutputs
from roberta_plugin.finetuning.kinds.scored import ScoredKind
from roberta_plugin.finetuning.kinds.usage import Exported, pipeline_block
from roberta_plugin.finetuning.layouts import POOLINGS
from roberta_plugin.finetuning.layouts.texts import Encoder
from roberta_plugin.finetuning.prepared import PreparedSplit, SplitWriter
from roberta_plugin.finetuning.records import WhiteSpace
from roberta_plugin.settings import is_given

logger = logging.getLogger(__name__)

DEFAULT_THRESHOLD = 0.5
TEXT_CLASSES = "roberta_sentence_prediction"  # the fairseq task of texts and pairs


@dataclass(frozen=True, kw_only=True)
class HuggingFace:
    """A kind in the formats of Hugging Face."""

    suffix: str
    """End of the name of the class, such as ForMaskedLM."""
    names: Mapping[str, str]
    """Modules of our head -> theirs."""
    pipeline: str
    """Name of the task on the hub."""
    problem_type: str = ""
    """The problem_type of ForSequenceClassification."""
    optional: tuple[str, ...] = ()
    """Modules of ours that their class does not have, and that do not change answers if their weights are 0."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Modules of ours -> their outputs, other than the width of the model and, of `out_proj`, the classes."""
    reads_options: bool = False
    """True if their class reads the options of a question (N, O, T) at once."""
    peft_task: str | None = None
    """Its task_type in peft."""
    has_pooler: bool = True
    """False if its head has no layer with --pooler-activation-fn."""
    least_outputs: int = 1
    """The smallest number of outputs of a head of this kind."""
    is_asked_by_words: bool = False
    """True if transformers gives it lists of words, each with a space before it (add_prefix_space)."""
    num_outputs: int | None = None
    """Outputs of a head without classes; None: one for each class."""
    arguments: str | None = ""
    """Further arguments of `pipeline` that give the answers of this kind; None: there is no such pipeline."""
    task: str = ""
    """The fine-tuning task that an imported model records."""
    task_without_optional: str = ""
    """The same for a model without the `optional` modules."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings of fine-tuning that an imported model records."""
    code: Path | None = None
    """A file with the class RobertaPlugin + `suffix`, where transformers has none: it is exported beside
    `conversion/modeling_roberta_plugin.py`, from which it may import."""
    auto_class: str = ""
    """The class of transformers that opens it, such as AutoModelForSequenceClassification; goes with `code`."""


SEQUENCE_CLASSIFICATION: dict[str, Any] = {
    "suffix": "ForSequenceClassification",
    "names": {"dense": "classifier.dense", "out_proj": "classifier.out_proj"},
    "pipeline": "text-classification",
    "peft_task": "SEQ_CLS",
}


class Kind(ScoredKind, AnsweringKind, ABC):
    """One kind of task, with the settings that a prepared folder or a checkpoint records."""

    description: ClassVar[str]
    """The use of a model of this kind, for model cards."""
    default_head_name: ClassVar[str] = "sentence_classification_head"
    task: ClassVar[str] = TEXT_CLASSES
    """The name of the fairseq task and criterion that train it."""
    also_trained_by: ClassVar[tuple[str, ...]] = ()
    """Further tasks of fairseq whose models are of this kind."""
    learns_numbers: ClassVar[bool] = False
    """True if the settings may have the mean and the deviation by which its numbers are standardized."""
    has_labels: ClassVar[bool] = False
    """True if its classes have names."""
    averages_labels: ClassVar[bool] = True
    """True if averages over its labels need examples of each label."""
    can_smooth: ClassVar[bool] = False
    """True if its loss is a cross-entropy over labels, so that --label-smoothing can be used."""
    can_pack: ClassVar[bool] = True
    """True if the head can read packed rows."""
    outputs: ClassVar[tuple[str, ...]] = ("logits",)
    """Names in `RawOutputs`, in the order of the head's outputs."""
    validated_outputs: ClassVar[tuple[str, ...]] = ()
    """Names in `RawOutputs` that a validation collects; empty: all of `outputs`."""
    outputs_by: ClassVar[Mapping[str, str]] = {}
    """Outputs without a row for each sequence -> `PER_TOKEN`, or the array of a split with the first row of each
    example."""
    reads_logits: ClassVar[str] = ""
    """If not by softmax: how it reads the logits of a classification head, as the beginning of a sentence."""
    is_compared_with_words: ClassVar[bool] = False
    """True if reports have the metrics of TF-IDF with logistic regression (`bag_of_words.py`) beside the model's."""
    graph_outputs: ClassVar[tuple[str, ...]] = ("logits",)
    """Names of its outputs in an exported graph."""
    decides: ClassVar[str] = "answers"
    """What its largest logits decide, as a noun; scores or vectors for kinds that do not decide."""
    hugging_face: ClassVar[HuggingFace | None] = None
    """None: Hugging Face has no class for it."""
    recorded: ClassVar[Mapping[str, Callable[[Any], bool]]] = {}
    """Settings that an export writes to config.json, in an entry named like the kind -> True for valid values."""
    also_recorded: ClassVar[Mapping[str, Callable[[Any], bool]]] = {}
    """The same for settings that a model need not have."""
    white_space: ClassVar[WhiteSpace] = "stripped"
    """How the model reads the white space of a text."""
    baseline_name: ClassVar[str] = "a constant answer"
    """A description of its baseline."""
    free_settings: ClassVar[tuple[str, ...]] = ("max_length",)
    """Settings that may differ between the data of fine-tuning and other data (`may_differ`), besides those of its
    base classes."""
    cut_settings: ClassVar[tuple[str, ...]] = ()
    """Settings that say which rows of the training table are held out of the training."""
    scoring: ClassVar[tuple[str, ...]] = ()
    """Its options of the scoring."""

    def __init__(self, settings: Mapping[str, Any], *, task_name: str = "", official: Official | None = None) -> None:
        """Make a kind from settings; `task_name` is the fine-tuning task, and `official` are its rules.

        Without a task, the settings are for tables of your own.
        """
        self.settings, self.task_name, self.official = (
            settings,
            task_name,
            official or (Official() if task_name else OWN),
        )
        self.is_answering = False

    @property
    def labels(self) -> list[str]:
        """The labels in the order of their numbers."""
        return list(self.settings["labels"])

    @property
    def window_pooling(self) -> str | None:
        """How the head combines the windows of an example: the `pooling` of `models/heads.pool_windows`; None: each
        sequence has an answer of its own."""
        pooling: str | None = self.settings.get("window_pooling")
        if pooling not in (None, *POOLINGS):
            raise ValueError(
                f"The setting window_pooling of prepared.json is {pooling!r}, which is none of {', '.join(POOLINGS)}: "
                "prepare again."
            )
        return pooling

    def reduced(self, outputs: Any) -> Any:
        """The `validated_outputs` of a batch, from all outputs (tensors)."""
        return outputs

    def head_sizes(self) -> dict[str, int]:
        """Arguments of a new head."""
        return {"num_classes": len(self.labels) if self.has_labels else 1}

    @classmethod
    def taken_over(cls, trained: Mapping[str, Any]) -> dict[str, Any]:
        """Settings of a model (`trained`) that further fine-tuning uses unless options replace them.

        They say how the model reads texts, and how their features are combined.
        """
        is_same = trained.get("kind") == cls.name and "max_length" in trained
        return {"max_length": trained["max_length"]} if is_same else {}

    def keeps_rows(self, labels: Sequence[str]) -> bool:
        """True if a training keeps the rows of single labels: `labels` are those that both models have."""
        return False

    @classmethod
    def is_described_by(cls, settings: Mapping[str, Any]) -> bool:
        """True if a model with these settings, but without a fine-tuned task or head, is of this kind."""
        return False

    @classmethod
    def may_differ(cls, setting: str) -> bool:
        """True if the head's answers keep their meaning for data with another value of this setting."""
        free = (vars(each).get("free_settings", ()) for each in cls.__mro__)
        return setting in cls.cut_settings or any(setting in names for names in free)

    @classmethod
    def exported_white_space(cls, settings: Mapping[str, Any]) -> WhiteSpace | None:
        """How the tokenizer of an export reads the white space of a text; None: as the model does."""
        return None

    def is_cut(self, split: str) -> bool:
        """True if the rows of a split were held out of the training table, and have no file of their own."""
        has_share = any(self.settings.get(name) is not None for name in self.cut_settings)
        return has_share and split in (DEVELOPMENT, HELD_OUT)

    @classmethod  # most kinds have nothing to check
    def check_foreign(cls, made: Mapping[str, Any], ours: Mapping[str, Any], *, checkpoint: Path, data: Path) -> None:
        """Refuse data with the settings `ours` for a model without a fine-tuning task, with the settings `made`."""

    def lacks(self, split: PreparedSplit) -> str:
        """Say why a split has no loss, such as "has no scores"; empty: it has one."""
        return ""

    def remarks(self, split: PreparedSplit) -> Iterator[str]:
        """Sentences on a split for the user, besides those on cut texts and missing labels."""
        return iter(())

    def is_constant(self, split: PreparedSplit) -> bool:
        """True if a split has two or more examples, and all have the same number to learn."""
        return False

    def labels_without_examples(self, split: PreparedSplit) -> list[str]:
        """The labels of the settings that no example of a labelled split has."""
        labels = [str(label) for label in self.settings.get("labels") or ()]
        if not self.has_labels or not len(split):
            return []
        if "labels" in split.columns:
            counts: list[int] = np.count_nonzero(split.columns["labels"], axis=0).tolist()
        elif (numbers := self.label_numbers(split)) is not None:
            counts = np.bincount(np.asarray(numbers, dtype=np.int64), minlength=len(labels)).tolist()
        else:
            return []
        return [label for label, count in zip(labels, counts, strict=False) if not count]

    def label_numbers(self, split: PreparedSplit) -> NDArray[Any] | None:
        """The numbers of the right labels of a split; None: it has none."""
        return split.columns.get("label")

    def check_smoothing(self) -> None:
        """Refuse --label-smoothing for a kind that does not choose one of several labels."""
        if not self.can_smooth:
            kinds = ", ".join(name for name in KINDS if kind_class(name).can_smooth)
            raise ValueError(
                f"--label-smoothing goes with kinds that choose one of several labels ({kinds}), but this is "
                f"{self.name}. Leave it out."
            )

    def constant(self, outputs: RawOutputs, train: PreparedSplit) -> RawOutputs | None:
        """Outputs that give the same answer to every input, in the shapes of the model's `outputs`; None if the kind
        has no such answer.

        The answer is the most frequent label of the training set, its mean number, the first of equal scores, or "no
        answer".
        """
        return None if outputs.logits is None else RawOutputs(logits=np.zeros_like(outputs.logits))

    def only_answer(self, outputs: RawOutputs, split: PreparedSplit) -> str | None:
        """The label, tag or number that a model gives to every input of a split; None if its answers differ."""
        return None

    # Words of model cards.

    def usage(self, model: Exported) -> str:
        """Code for transformers that gives the answers of an exported folder, and a note on its limits."""
        assert self.hugging_face is not None, "there is a class for it"
        call = f'"{self.hugging_face.pipeline}", "FOLDER"{self.hugging_face.arguments or ""}'
        return pipeline_block(call, 'print(pipe("A text."))')

    def card_rows(self, model: Exported) -> dict[str, str]:
        """Rows of a model card, besides those on sizes."""
        return {"Classes": ", ".join(model.labels)} if model.labels else {}

    def decision(self, model: Exported) -> dict[str, str]:
        """The numbers of `decides_by` that a model has, in words such as "the threshold 0.914" -> the rule of each."""
        return {}

    # Prepared data and results.

    def write(
        self, split: SplitWriter, examples: Iterable[Any], encoder: Encoder, *, max_length: int
    ) -> Sequence[Mapping[str, Any]]:
        """Write a split: the inputs and numbers of each example, and a record with its id.

        Returns:
            Suspicious examples, which are listed in SPLIT.doubtful.jsonl.
        """
        raise NotImplementedError(f"{self.name} is not trained")

    def judged(self, split: PreparedSplit, members: Sequence[RawOutputs], decisions: Decisions) -> Outcome:
        """Predictions and metrics, without the baseline; the members of an ensemble are averaged.

        Raises:
            ValueError: see `Decisions.find`.
        """
        raise NotImplementedError(f"{self.name} is not trained")

    def validated(self, split: PreparedSplit, outputs: RawOutputs, options: Mapping[str, Any]) -> Mapping[str, float]:
        """The metrics of a validation, `metrics` among them; a threshold is found on the split itself.

        `options` are the options of the criterion.
        """
        decisions = Decisions(DEVELOPMENT, options)
        outcome = self.judged(split, [outputs], decisions)
        outcome = self._by_threshold(replace(outcome, numbers=decisions.used))
        assert outcome.measure is not None, "a validation has right answers"
        return {**outcome.measure(np.ones(outcome.num_examples)), **decisions.used}

    def outcome(
        self,
        split: PreparedSplit,
        members: Sequence[RawOutputs],
        *,
        options: Mapping[str, Any],
        train: PreparedSplit | None = None,
    ) -> Outcome:
        """Predictions and metrics; with a training set, also the metrics of its constant answer."""
        decisions = Decisions(split.name, options)
        outcome = self.judged(split, members, decisions)
        if outcome.measure is None:
            return outcome
        outcome = replace(outcome, numbers=decisions.used)
        if train is not None:
            decisions = Decisions(split.name, decisions.used)
            outcome = replace(outcome, baseline=self.baseline(split, members[0], train, decisions))
        return self._by_threshold(outcome)

    def _by_threshold(self, outcome: Outcome) -> Outcome:
        """The outcome, with the names that scores have at a threshold if one has decided."""
        has_decided = any(name.endswith("threshold") for name in outcome.numbers)
        return outcome.renamed(self.at_threshold) if has_decided else outcome

    def baseline(
        self, split: PreparedSplit, outputs: RawOutputs, train: PreparedSplit, decisions: Decisions
    ) -> dict[str, float]:
        """The metrics of the constant answer on a labelled split."""
        constant = self.constant(outputs, train)
        judged = None if constant is None else self.judged(split, [constant], decisions)
        if judged is None or judged.measure is None:
            return {}
        return judged.measure(np.ones(judged.num_examples))

    def check_scoring(self, options: Any, split: PreparedSplit) -> None:
        """Refuse options of the scoring that this kind does not have, or for which the development set is too small."""
        for name in options.given("score"):
            if name not in self.scoring:
                kinds = " and ".join(each for each in own_kinds() if name in kind_class(each).scoring)
                raise ValueError(f"--{name.replace('_', '-')} goes with {kinds}, but this is {self.name}.")

    # Answers about records.

    @classmethod
    def answering(
        cls,
        hub: Hub,
        options: AnswerOptions,
        official: Official | None = None,
        numbers: Mapping[str, float] | None = None,
    ) -> Self:
        """The kind with an open model, ready to answer; `numbers` are the model's thresholds and temperatures."""
        goes_with: dict[str, list[str]] = {}
        for kind, entry in KINDS.items():
            for option in entry.options:
                goes_with.setdefault(option, []).append(kind)
        if cls.head in ("", "masked_lm"):
            goes_with["head"] = ["kinds that are fine-tuned"]
        known = {item.name: item for item in fields(options)}
        for name, kinds in goes_with.items():
            if cls.name not in kinds and name in known and is_given(options, known[name]):
                raise ValueError(f"--{name.replace('_', '-')} goes with {' and '.join(kinds)}, but this is {cls.name}.")
        if options.text_pair_column is not None and len(cls.fields) == 1:
            raise ValueError(f"--text-pair-column goes with models of two texts, but this one is for {cls.name}.")
        made = cls(hub.trained_on.get("settings", {}), task_name=str(hub.trained_on.get("task")), official=official)
        made.is_answering = True
        made.hub, made.options = hub, options
        made.numbers = numbers or {}
        made.max_length = options.max_length or hub.trained_length
        if made.max_length > hub.longest:
            raise ValueError(
                f"--max-length {made.max_length}: the model has {hub.max_positions} positions. Give at most that."
            )
        made.open()
        return made


def certain(shape: tuple[int, ...], column: Any) -> NDArray[np.float32]:
    """Logits (S, C) or (T_s, C) that make one class certain."""
    logits = np.zeros(shape, dtype=np.float32)
    logits[:, column] = 100.0
    return logits


def logits_of(members: Sequence[RawOutputs]) -> list[NDArray[np.float64]]:
    """The logits (S, C) of each member."""
    logits = [member.logits.astype(np.float64) for member in members if member.logits is not None]
    assert len(logits) == len(members) > 0, "this kind has a classification head"
    return logits


def is_length(value: object) -> bool:
    """True if a value can be a number of tokens."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 20


def rounded(value: float) -> float:
    """A probability with six decimals, as in files."""
    return round(float(value), 6)
