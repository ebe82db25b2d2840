"""Passages and questions -> a split of windows: one example per window, `<s> question </s> </s> part </s>`.

Columns: `question`, the index of the question; `passage`, the position in the window of the first token of the
passage's part, `passage_token`, its index in the passage, and `passage_length`, the tokens of the part; `best_start`
and `best_stop`, the range of positions whose best window this is (see `windows`); `has_answer`, whether the answer lies
in the window, and `start` and `end`, the positions of its first and last token, or 0.

Records: {"passage": number, "text"} for each passage, and {"question": number, "id", "text", "passage", "answers"} for
each question, whose answers are texts, or null if they are not known.

Arrays: `char_starts` and `char_ends`, characters of the tokens of all passages, one passage after the other, and
`is_blank`, whether a token is only white space; passage i has those from `first_token[i]` to `first_token[i + 1]`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.tokenizers.base import LocatedTokens
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.prepared_writer import DIVIDED, SplitWriter
from roberta_plugin.kinds.examples import Example
from roberta_plugin.kinds.records import as_read
from roberta_plugin.kinds.span_metrics import normalize
from roberta_plugin.kinds.windows import BEFORE_PASSAGE, NUM_SPECIALS, Window, WindowLayout, cut, is_blank, tokens_of
from roberta_plugin.progress import terminal_bar

logger = logging.getLogger(__name__)


NO_PLACE = -1


class SquadAnswer(NamedTuple):
    """A right answer, and its first character in the passage; `NO_PLACE` if the passage does not contain it."""

    text: str
    start: int
    named: int | None = None
    """The `answer_start` of the file, if it has one."""


class SplitMaker:
    """Writes all windows of the questions of a split.

    Attributes:
        doubtful: answers that are not at their `answer_start`, or not what their tokens stand for.
    """

    def __init__(
        self, split: SplitWriter, examples: Sequence[Example], encoder: Encoder, layout: WindowLayout, *, is_train: bool
    ) -> None:
        """The texts of the `examples` are passage and question, their targets answers, or None if not known."""
        self._split, self._examples, self._encoder, self._layout = split, examples, encoder, layout
        self._is_train = is_train
        self._counts: Counter[str] = Counter()
        self.doubtful = [
            {**_named(example, answer), "found_at": answer.start}
            for example in examples
            for answer in example.target or ()
            if answer.named not in (None, answer.start)
        ]

    def run(self) -> None:
        """Write the split, and count what is cut."""
        split, examples, counts = self._split, self._examples, self._counts
        numbers: dict[str, int] = {}
        for example in examples:
            numbers.setdefault(example.texts[0], len(numbers))
        texts = list(numbers)
        passages = [
            self._locate(text, number) for text, number in terminal_bar(numbers.items(), split.name, unit=" passages")
        ]
        split.array("char_starts", np.concatenate([passage.starts for passage in passages]))
        split.array("char_ends", np.concatenate([passage.ends for passage in passages]))
        blank = [is_blank(text, passage) for text, passage in zip(texts, passages, strict=True)]
        split.array("is_blank", np.concatenate(blank))
        split.array("first_token", np.cumsum([0, *(len(passage.ids) for passage in passages)]))
        ids = self._encoder.ids_of_all([as_read(example.texts[1], "spaces").strip() for example in examples])
        for example, question_ids in zip(examples, ids, strict=True):
            number = numbers[example.texts[0]]
            target = self._target(example, passages[number])
            if self._is_train and example.target and target is None:
                continue  # the passage does not contain the answer, as SPLIT.doubtful.jsonl says
            answers = None if example.target is None else [answer.text for answer in example.target]
            content = {"question": counts["questions"], "id": example.id, "text": example.texts[1]}
            split.record({**content, "passage": number, "answers": answers})
            self._add_windows(question_ids, passages[number], target)
            counts["questions"] += 1
        if counts["fit no window"]:
            then = "all their windows are learned as without an answer" if self._is_train else "no model can give them"
            logger.warning(
                f"{split.name}: the answers to {counts['fit no window']:,} of {counts['questions']:,} questions fit "
                f"into no window, so that {then}: lower --doc-stride, or raise --max-length"
            )

    def _locate(self, text: str, number: int) -> LocatedTokens:
        self._split.record({"passage": number, "text": text})
        where = f"{self._examples[0].path}, the passage that begins with {text[:40]!r}"
        try:
            found = self._encoder.tokenizer.locate(as_read(text, "spaces"))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        if not len(found.ids):
            raise ValueError(f"{where}: it has no tokens. Remove it, or use another tokenizer.")
        return found

    def _target(self, example: Example, passage: LocatedTokens) -> tuple[int, int] | None:
        """First and last token of the answer to learn: of the first answer that whole tokens spell, if any does."""
        inexact = []
        for answer in example.target or ():
            text = answer.text.strip()  # a token may start with the space after the answer
            start = answer.start + len(answer.text) - len(answer.text.lstrip())
            span = tokens_of(passage, start, start + len(text)) if answer.start >= 0 else None
            if span is None:
                continue
            covered = example.texts[0][passage.starts[span[0]] : passage.ends[span[1]]]
            if normalize(covered) == normalize(answer.text):
                return span
            inexact.append(span)
            entry = {**_named(example, answer), "answer_start": answer.start, "found_at": answer.start}
            self.doubtful.append({**entry, "tokens": covered.strip()})
        return inexact[0] if inexact else None

    def _add_windows(
        self, question_ids: NDArray[np.int32], passage: LocatedTokens, target: tuple[int, int] | None
    ) -> None:
        layout = self._layout
        self._split.measure("questions", len(question_ids), limit=layout.question_length)
        question_ids = question_ids[: layout.question_length]
        passage_ids = self._encoder.to_model_id[passage.ids]
        num_tokens = len(question_ids) + len(passage_ids) + NUM_SPECIALS
        self._split.measure("questions with their passage", num_tokens, limit=layout.max_length, fate=DIVIDED)
        windows = list(windows_of(question_ids, passage_ids, layout, self._encoder))
        fits = target is None or any(window.holds(target) for window, _, _ in windows)
        self._counts["fit no window"] += not fits
        for window, sequence, columns in windows:
            shift = columns["passage"] - window.start
            start, end = (token + shift for token in target) if target and window.holds(target) else (0, 0)
            self._split.add(
                [sequence],
                question=self._counts["questions"],
                **columns,
                has_answer=int(end > 0),
                start=start,
                end=end,
            )


def windows_of(
    question_ids: NDArray[np.int32], passage_ids: NDArray[np.int32], layout: WindowLayout, encoder: Encoder
) -> Iterator[tuple[Window, NDArray[np.int32], dict[str, int]]]:
    """Each window of a passage, its model input (T,), and its columns `passage` to `best_stop`."""
    position = len(question_ids) + BEFORE_PASSAGE
    room = layout.max_length - NUM_SPECIALS - len(question_ids)
    for window in cut(len(passage_ids), room=room, stride=layout.doc_stride):
        part = passage_ids[window.start : window.start + window.length]
        shift = position - window.start
        columns = {
            "passage": position,
            "passage_token": window.start,
            "passage_length": window.length,
            "best_start": window.best_start + shift,
            "best_stop": window.best_stop + shift,
        }
        yield window, encoder.join(question_ids, part, max_length=layout.max_length), columns


def _named(example: Example, answer: SquadAnswer) -> dict[str, Any]:
    return {"id": example.id, "answer": answer.text, "answer_start": answer.named}


def locate(context: str, text: str, start: int) -> int:
    """The occurrence of `text` in `context` nearest to `start` (ties: the earlier one); `NO_PLACE` without any.

    Example: "a cat, a dog", "a", 5 -> 7.
    """
    before = context.rfind(text, 0, max(start, 0) + len(text))
    after = context.find(text, max(start, 0))
    if before < 0 or after < 0:
        return max(before, after, NO_PLACE)
    return before if start - before <= after - start else after
