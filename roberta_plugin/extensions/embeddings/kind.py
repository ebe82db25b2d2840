"""A text -> a vector. Texts that mean the same get vectors in the same direction.

The columns of a table decide how a model learns from it (`--embedding-loss`):

    text                     simcse: the text is near itself under another dropout, and far from the batch's other texts
    text, pair               multiple-negatives-ranking: the text is near its pair, and far from the batch's other pairs
    text, pair, wrong texts  the same, and far from the wrong texts; or triplet: nearer to the pair by a margin
    text, pair, score        cosine-similarity: their cosine is the score, from 0 to 1

The names are from sentence-transformers. A development set consists of pairs. With scores, it is measured by the
correlation of the cosines with them; without scores, by the rank of the right text among all texts.

Columns: `texts`, a number for each text of the example, the same for equal texts; `label`, the score from 0 to 1.

A model that was not trained for vectors has vectors, too: the mean of its last layer, or its features of <s>.

Example: {"text": "A cat."} -> {"embedding": [0.1, -0.3, ...]}. A trained model also compares texts: {"text": "A cat.",
"text_pair": "A dog."} -> {"score": 0.61}, their cosine.

Shapes: N examples of a split, K texts of an example, S = N * K, D dimensions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from roberta_plugin.extensions.embeddings import similarity
from roberta_plugin.extensions.embeddings.prompts import (
    DEFAULT,
    INCLUDED,
    PROMPTS,
    are_prompts,
    find_prompt,
    num_skipped,
)
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.kinds import metrics
from roberta_plugin.finetuning.kinds.answering import Answer, marked
from roberta_plugin.finetuning.kinds.bag_of_words import tf_idf
from roberta_plugin.finetuning.kinds.base import HuggingFace, is_length, rounded
from roberta_plugin.finetuning.kinds.outputs import Decisions, Outcome, RawOutputs, ids_of
from roberta_plugin.finetuning.kinds.tables import TableKind
from roberta_plugin.finetuning.kinds.usage import Exported, python_block
from roberta_plugin.finetuning.layouts.texts import Encoder, TextLayout, inputs_of, sentence_inputs
from roberta_plugin.finetuning.prepared import PreparedSplit, SplitWriter
from roberta_plugin.finetuning.records import WhiteSpace, as_read, column_of, number_in, number_remedy, text_of
from roberta_plugin.models.heads import Pooling
from roberta_plugin.record import differences, listed, refuse
from roberta_plugin.tables import Row, named_format, scan_table, short

logger = logging.getLogger(__name__)

VECTOR = "embedding"
SIMCSE, RANKING, TRIPLET, COSINE = "simcse", "multiple-negatives-ranking", "triplet", "cosine-similarity"
IN_BATCH = (RANKING, SIMCSE)  # losses whose wrong texts are the other texts of the batch
# pooling -> words for a model card, and code
_POOLED = {
    "mean": ("the mean", "(features * is_token).sum(dim=1) / is_token.sum(dim=1)"),
    "first": ("the features of `<s>`", "features[:, 0]"),
    "max": ("the largest values", "features.masked_fill(is_token == 0, -torch.inf).amax(dim=1)"),
}
_POOLINGS = ("pooling", "normalize")
_SAME = 1e-6  # smallest variance of vectors of length 1 that differ


class Embedding(TableKind):
    """Vectors from the features of the encoder, which any model has."""

    name = "embedding"
    description = "gives a vector to a text"
    head = ""
    default_head_name = "encoder"
    task = "roberta_embedding"
    can_pack = False
    outputs = ("vectors",)
    decides = "vectors"
    graph_outputs = ("sentence_embedding",)
    hugging_face: ClassVar[HuggingFace | None] = HuggingFace(
        suffix="Model", names={}, pipeline="feature-extraction", has_pooler=False
    )
    recorded: ClassVar[Mapping[str, Callable[[Any], bool]]] = {
        "pooling": lambda value: value in get_args(Pooling),
        "normalize": lambda value: isinstance(value, bool),
        "max_length": is_length,
    }
    also_recorded: ClassVar[Mapping[str, Callable[[Any], bool]]] = {
        PROMPTS: are_prompts,
        DEFAULT: lambda value: isinstance(value, str),
        INCLUDED: lambda value: isinstance(value, bool),
    }
    fields: ClassVar[tuple[str, ...]] = ("text", "text_pair")
    baseline_name = "the cosine of TF-IDF"

    @override
    def usage(self, model: Exported) -> str:
        arguments = "".join(f", {name}={value!r}" for name, value in model.model_arguments.items())
        vectors = _POOLED[model.pooling][1]
        texts, leaves_out = '["A text.", "Another one."]', ""
        if prompt := find_prompt(self.settings, None):
            texts = f'[{prompt!r} + text for text in ("A text.", "Another one.")]'
            if self.settings.get(INCLUDED) is False:
                vectors = vectors.replace("features[:, 0]", "features[:, skipped]")
                leaves_out = f'skipped = len(tokenizer({prompt!r})["input_ids"]) - 1\nis_token[:, :skipped] = 0\n'
        if model.is_normalized:
            vectors += "\nvectors = torch.nn.functional.normalize(vectors, dim=-1)"
        return python_block(f"""\
