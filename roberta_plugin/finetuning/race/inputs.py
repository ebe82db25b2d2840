"""Passage, question and option -> the model's input.

    <s> passage </s> </s> question+option </s>           (order "passage", the default)
    <s> question+option </s> </s> passage </s>           (order "question")

Passage first is the order of Hugging Face's multiple-choice scripts for RACE (utils_multiple_choice.py); the paper says
only that each candidate answer is concatenated "with the corresponding question and passage". fairseq's
`sentence_ranking` puts question+option first, so a checkpoint that was fine-tuned with it needs the order "question".

Question+option follows fairseq's preprocess_RACE.py: the option stands where the question has a blank, and after the
question where it has none. White space of any kind and length becomes one space, in passages too, as in that script
since fairseq's pull request 818. One thing differs: a blank may be of several underscores.

Shapes: P tokens of the passage, Q of question+option, T of the input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.model_inputs import join

ORDERS = ("passage", "question")
OPTIONS = ("question-length", "order")
QUESTION_LENGTH = 128  # the paper's limit for question+option, in tokens (section 5.3)
NUM_SPECIALS = 4  # <s> </s> </s> </s>
_BLANK = re.compile(r"_+")
_WHITE_SPACE = re.compile(r"\s+")


def one_line(text: str) -> str:
    """Text with single spaces for all white space."""
    return _WHITE_SPACE.sub(" ", text).strip()


def question_with_option(question: str, option: str) -> str:
    """The option in the blanks of the question; where there is none, question and option with a space between.

    Example: "Tom  _  his dog ." and "lost" -> "Tom lost his dog ."
    """
    question, option = one_line(question), one_line(option)
    if "_" in question:
        return one_line(_BLANK.sub(lambda match: option, question))
    return f"{question} {option}".strip()


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a model input is put together, in tokens; the settings of the prepared folder."""

    max_length: int
    question_length: int = QUESTION_LENGTH
    order: str = ORDERS[0]

    @classmethod
    def of(cls, max_length: int, options: Mapping[str, str]) -> Layout:
        """The layout that the options of `roberta prepare` describe.

        Raises:
            ValueError: naming the option, the bad value and what would be right.
        """
        unknown = sorted(options.keys() - set(OPTIONS))
        if unknown:
            raise ValueError(f"Multiple choice has the options question-length and order, not {unknown[0]!r}.")
        order = options.get("order", ORDERS[0])
        if order not in ORDERS:
            raise ValueError(f"order must be {' or '.join(ORDERS)}, whichever text comes first, got {order!r}.")
        length = options.get("question-length", str(QUESTION_LENGTH))
        if not length.isdecimal() or int(length) < 1:
            raise ValueError(f"question-length must be a whole number of tokens from 1 on, got {length!r}.")
        if max_length <= int(length) + NUM_SPECIALS:
            raise ValueError(
                f"--max-length {max_length} leaves no token for the passage: question and option may have {length}, "
                f"and {NUM_SPECIALS} more are <s> and </s>. Raise it, or lower the option question-length."
            )
        return cls(max_length=max_length, question_length=int(length), order=order)

    def join(
        self, vocabulary: Vocabulary, passage: NDArray[np.int32], question: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """Ids of the passage (P,) and of question+option (Q,) -> the model's input (T,), T <= max_length.

        Question+option is cut to `question_length` tokens, and then the passage to what is left. Both lose their ends;
        the specials, the last </s> among them, always stay.
        """
        question = question[: self.question_length]
        passage = passage[: self.max_length - NUM_SPECIALS - len(question)]
        first, second = (passage, question) if self.order == "passage" else (question, passage)
        return join(vocabulary, first, second, max_length=self.max_length)
