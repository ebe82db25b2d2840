"""Names that look alike: labels, tags, groups and columns that differ in their spelling only.

One comparison for all of them. It does not see

    case                     by Unicode's full rules; dotless and dotted i are one letter, as in Turkish capitals
    white space              runs of it, and at the ends
    invisible characters     zero-width spaces and marks, soft hyphens, variation selectors, control characters
    compatible characters    full-width letters, ligatures, and both ways to write an accent (Unicode's NFKC)
    dashes and quotes        hyphens, dashes and minus signs; straight and curly quotation marks
    letters of other scripts letters of Cyrillic and Greek that have the shape of a Latin one
    notation of numbers      "1" and "1.0", "true" and "1"

Example: spelling_key("Non-Toxic") == spelling_key("non\\u2011toxic\\u200b").
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_DECIMAL = re.compile(r"[-+]?[0-9]{1,15}(\.[0-9]{0,15})?")
_BOOLEANS = {"true": "1", "false": "0"}
# Unicode's Default_Ignorable_Code_Point, which the module unicodedata does not have, and the Braille blank
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_MARKS = str.maketrans(
    {
        **dict.fromkeys("\u02d7\u2043\u2212\u30a0", "-"),
        **dict.fromkeys("\u02b9\u02bb\u02bc\u2018\u2019\u201a\u201b\u2032\u00b4\u0060", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
    }
)
_SMALL_LETTERS = str.maketrans(  # the shapes of Latin ones, after folding of case
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u043a\u043c\u0442\u04bb\u0501\u03bf\u0131",
    "aeopcyxijskmthdoi",
)


def spelling_key(name: str) -> str:
    """A key that names have in common if they differ only in spelling."""
    text = _IGNORABLE.sub("", unicodedata.normalize("NFKC", _IGNORABLE.sub("", name)))
    text = "".join(_seen(character) for character in text.translate(_MARKS))
    # The capital of the dotted i becomes i with a dot above.
    text = unicodedata.normalize("NFKC", text.casefold().replace("i\u0307", "i")).translate(_SMALL_LETTERS)
    text = " ".join(text.split())
    number = _BOOLEANS.get(text, text)
    return str(float(number)) if _DECIMAL.fullmatch(number) else text


def _seen(character: str) -> str:
    """The character; a hyphen for a dash, and nothing for a control character that is not white space."""
    category = unicodedata.category(character)
    if category == "Pd":
        return "-"
    return "" if category in ("Cc", "Cf") and not character.isspace() else character


def look_alikes(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of different names with the same key: the first one, and each later one.

    Example: "1", "Pos", "1.0", "pos" -> [("1", "1.0"), ("Pos", "pos")].
    """
    first: dict[str, str] = {}
    return [(first[key], name) for name in names if first.setdefault(key := spelling_key(name), name) != name]


def meant(name: str, names: Iterable[str]) -> str | None:
    """The first of other names that looks like this one."""
    return next((other for other in names if other != name and spelling_key(other) == spelling_key(name)), None)


def how_they_differ(one: str, other: str) -> str:
    """The characters beyond ASCII that only one of two names has, for messages in which both look the same.

    Example: "good", "good\\u200b" -> " (U+200B)"; "good", "Good" -> "".
    """
    characters = [
        *dict.fromkeys(each for each in one + other if not each.isascii() and (each in one) != (each in other))
    ]
    shown = ", ".join(f"U+{ord(each):04X}" for each in characters[:3])
    return f" ({shown}{', ...' if len(characters) > 3 else ''})" if shown else ""
