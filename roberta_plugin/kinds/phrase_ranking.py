"""A sentence with a pronoun in brackets -> the phrase that it stands for, or true or false for the marked one.

The masked-LM head scores each phrase in the place of the pronoun (`phrases`); the best one wins.

Columns: `before` and `after`, the tokens around the phrase in all sequences of the example; `label`, 1 if its first
phrase is right, whose rivals follow.

Example: {"text": "The trophy would not fit in the suitcase because [it] was too big."} -> {"answer": "The trophy",
"scores": {"The trophy": -1.2, ...}}; with "The _trophy_ would ...", the answer is true or false.

Shapes: N examples of a split, S their sequences, one for each phrase.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.finetuning.prepared_writer import SplitWriter
from roberta_plugin.kinds import phrases
from roberta_plugin.kinds.averaging import mean_probabilities
from roberta_plugin.kinds.base import Answer, Kind, logits_of
from roberta_plugin.kinds.decisions import Decisions
from roberta_plugin.kinds.outcome import Outcome, of_two_labels
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.records import text_of, texts_of
from roberta_plugin.kinds.texts import TextLayout, sentence_inputs
from roberta_plugin.tables import Row

logger = logging.getLogger(__name__)


class PhraseRanking(Kind):
    """Each right phrase against its rivals, by a margin or by cross-entropy."""

    name = "phrase_ranking"
    description = "finds the phrase that a pronoun stands for"
    head = "masked_lm"
    white_space = "kept"

    def metrics(self) -> tuple[str, ...]:
        """See `Kind.metrics`."""
        return ("accuracy", "macro_f1", "mcc", "f1", "acc_and_f1")

    def constant(self, outputs: RawOutputs, train: PreparedSplit) -> RawOutputs:
        """See `Kind.constant`: of equal scores the first one counts."""
        return RawOutputs(logits=np.zeros(logits_of([outputs])[0].shape, dtype=np.float32))

    def write(
        self, split: SplitWriter, examples: Iterable[phrases.SchemaExample], encoder: Encoder, *, max_length: int
    ) -> Sequence[Mapping[str, Any]]:
        """See `Kind.write`; a text in which no pronoun was found has one sequence, with an empty phrase at its end.

        The training split has no records.
        """
        counts = Counter[bool]()
        for example in examples:
            columns = {} if example.label is None else {"label": example.label}
            counts[example.schema is None] += 1
            if example.schema is None:
                ((ids,),) = sentence_inputs([(example.text,)], encoder, split, TextLayout(max_length=max_length))
                split.add([ids], before=len(ids), after=0, **columns)
            else:
                inputs = phrases.schema_inputs(example.schema, encoder, max_length=max_length)
                split.measure("texts", inputs.num_tokens, limit=max_length)
                split.add(inputs.sequences, before=inputs.before, after=inputs.after, **columns)
            if split.name != "train":
                split.record({"id": example.id})
        if not counts:
            raise ValueError(f"{self.task_name}: no row of the training file has a right phrase with rivals.")
        if num_bare := counts[True]:
            logger.warning(
                f"{self.task_name}: in {num_bare} of {counts.total()} rows no pronoun was found; their answer will be 0"
            )
        return ()

    def judged(self, split: PreparedSplit, members: Sequence[RawOutputs], decisions: Decisions) -> Outcome:
        """See `Kind.judged`: the second label for examples whose first phrase beats all its rivals, else the first."""
        offsets = np.asarray(split.offsets)
        probabilities = mean_probabilities([each[:, 0] for each in logits_of(members)], offsets)  # (S,)
        wins = probabilities[offsets[:-1]] >= np.maximum.reduceat(probabilities, offsets[:-1])
        predictions = (wins & (np.diff(offsets) > 1)).astype(np.int64)
        return of_two_labels(split, self.labels, predictions, split.columns.get("label"))

    def read_question(self, row: Row) -> phrases.PronounQuestion:
        """See `Kind.read_question`."""
        given = row.values.get("candidates")
        candidates = None if given is None else texts_of(row, "candidates", what="candidate", may_be_empty=True)
        return phrases.read_question(
            text_of(row, self.names_of(0), option="--text-column", white_space="kept"), candidates
        )

    def answer(self, questions: Sequence[phrases.PronounQuestion]) -> list[Answer]:
        """See `Kind.answer`; a sentence that is too long loses tokens at both ends."""
        encoder = self.hub.codec.encoder
        inputs = [phrases.question_inputs(each, encoder, max_length=self.max_length) for each in questions]
        sequences = [sequence for each in inputs for sequence in each.sequences]
        spans = [span for each in inputs for span in phrases.masked_positions(each)]
        scores = iter(self.hub.score_spans(sequences, spans, max_tokens=self.options.batch_tokens))
        answers: list[Answer] = []
        for question in questions:
            found = [next(scores) for _ in question.phrases]
            named = {phrase: round(score, 6) for phrase, score in zip(question.phrases, found, strict=True)}
            answers.append({"answer": phrases.answer(question, np.array(found)), "scores": named})
        return answers
