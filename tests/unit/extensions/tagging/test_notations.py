"""How files write tags: one rule for the task and for own tables."""

from pathlib import Path

import pytest

from roberta_plugin.extensions.tagging.notations import are_entity_tags, unify
from roberta_plugin.finetuning.examples import Example


def read(*lines, name="f.txt", other=None, **options):
    """The tags of sentences after reading."""

    def examples(lines, name):
        tags = [line.split() for line in lines]
        return [Example(Path(name), 1 + 9 * n, "", tuple("w" * len(each)), tuple(each)) for n, each in enumerate(tags)]

    splits = {"train": examples(lines, name), **({} if other is None else {"valid": examples(other, "dev.txt")})}
    found = unify(splits, **{"scheme": None, "option": "--label-column", **options})
    return [" ".join(each.target) for sentences in found.values() for each in sentences]


SAME = "B-PER I-PER O O B-LOC O"


@pytest.mark.parametrize(
    "tags",
    [
        "B_PER I_PER O O B_LOC O",
        "B:PER I:PER O O B:LOC O",
        "B\u2013PER I\u2013PER O O B\u2013LOC O",
        "PER-B PER-I O O LOC-B O",
        "PER_B PER_I O O LOC_B O",
        "PER PER O O LOC O",
        "(PER* *) * * (LOC) *",
        "(PER* *) * * (LOC*) *",
    ],
)
def test_entities_in_any_notation_are_the_same(tags):
    assert read(tags) == [SAME]


def test_small_letters_bmes_and_types_alone():
    assert read("b-per i-per o b-loc o") == ["B-per I-per O B-loc O"]
    assert read("B-X M-X M-X E-X S-X O W-X") == ["B-X I-X I-X E-X S-X O S-X"]
    assert read("B M E S O B E") == ["B I E S O B E"]
    assert read("person-actor person-actor O location-GPE O") == ["B-person-actor I-person-actor O B-location-GPE O"]
    assert read("per per o loc o") == ["B-per I-per O B-loc O"]
    assert read("E-MAIL O PER O", scheme="io") == ["B-E-MAIL O B-PER O"]
    assert read(SAME, scheme="plain") == [SAME]


@pytest.mark.parametrize("tags", ["I-X E-X O E-X E-X O", "I-X I-X E-X I-X O"])
def test_ioe_is_read_without_complaints(tags, caplog):
    read(*[tags] * 5)
    assert not [each for each in caplog.records if each.levelname == "WARNING"]
    assert "IOE" in caplog.text or not caplog.text


def test_what_becomes_of_tags_is_said(caplog):
    read("PER PER O")
    assert "f.txt: tags such as 'PER' have no letter, as B-PER has" in caplog.text and "--scheme plain" in caplog.text
    caplog.clear()
    assert read("NOUN VERB NOUN") == ["NOUN VERB NOUN"]
    assert "f.txt: tags such as 'NOUN' are plain labels" in caplog.text and "accuracy is the metric" in caplog.text
    caplog.clear()
    assert read("NOUN VERB O", name="t.conllu") == ["NOUN VERB O"]
    assert read("B-PER _ I-PER", name="t.conllu")[0].split()[1] == "O"
    assert "plain labels" not in caplog.text


@pytest.mark.parametrize(
    ("tags", "options", "message"),
    [
        ("B-PER O PER", {}, "f.txt, line 3: the tag 'PER' is neither O nor B-TYPE.*, as 'B-PER' is.*--scheme io"),
        ("PER-B PER-I O PRE", {}, "line 4: the tag 'PRE' is neither.*, as 'PER-B' is"),
        (
            "N V N A N V D N O",
            {},
            "line 1: the tag 'N' has no letter.* only 1 of 9 words have the tag 'O'.*--scheme io",
        ),
        ("NOUN VERB", {"scheme": "iob2"}, "line 1: the tag 'NOUN' is neither"),
        ("NN O", {"needs_entities": True}, "line 1: the tag 'NN' is neither"),
        ("(A* (B* *) *)", {}, r"line 2: the tag '\(B\*' begins or ends an entity within another one"),
        ("(A* *", {}, r"line 1: the tag '\(A\*' begins an entity that does not end in its sentence"),
        ("B-X I-X O", {"other": ["X"]}, "dev.txt, line 1: the tag 'X' is neither .* training table"),
        ("O I-X", {"strict": True, "scheme": "iob2"}, "line 2: I-X, read as B-X: the tag is invalid in IOB2"),
    ],
)
def test_what_is_no_notation_is_refused_by_its_place_with_the_remedy(tags, options, message):
    with pytest.raises(ValueError, match=message):
        read(tags, **options)


def test_letters_alone_are_entities_if_they_can_begin_one():
    assert are_entity_tags("BIO") and are_entity_tags("IO") and are_entity_tags(["O", "B-X", "I"])
    assert not are_entity_tags("SU") and not are_entity_tags("NO") and are_entity_tags("O")