import torch
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModel.from_pretrained("FOLDER"{arguments})
texts = {texts}
inputs = tokenizer(texts, padding=True, {model.cut()}, return_tensors="pt")
is_token = inputs["attention_mask"][:, :, None]{".clone()" if leaves_out else ""}
{leaves_out}with torch.no_grad():
    features = model(**inputs).last_hidden_state
vectors = {vectors}
print(torch.cosine_similarity(vectors[0], vectors[1], dim=0).item())""")

    @override
    def card_rows(self, model: Exported) -> dict[str, str]:
        over = "" if model.pooling == "first" else " over all tokens of the text, the special ones included"
        divided = ", divided by their length" if model.is_normalized else ""
        prompts = {name: text for name, text in (self.settings.get(PROMPTS) or {}).items() if text}
        listed = ", ".join(f"{name} `{text!r}`" for name, text in prompts.items())
        default = self.settings.get(DEFAULT)
        usual = f"; {default} unless another one is meant" if default in prompts else ""
        left_out = ", but its tokens are no part of the vector" if self.settings.get(INCLUDED) is False else ""
        return {
            "Vectors": f"{_POOLED[model.pooling][0]} of the last layer{over}{divided}",
            **({"Prompts": f"one goes in front of each text{left_out}: {listed}{usual}"} if prompts else {}),
        }

    @property
    def is_trained(self) -> bool:
        """True if the model was trained for vectors, by its settings."""
        return "embedding_loss" in self.settings

    @property
    def pooling(self) -> str:
        """How the features of a text become a vector: as the options of `predict` say, as in training, or the mean."""
        wanted = self.options.pooling if self.is_answering else None
        return wanted or str(self.settings.get("pooling", "mean"))

    @property
    def normalizes(self) -> bool:
        """True if vectors have the length 1."""
        return bool(self.settings.get("normalize")) or (self.is_answering and self.options.normalize)

    @property
    def prompt(self) -> str:
        """What stands in front of each text of an answer."""
        return find_prompt(self.settings, self.options.prompt_name)

    @property
    def is_scored(self) -> bool:
        """True if pairs have scores."""
        return bool(self.settings["label_column"])

    # Answers about records.

    @override
    def open(self) -> None:
        pass

    @override
    def read_question(self, row: Row) -> tuple[str, ...]:
        """The text, its pair and its wrong texts, as far as the row has them."""
        column = column_of(row, self.names_of(0), option="--text-column")
        first = text_of(row, (column,), option="--text-column")
        names = [name for name in self.names_of(1) if name != column]
        is_single = not any(name in row.values for name in names)
        if self.is_answering:
            return (first,) if is_single else (first, text_of(row, names, option="--text-pair-column"))
        if not names or (is_single and self.settings["embedding_loss"] == SIMCSE):
            return (first,)
        pair = text_of(row, names, option="--text-pair-column")
        wrong = [
            text_of(row, (name,), option="--negative-column")
            for name in self.settings["negative_column"]
            if name in row.values
        ]
        if pair in wrong or first in wrong:
            raise ValueError(
                f"{row.where}: the wrong text {short(pair if pair in wrong else first)} is also the "
                f"{'right one' if pair in wrong else 'text itself'}. Correct the row, or leave it out."
            )
        return first, pair, *wrong

    @override
    def answer(self, questions: Sequence[tuple[str, ...]]) -> list[Answer]:
        """The vectors of texts, or the cosines of pairs. Texts that are too long are cut."""
        apart = [(text,) for texts in questions for text in texts] if self.is_trained else list(questions)
        if prompt := self.prompt:
            apart = [(as_read(prompt + first, "stripped"), *others) for first, *others in apart]
        inputs = inputs_of(apart, self.hub.codec.encoder, TextLayout(max_length=self.max_length))
        vectors = self.hub.pooled(
            [each.sequences[0] for each in inputs],
            self.pooling,
            normalize=self.normalizes,
            skipped=num_skipped(self.settings, prompt, self.hub.codec.encoder, max_length=self.max_length),
            max_tokens=self.options.batch_tokens,
        ).numpy()
        answers: list[Answer] = []
        start = 0
        for texts in questions:
            rows = range(start, start + (len(texts) if self.is_trained else 1))
            start = rows.stop
            content: dict[str, Any] = {VECTOR: vectors[rows.start].tolist()}
            if len(rows) == 2:
                content = {"score": rounded(similarity.unit(vectors[rows]).prod(axis=0).sum())}
            answers.append(marked(content, is_cut=any(inputs[place].is_cut for place in rows)))
        return answers

    # Tables of your own.

    @classmethod
    @override
    def settings_of(cls, options: Any, *, max_length: int) -> dict[str, Any]:
        """The columns, the loss, and how features become a vector."""
        pair, label = options.text_pair_column, options.label_column or ()
        by_columns = SIMCSE if pair is None else COSINE if label else RANKING
        loss = options.embedding_loss or by_columns
        _check_columns(options, loss)
        is_known = options.embedding_loss or pair is None  # else `settings_of_table` decides
        return {
            **({"embedding_loss": loss} if is_known else {}),
            "label_column": list(label),
            "negative_column": list(options.negative_column or ()),
            "score_range": list(options.score_range or (0.0, 1.0)) if label else None,
            "pooling": options.pooling or "mean",
            "normalize": bool(options.normalize),
        }

    @classmethod
    @override
    def exported_white_space(cls, settings: Mapping[str, Any]) -> WhiteSpace | None:
        # A prompt that is left out is measured alone, with the space at its end.
        return "kept" if settings.get(INCLUDED) is False else None

    @classmethod
    @override
    def taken_over(cls, trained: Mapping[str, Any]) -> dict[str, Any]:
        names = (*_POOLINGS, "max_length")
        return {name: trained[name] for name in names if name in trained} if "pooling" in trained else {}

    @classmethod
    @override
    def is_described_by(cls, settings: Mapping[str, Any]) -> bool:
        return "pooling" in settings

    @classmethod
    @override
    def may_differ(cls, setting: str) -> bool:
        return setting not in ("kind", *_POOLINGS)  # vectors can be measured on any texts

    @classmethod
    @override
    def check_foreign(cls, made: Mapping[str, Any], ours: Mapping[str, Any], *, checkpoint: Path, data: Path) -> None:
        if "pooling" not in made:
            return
        refuse(
            f"{checkpoint} makes other vectors than {data} says",
            differences(made, ours, free=lambda name: name not in _POOLINGS),
            "Prepare the data in the same way.",
        )
        if lengths := differences(made, ours, free=lambda name: name != "max_length"):
            logger.warning(f"{checkpoint}, {data.parent}: {listed(lengths)}")

    @override
    def rows(self, path: Path) -> Iterator[Row]:
        """The rows of a table, or the lines of any other file."""
        if named_format(path) is not None:
            yield from super().rows(path)
            return
        for row in scan_table(path, format="text"):
            if not isinstance(row, Row):
                raise row
            if row.values["text"].strip():
                yield row

    @override
    def settings_of_table(self, train: Any) -> dict[str, Any]:
        """The loss. If no row has a second text, the model learns from single texts."""
        if "embedding_loss" in self.settings:
            return {}
        pair, validates_on_others = self.settings["text_pair_column"], self.settings["valid_share"] is None
        is_alone = validates_on_others and not self.settings["negative_column"]
        if is_alone and not any(pair in row.values for row in self.rows(train)):
            logger.info(f"{train}: no row has the column {pair!r}, so single texts are learned from, by {SIMCSE}")
            return {"embedding_loss": SIMCSE}
        return {"embedding_loss": COSINE if self.is_scored else RANKING}

    @override
    def grid(self) -> dict[str, tuple[Any, ...]]:
        """The grid of Gao et al. 2021 (arXiv 2104.08821, appendix A) for losses whose wrong texts are in the batch."""
        in_batch = self.settings["embedding_loss"] in IN_BATCH
        return {"lrs": ("1e-5", "3e-5", "5e-5"), "batches": (64,)} if in_batch else {}

    @override
    def check_name(self, path: Path) -> None:
        """Any name will do."""

    @override
    def split_key(self, example: Example) -> Sequence[str]:
        """The texts without the wrong ones."""
        return example.texts[:2]

    @override
    def read_target(self, row: Row, choices: tuple[str, ...]) -> float | None:
        """The score. None if the row has no score and the loss needs none."""
        needs_none = self.settings["embedding_loss"] != COSINE and self.is_scored
        if not self.is_scored or (needs_none and self.label_column not in row.values):
            return None
        value = row.value(self.label_column, option="--label-column")
        low, high = map(float, self.settings["score_range"])
        decimal = self.settings.get("decimal") or "."
        number = number_in(value, decimal=decimal)
        if not low <= number <= high:
            raise ValueError(
                f"{row.where}: the column {self.label_column!r} must hold a number from {low:g} to {high:g}, found "
                f"{short(value)}. Correct the row, {number_remedy(value, decimal)}, or name the range of "
                "your scores by --score-range."
            )
        return number

    @override
    def discover(self, table: Sequence[Example], train: Sequence[Example]) -> dict[str, Any]:
        """Refuse data from which nothing can be learned. There are no labels to find."""
        loss, wrong = self.settings["embedding_loss"], self.settings["negative_column"]
        for example in train:
            if len(example.texts) < 2 + len(wrong) and loss != SIMCSE:
                raise ValueError(
                    f"{example.where}: the row does not have all columns {', '.join(wrong)} (--negative-column). Fill "
                    "them in, or leave the row out."
                )
        if loss in IN_BATCH and len({text for example in train for text in example.texts[:1]}) < 2:
            raise ValueError(
                f"{table[0].path}: all rows have the same text, so there is no wrong text for any of them, and nothing "
                "to learn."
            )
        scores = {example.target for example in train}
        if loss == COSINE and len(scores) == 1:
            raise ValueError(f"{table[0].path}: every row has the same score, so there is nothing to learn.")
        return {"labels": []}

    @override
    def columns(self, example: Example) -> dict[str, Any]:
        if example.target is None:
            return {}
        low, high = self.settings["score_range"]
        return {"label": (example.target - low) / (high - low)}

    @override
    def write(
        self, split: SplitWriter, examples: Iterable[Example], encoder: Encoder, *, max_length: int
    ) -> Sequence[Mapping[str, Any]]:
        """Write a split. To learn from single texts, each text of a row is paired with itself."""
        is_training = split.name == "train"
        pairs = [(example, example.texts) for example in examples]
        if is_training and self.settings["embedding_loss"] == SIMCSE:
            pairs = [(example, (text, text)) for example, texts in pairs for text in texts]
        else:
            self._check(split.name, [example for example, _ in pairs])
        alone = [(text,) for _, texts in pairs for text in texts]
        inputs = sentence_inputs(alone, encoder, split, TextLayout(max_length=max_length))
        numbers: dict[bytes, int] = {}
        for example, texts in pairs:
            sequences = [ids for _ in texts for ids in next(inputs)]
            text_numbers = np.array([numbers.setdefault(ids.tobytes(), len(numbers)) for ids in sequences])
            needs_score = not is_training or self.settings["embedding_loss"] == COSINE
            split.add(sequences, texts=text_numbers, **(self.columns(example) if needs_score else {}))
            split.record(self.record_of(example))
        return ()

    def _check(self, split: str, examples: Sequence[Example]) -> None:
        """Refuse a split whose rows have different columns, or on which nothing can be measured."""
        first = examples[0]
        for example in examples:
            if len(example.texts) < 2:
                raise ValueError(
                    f"{example.where}: a model can learn from single texts, but {split} needs pairs to measure it. "
                    "Name a table of pairs by --valid, and its second text by --text-pair-column."
                )
            if len(example.texts) != len(first.texts) or (example.target is None) != (first.target is None):
                raise ValueError(
                    f"{example.where}: the row has other columns than {first.where}. Give all rows the same columns."
                )
        if self.is_scored and split == "valid" and first.target is None:
            raise ValueError(
                f"{first.where}: there is no column {self.label_column!r} (--label-column), whose scores say how good "
                "the vectors are. Add it, or leave --label-column out."
            )

    # The results.

    @override
    def metrics(self) -> tuple[str, ...]:
        if self.is_scored:
            return ("spearman", "pearson")
        recalls = tuple(f"recall@{cut}" for cut in similarity.CUTS)
        return ("mrr", *recalls, *(("accuracy",) if self.settings["negative_column"] else ()))

    @property
    def selection(self) -> str:
        """Spearman's correlation if there are scores, else the mean reciprocal rank."""
        return self.metrics()[0]

    @override
    def lacks(self, split: PreparedSplit) -> str:
        is_missed = self.settings["embedding_loss"] == COSINE and "label" not in split.columns
        return "has no scores" if is_missed else ""

    @override
    def only_answer(self, outputs: RawOutputs, split: PreparedSplit) -> str | None:
        vectors = similarity.unit(_vectors(outputs))
        is_same = len(vectors) > 1 and float(vectors.var(axis=0).sum()) < _SAME
        return "the same vector" if is_same else None

    @override
    def judged(self, split: PreparedSplit, members: Sequence[RawOutputs], decisions: Decisions) -> Outcome:
        return self._measure(split, [similarity.unit(_vectors(member)) for member in members])

    @override
    def baseline(
        self, split: PreparedSplit, outputs: RawOutputs, train: PreparedSplit, decisions: Decisions
    ) -> dict[str, float]:
        """The metrics of the cosine of TF-IDF, whose weights are from the training set."""
        num_ids = 1 + max(int(each.sequences.tokens.max(initial=0)) for each in (split, train))
        texts, training = ([each.sequences[row][1:-1] for row in range(len(each.sequences))] for each in (split, train))
        measured = self._measure(split, [tf_idf(texts, training=training, num_ids=num_ids)]).measure
        return {} if measured is None else measured(np.ones(len(split)))

    def _measure(self, split: PreparedSplit, members: Sequence[similarity.Vectors]) -> Outcome:
        texts = np.asarray(split.columns["texts"])  # (N, K)
        rows = np.arange(texts.size).reshape(texts.shape)
        near = similarity.cosines(members, rows[:, 0], rows[:, 1])  # (N,)
        if self.is_scored:
            return self._compare_scores(split, near)
        ranks, best = similarity.ranks(members, texts)
        measure = similarity.rank_measure(ranks)
        if texts.shape[1] > 2:
            wrong = [similarity.cosines(members, rows[:, 0], rows[:, place]) for place in range(2, texts.shape[1])]
            is_right = near > np.max(wrong, axis=0)
            measure_ranks = measure

            def measure(weights: NDArray[Any]) -> dict[str, float]:
                return {**measure_ranks(weights), "accuracy": 100 * float(weights @ is_right / weights.sum())}

        lines = [int(record["line"]) for record in split.records()]

        def entries() -> Iterator[dict[str, Any]]:
            for index, id_ in enumerate(ids_of(split)):
                best_text = {"line_of_best": lines[int(best[index]) // texts.shape[1]], "rank": float(ranks[index])}
                yield {"id": id_, "score": rounded(near[index]), **best_text}

        return Outcome(entries=entries, num_examples=len(split), measure=measure)

    def _compare_scores(self, split: PreparedSplit, near: NDArray[np.float64]) -> Outcome:
        """The outcome for cosines (N,) of pairs with scores."""
        (low, high), scores = self.settings["score_range"], split.columns.get("label")

        def entries() -> Iterator[dict[str, Any]]:
            for index, id_ in enumerate(ids_of(split)):
                entry: dict[str, Any] = {"id": id_, "score": rounded(near[index])}
                yield entry if scores is None else {**entry, "label": low + (high - low) * float(scores[index])}

        def measure(weights: NDArray[Any]) -> dict[str, float]:
            values: Mapping[str, float] = metrics.measure_numbers(np.asarray(scores), near, weights)
            return {name: values[name] for name in self.metrics()}

        return Outcome(entries=entries, num_examples=len(split), measure=None if scores is None else measure)


def _check_columns(options: Any, loss: str) -> None:
    """Refuse columns of the options that the loss cannot use, and a loss without its columns.

    The head of this file has the columns of each loss. Wrong texts and scores belong to a pair, so --negative-column
    and --label-column also need --text-pair-column, whatever the loss is.
    """
    wrong, label = options.negative_column or (), options.label_column or ()
    needs_pair = bool(wrong or label) or loss != SIMCSE
    missed = {
        "--text-pair-column, the text that is near": needs_pair and options.text_pair_column is None,
        "--negative-column, the text that is farther away": loss == TRIPLET and len(wrong) != 1,
        "--label-column, the score of a pair": loss == COSINE and not label,
    }
    for needed in (name for name, is_missed in missed.items() if is_missed):
        option = f"--embedding-loss {loss}" if options.embedding_loss or loss != SIMCSE else "--kind embedding"
        only = ", once" if len(wrong) > 1 and loss == TRIPLET else ""
        raise ValueError(f"{option} with these columns needs {needed}{only}.")
    if wrong and loss in (COSINE, SIMCSE):
        raise ValueError(f"--embedding-loss {loss} has no wrong texts: leave --negative-column out.")
    if not label and options.score_range:
        raise ValueError("--score-range is the range of --label-column: name this column, too.")


def _vectors(outputs: RawOutputs) -> NDArray[np.float32]:
    vectors: NDArray[np.float32] | None = outputs.vectors
    assert vectors is not None, "this kind has vectors"
    return vectors
