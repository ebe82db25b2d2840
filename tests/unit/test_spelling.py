"""Names that look alike."""

import pytest

from roberta_plugin.spelling import how_they_differ, look_alikes, meant

INVISIBLE = "\u200b\ufeff\u200e\u200f\u00ad\u2060\ufe0f\u200c\u200d\u0007\u061c\u180e\u202a\u2066\u3164\U000e0001\u034f"


@pytest.mark.parametrize("character", INVISIBLE, ids=lambda each: f"{ord(each):04x}")
def test_invisible_characters_make_no_other_name_and_are_shown_by_their_number(character):
    for name in (f"good{character}", f"{character}good", f"go{character}od"):
        assert look_alikes(["good", "bad", name]) == [("good", name)]
        assert character.isascii() or how_they_differ("good", name) == f" (U+{ord(character):04X})"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Sa\u011fl\u0131k", "SA\u011eLIK"),  # dotless i
        ("\u0130stanbul", "istanbul"),  # dotted capital
        ("\u0130STANBUL", "istanbul"),
        ("Stra\u00dfe", "STRASSE"),
        ("\u03cc\u03b4\u03bf\u03c2", "\u038c\u0394\u039f\u03a3"),  # final sigma
        ("non-toxic", "non\u2011toxic"),
        ("non-toxic", "non\u2013toxic"),
        ("non-toxic", "Non\u2212Toxic"),
        ("A", "\uff21"),  # full width
        ("1", "\uff11"),
        ("very good", "very\u3000 good\u00a0"),
        ("caf\u00e9", "cafe\u0301"),
        ("don't", "don\u2019t"),
        ("good", "g\u043eod"),  # Cyrillic
        ("1", "1.0"),
        ("true", "1"),
        ("\ufb01n", "FIN"),
    ],
)
def test_names_that_differ_in_spelling_only_are_found(one, other):
    assert look_alikes([one, other]) == [(one, other)]
    assert meant(one, ["bad", one, other]) == other


def test_other_names_are_not_confused():
    names = ["1.0", "1.1", "10", "1e1", "a", "\u00e4", "good", "goods", "\u043d\u0435\u0442", "het", "a b", "ab", "-1"]
    assert look_alikes(names) == [] and meant("good", names) is None
    assert look_alikes(["\u043d\u0435\u0442", "\u041d\u0415\u0422"]) == [("\u043d\u0435\u0442", "\u041d\u0415\u0422")]
    assert look_alikes(["1", "Pos", "1.0", "pos", "+1", "2"]) == [("1", "1.0"), ("Pos", "pos"), ("1", "+1")]
