"""Vocabularies: the ids of a model's symbols <-> those of Hugging Face's tokenizers.

Except for CamemBERT's, ids are the same on both sides: 0 <s>, 1 <pad>, 2 </s>, 3 <unk>, then the lines of dict.txt.
CamemBERT was trained with <s> and </s> as ordinary lines of dict.txt:

    Hugging Face   0 <s>NOTUSED  1 <pad>  2 </s>NOTUSED  3 <unk>  4 <unk>NOTUSED  5 <s>         6 </s>         7 ...
    ours           0 <s>         1 <pad>  2 </s>         3 <unk>  4 <unk>NOTUSED  5 <s>NOTUSED  6 </s>NOTUSED  7 ...

so that 0 and 5, and 2 and 6, change places in both directions.

Shapes: V symbols of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.vocabulary import MADE_UP, MASK, SPECIALS, Row, Vocabulary

NOT_USED = "NOTUSED"


def changed_places(symbols: Sequence[str]) -> NDArray[np.int64] | None:
    """The id on the other side of each id (V,), in either direction; None where all are the same.

    Example: CamemBERT's symbols, ours or theirs -> [5, 1, 6, 3, 4, 0, 2, 7, ...].
    """
    ids = {symbol: number for number, symbol in enumerate(symbols)}
    order = np.arange(len(symbols))
    for special in ("<s>", "</s>"):
        if special in ids and f"{special}{NOT_USED}" in ids:
            one, other = ids[special], ids[f"{special}{NOT_USED}"]
            order[one], order[other] = other, one
    return order if (order != np.arange(len(symbols))).any() else None


def vocabulary_of(symbols: Sequence[str]) -> Vocabulary:
    """The vocabulary with these symbols in this order (V,), special ones included.

    Raises:
        ValueError: if it does not begin with fairseq's special symbols.
    """
    if tuple(symbols[: len(SPECIALS)]) != SPECIALS:
        raise ValueError(
            f"A vocabulary must begin with {' '.join(SPECIALS)}, and this one begins with "
            f"{' '.join(symbols[: len(SPECIALS)])}: it is not RoBERTa's."
        )
    listed = list(symbols[len(SPECIALS) :])
    if listed and listed[-1] == MASK:
        listed.pop()  # every vocabulary has it at its end
    return Vocabulary(Row(symbol, 1) for symbol in listed)


def with_gaps_filled(found: dict[int, str], size: int) -> list[str]:
    """Symbols by their ids -> all `size` symbols; ids without one get fairseq's names for such.

    Raises:
        ValueError: if an id is not below `size`.

    Example: {0: "a", 2: "b"}, 3 -> ["a", "madeupword0001", "b"].
    """
    if found and max(found) >= size:
        raise ValueError(f"the tokenizer has the id {max(found)}, and the model embeddings of {size:,} symbols")
    if found and min(found) < 0:
        raise ValueError(f"the tokenizer gives {found[min(found)]!r} the id {min(found)}, which is below 0")
    return [found.get(number, f"{MADE_UP}{number:04}") for number in range(size)]
