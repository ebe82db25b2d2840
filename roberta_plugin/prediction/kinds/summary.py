"""A text of any length -> the sentences that sum it up, in the order of the text.

The text is split into sentences, which are scored in windows as in fine-tuning (`kinds/sentences.py`) and
chosen as in the evaluation (`kinds/documents.py`). It may also be a list of sentences.

Example: {"text": "It rained. We stayed. Then it stopped."} with one sentence -> {"summary": "It rained.", "sentences":
[{"sentence": 0, "text": "It rained.", "probability": 0.9}], "num_sentences": 3}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy  # its modules are imported when they are first used
import torch
from numpy.typing import NDArray

from roberta_plugin.finetuning.summaries.options import SummariesOptions
from roberta_plugin.hub import RobertaHub, running
from roberta_plugin.hub.running import Batch, cut_by_length, limits_of, pad
from roberta_plugin.kinds.documents import choose, summary_entry
from roberta_plugin.kinds.sentences import (
    NUM_SPECIALS,
    SummaryLayout,
    Windows,
    by_document,
    one_line,
    padded_layout,
    segments_of,
    sentences_of,
    windows_of,
)
from roberta_plugin.prediction.kinds.base import Answer, Kind, chosen_head, marked, text_of
from roberta_plugin.prediction.settings import PredictSettings


class Summary(Kind):
    """A sentence head over all windows of a text."""

    name = "summary"

    def __init__(self, hub: RobertaHub, settings: PredictSettings) -> None:
        super().__init__(hub, settings)
        self.head = chosen_head(hub.heads_of("sentence"), settings.head, kind="summaries")
        known = {name: self.trained[name] for name in ("sentence_length", "doc_stride") if name in self.trained}
        if "sentence_length" in known:
            known["sentence_length"] = max(1, min(known["sentence_length"], self.max_length - NUM_SPECIALS))
        self.layout = SummaryLayout.of(self.max_length, **known)
        self.options = SummariesOptions(
            num_sentences=settings.num_sentences,
            length_share=settings.length_share,
            no_trigram_blocking=settings.no_trigram_blocking,
        )

    def read(self, record: Mapping[str, Any]) -> list[str]:
        """See `Kind.read`."""
        names = ("text", self.trained.get("text_field") or "article")
        value = next((record[name] for name in names if name in record), None)
        if not isinstance(value, list):
            return sentences_of(text_of(record, *names))
        if not value or not all(isinstance(each, str) and each.strip() for each in value):
            raise ValueError("the field 'text' must be a text or a list of sentences, none of them empty. Correct it.")
        return [one_line(each) for each in value]

    def answer(self, questions: Sequence[list[str]]) -> list[Answer]:
        """See `Kind.answer`; sentences that are too long are cut as in fine-tuning."""
        encoder = self.hub.codec.encoder
        ids = iter(encoder.ids_of_all([sentence for sentences in questions for sentence in sentences]))
        bos_id, eos_id = encoder.vocabulary.bos_id, encoder.vocabulary.eos_id
        inputs = [
            windows_of([next(ids) for _ in each], layout=self.layout, bos_id=bos_id, eos_id=eos_id)
            for each in questions
        ]
        sizes = [sum(map(len, windows.sequences)) for windows, _ in inputs]
        device = self.hub.device
        most = self.settings.batch_tokens or limits_of(device)[0]
        found: dict[int, Answer] = {}
        for numbers in cut_by_length(sizes, max_tokens=most, enough=most):
            scores = self._scores([inputs[number][0] for number in numbers])
            for number, logits in zip(numbers, scores, strict=True):
                sentences, probabilities = questions[number], scipy.special.expit(logits.astype(np.float64))
                entry = summary_entry(sentences, probabilities, choose(probabilities, sentences, self.options))
                found[number] = marked(entry, is_cut=inputs[number][1] > 0)
        return [found[number] for number in range(len(questions))]

    def _scores(self, texts: Sequence[Windows]) -> list[NDArray[np.float32]]:
        """Logits of the sentences of each text."""
        sequences = [sequence for windows in texts for sequence in windows.sequences]
        counts = np.array([len(windows.window) for windows in texts])
        before = np.cumsum([0, *(len(windows.sequences) for windows in texts)])[:-1]  # windows of the texts before
        row = np.concatenate([windows.window for windows in texts]) + np.repeat(before, counts)
        position = np.concatenate([windows.position for windows in texts]).astype(np.int64)
        tokens = pad(sequences, pad_id=self.hub.vocabulary.pad_id)
        layout = {**padded_layout(row, position, num_rows=len(sequences)), **by_document(counts)}
        segments = segments_of(tokens.numpy(), bos_id=self.hub.vocabulary.bos_id)
        device = self.hub.device
        sentences = {
            name: torch.from_numpy(value).to(device) if isinstance(value, np.ndarray) else value
            for name, value in layout.items()
        }
        batch = Batch(tokens.to(device), [len(sequence) for sequence in sequences], list(range(len(sequences))))
        with running.inference(self.hub.model):
            logits = running.head_outputs(
                self.hub.model, batch, self.head, predicted=sentences, segments=torch.from_numpy(segments).to(device)
            )
        return np.split(logits.float().cpu().numpy(), np.cumsum(counts)[:-1])
