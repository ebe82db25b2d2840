"""Passage, question and option -> the model's input.

    <s> passage </s> </s> question+option </s>           (order "passage", the default)
    <s> question+option </s> </s> passage </s>           (order "question")

Passage first is the order of Hugging Face's multiple-choice scripts for RACE (utils_multiple_choice.py); the paper says
only that each candidate answer is concatenated "with the corresponding question and passage". fairseq's
`sentence_ranking` puts question+option first, so a checkpoint that was fine-tuned with it needs the order "question".

Question+option follows fairseq's preprocess_RACE.py: the option fills the blank of the question, or follows the
question if there is no blank. Any run of white space becomes one space, also in passages, as in that script since
fairseq's pull request 818. One thing differs: a blank may consist of several underscores.

Shapes: P tokens of the passage, Q of question+option, T of the input.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.model_inputs import join
from roberta_plugin.finetuning.prepared_writer import SplitWriter
from roberta_plugin.kinds.averaging import mean_probabilities
from roberta_plugin.kinds.outputs import RawOutputs
from roberta_plugin.kinds.records import one_line

LEVELS = ("middle", "high")
NO_LEVEL = -1  # for sets other than RACE
NO_ANSWER = -1

QUESTION_LENGTH = 128  # the paper's limit for question+option, in tokens (section 5.3)
NUM_SPECIALS = 4  # <s> </s> </s> </s>
_BLANK = re.compile(r"_+")


def question_with_option(question: str, option: str) -> str:
    """The question with the option in its blanks; without a blank, the question, a space and the option.

    Example: "Tom  _  his dog ." and "lost" -> "Tom lost his dog ."
    """
    question, option = one_line(question), one_line(option)
    if "_" in question:
        return one_line(_BLANK.sub(lambda match: option, question))
    return f"{question} {option}".strip()


@dataclass(frozen=True, kw_only=True)
class ChoiceLayout:
    """How a model input is put together, in tokens; the settings of the prepared folder."""

    max_length: int
    question_length: int = QUESTION_LENGTH
    order: str = "passage"

    @classmethod
    def of(cls, max_length: int, *, question_length: int | None = None, order: str | None = None) -> ChoiceLayout:
        """The layout of inputs of `max_length` tokens; None: the paper's value."""
        layout = cls(
            max_length=max_length,
            question_length=question_length or QUESTION_LENGTH,
            order=order or "passage",
        )
        if max_length <= layout.question_length + NUM_SPECIALS:
            raise ValueError(
                f"--max-length {max_length} leaves no token for the passage: question and option may have "
                f"{layout.question_length}, and {NUM_SPECIALS} more are <s> and </s>. Raise it, or lower "
                "--question-length."
            )
        return layout

    def measure(self, split: SplitWriter, num_passage: int, num_question: int) -> None:
        """Let the split count what `join` cuts of a passage and question+option of these lengths."""
        split.measure("questions with an option", num_question, limit=self.question_length)
        num_tokens = num_passage + min(num_question, self.question_length) + NUM_SPECIALS
        split.measure("passages with question and option", num_tokens, limit=self.max_length)

    def join(
        self, vocabulary: Vocabulary, passage: NDArray[np.int32], question: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """Ids of the passage (P,) and of question+option (Q,) -> the model's input (T,), T <= max_length.

        Question+option is cut to `question_length` tokens, then the passage to the room that is left. Both lose their
        last tokens; <s> and </s> always stay.

        Example: max_length 10, question_length 3, a passage of 5 tokens p0..p4 and a question of 4 tokens q0..q3 ->
        `<s> p0 p1 p2 </s> </s> q0 q1 q2 </s>`.
        """
        question = question[: self.question_length]
        passage = passage[: self.max_length - NUM_SPECIALS - len(question)]
        first, second = (passage, question) if self.order == "passage" else (question, passage)
        return join(vocabulary, first, second, max_length=self.max_length)


def option_probabilities(members: Sequence[RawOutputs], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Logits (S, 1) of each member -> mean of the members' probabilities (S,)."""
    logits = [member.logits[:, 0] for member in members if member.logits is not None]
    assert len(logits) == len(members) > 0, "multiple choice has a classification head"
    return mean_probabilities(logits, offsets)


def answers(probabilities: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Probabilities (S,) -> index of the most probable option of each example (N,); ties go to the earlier option."""
    return np.array([probabilities[start:stop].argmax() for start, stop in pairwise(offsets.tolist())], dtype=np.int64)


def accuracies(given: NDArray[np.int64], labels: NDArray[np.int64], levels: NDArray[np.int64]) -> dict[str, float]:
    """Percent of right answers (N,): `accuracy` and, for RACE, `accuracy_middle` and `accuracy_high`.

    Examples without a label do not count; if no example has one, there is no accuracy.
    """
    groups = {"accuracy": labels >= 0}
    groups |= {f"accuracy_{name}": (labels >= 0) & (levels == index) for index, name in enumerate(LEVELS)}
    is_right = given == labels
    return {
        name: 100.0 * int(is_right[group].sum()) / int(group.sum()) for name, group in groups.items() if group.any()
    }


class Choices(NamedTuple):
    """A question with its options."""

    context: str
    options: tuple[str, ...]
    seconds: tuple[str, ...]
    """The text after the context, for each option."""
    question: str = ""
