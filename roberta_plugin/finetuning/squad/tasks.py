"""SQuAD 1.1 (`squad1`) and 2.0 (`squad2`), where a question may have no answer (paper section 5.2).

Columns, records and arrays of the prepared folder are described in `kinds/passages.py`, decoding in
`kinds/questions.py`.

The paper's settings (Table 10): 1.5e-5 after a warm-up of 6 %, linear decay, 2 epochs of batches of 48 windows. The
checkpoint is chosen by F1, with SQuAD 2.0 at the best threshold.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from roberta_plugin.finetuning.benchmark import Training
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.old_benchmark import Judged, OldBenchmark
from roberta_plugin.finetuning.options import SquadOptions
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit
from roberta_plugin.finetuning.prepared_writer import SplitWriter
from roberta_plugin.finetuning.squad.reader import find_files, read_file
from roberta_plugin.kinds.decisions import Decisions
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.passages import NO_PLACE, SplitMaker, SquadFile
from roberta_plugin.kinds.questions import MAX_ANSWER_LENGTH, N_BEST, Decoded, Questions, decode
from roberta_plugin.kinds.span_metrics import evaluate
from roberta_plugin.kinds.windows import WindowLayout

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SquadTask(OldBenchmark):
    """One version of SQuAD."""

    training: Training = field(
        default_factory=lambda: Training(lrs=("1.5e-5",), batches=(48,), epochs=2, weight_decay="0.01")
    )

    def files(self, raw: Path, options: SquadOptions) -> dict[str, list[Path]]:
        """See `OldBenchmark.files`."""
        return {split: [path] for split, path in find_files(self.name, raw, options.files).items()}

    def settings(self, *, max_length: int, options: SquadOptions) -> dict[str, Any]:
        """See `OldBenchmark.settings`."""
        return asdict(
            WindowLayout.of(max_length, question_length=options.question_length, doc_stride=options.doc_stride)
        )

    def read_split(self, split: str, paths: list[Path], options: SquadOptions) -> SquadFile:
        """See `OldBenchmark.read_split`."""
        (path,) = paths
        return read_file(self.name, path, needs_answers=split != "test", strict=options.strict)

    def write(
        self, split: SplitWriter, content: SquadFile, encoder: Encoder, settings: Mapping[str, Any]
    ) -> Sequence[Mapping[str, Any]]:
        """See `OldBenchmark.write`.

        An answer that is not at its `answer_start` is searched for; an answer that the passage does not contain is left
        out of training. These are doubtful, and so are those that start or end within a token, whose tokens hold more
        than the answer.
        """
        maker = SplitMaker(split, content, encoder, WindowLayout(**settings), is_train=split.name == "train")
        maker.run(f"{self.name} {split.name}")
        if maker.doubtful:
            nowhere = sum(answer["found_at"] == NO_PLACE for answer in maker.doubtful)
            inexact = sum("tokens" in answer for answer in maker.doubtful)
            logger.warning(
                f"{split.name}.doubtful.jsonl lists doubtful answers: {len(maker.doubtful) - nowhere - inexact:,} that "
                f"are not at their answer_start but elsewhere in the passage, {nowhere:,} that are nowhere in it, "
                f"{inexact:,} that start or end within a token"
            )
        return maker.doubtful

    def judge(
        self, prepared: Prepared, part: PreparedSplit, members: Sequence[RawOutputs], options: SquadOptions
    ) -> Judged:
        """See `OldBenchmark.judge`.

        With squad2, a question whose probability of no answer is above a threshold gets no answer. The threshold is
        `options.null_threshold`, or else the one with the best F1 on the development set. Another split needs the
        option.

        The files are predictions.json (id -> text, "" for no answer), nbest_predictions.json (id -> candidates, the
        best first) and, for squad2, null_odds.json (id -> probability of no answer, which the official script takes as
        --na-prob-file). The metrics are exact and f1 of predictions.json. For squad2 also the same for the questions
        with and without an answer (HasAns_, NoAns_); the best that any threshold gives and that threshold, from 0 to 1
        (best_exact, best_exact_thresh, best_f1, best_f1_thresh); and null_threshold, the threshold that was applied.
        """
        questions = Questions(part, self.name)
        decoded = decode(
            questions,
            members,
            n_best=options.n_best or N_BEST,
            max_answer_length=options.max_answer_length or MAX_ANSWER_LENGTH,
        )
        best = {id_: found.candidates[0].text for id_, found in zip(questions.ids, decoded, strict=True)}
        null = {id_: found.null_probability for id_, found in zip(questions.ids, decoded, strict=True)}
        metrics: dict[str, float] = {}
        if self.name == "squad2":
            if questions.is_labelled:
                metrics = evaluate(self.name, questions.right, best, null=null)
            threshold = Decisions(part.name, options.given("score")).find(
                "null_threshold", lambda: metrics["best_f1_thresh"], is_labelled=questions.is_labelled
            )
            best = {id_: "" if null[id_] > threshold else text for id_, text in best.items()}
            metrics |= {"null_threshold": threshold} if metrics else {}
        if questions.is_labelled:
            metrics |= evaluate(self.name, questions.right, best)
        n_best = {id_: self._candidates(found) for id_, found in zip(questions.ids, decoded, strict=True)}
        contents: tuple[Mapping[str, Any], ...] = (best, n_best, null)
        named = zip(self.prediction_files(part.name), contents, strict=False)
        return Judged(metrics, {name: _as_text(content) for name, content in named})

    def prediction_files(self, split: str) -> tuple[str, ...]:
        """See `OldBenchmark.prediction_files`."""
        names = ("predictions.json", "nbest_predictions.json", *(["null_odds.json"] if self.name == "squad2" else []))
        return tuple(f"{split}/{name}" for name in names)

    def _candidates(self, decoded: Decoded) -> list[dict[str, Any]]:
        """Texts with their probabilities and characters of the passage; with SQuAD 2.0, no answer is among them."""
        entries: list[dict[str, Any]] = [
            {"text": text, "probability": math.exp(value), "start": start, "end": stop}
            for text, value, start, stop in decoded.candidates
        ]
        if self.name == "squad2":
            entries.append({"text": "", "probability": decoded.null_probability})
        return sorted(entries, key=lambda entry: -entry["probability"])


def _as_text(content: Mapping[str, Any]) -> Sequence[str]:
    return [json.dumps(content, indent=1, ensure_ascii=False)]


TASKS = {
    "squad1": SquadTask(
        name="squad1",
        selection="f1",
        paper={
            "valid": {
                "RoBERTa large": {"exact": 88.9, "f1": 94.6},  # Table 6, dev
                "RoBERTa base, 16 GB of text": {"f1": 90.6},  # Table 2, DOC-SENTENCES, dev
            }
        },
    ),
    "squad2": SquadTask(
        name="squad2",
        selection="tuned_f1",
        paper={
            "valid": {
                "RoBERTa large": {"exact": 86.5, "f1": 89.4},
                "RoBERTa base, 16 GB of text": {"f1": 79.7},
            }
        },
    ),
}
