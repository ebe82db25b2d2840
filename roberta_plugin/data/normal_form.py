"""A warning where a text is not in the Unicode normal form that the model's tokenizer was trained on.

A letter with a mark is one character in NFC, and a letter and a mark in NFD. A tokenizer that has seen one of the forms
splits the other one into several times as many tokens: "Nàìjíríà" in NFD instead of NFC. Keyboards of Yoruba and
Vietnamese, and file names of macOS, have NFD.
"""

from __future__ import annotations

import logging
import unicodedata
from typing import Literal

from roberta_plugin.data.tokenizers.base import Tokenizer

logger = logging.getLogger(__name__)

_FORMS: tuple[Literal["NFC", "NFD"], ...] = ("NFC", "NFD")
_MOST_LOOKS = 200  # texts that are in one of the forms only; each costs another tokenization
_SHARE = 0.8  # of the tokens: less is another form's doing
_SHOWN = 40


class NormalFormWatch:
    """Looks at the first texts that one tokenizer reads, and warns once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._looks = 0

    def look(self, text: str, num_tokens: int) -> None:
        """Warn if another normal form of a text has far fewer tokens than `num_tokens`, which it has."""
        if self._looks >= _MOST_LOOKS or text.isascii():
            return
        forms = {form: other for form in _FORMS if (other := unicodedata.normalize(form, text)) != text}
        self._looks += bool(forms)
        for form, other in forms.items():
            if (number := len(self._tokenizer.encode(other))) < _SHARE * num_tokens:
                self._looks = _MOST_LOOKS
                logger.warning(
                    f"{text[:_SHOWN]!r} is not in the normal form of the model's text: it has {num_tokens} tokens, and "
                    f"{number} in {form}. Normalize all texts, by Python's unicodedata.normalize({form!r}, text). "
                    "Later ones are not named."
                )
                return
