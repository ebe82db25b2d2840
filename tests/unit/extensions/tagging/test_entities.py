"""Tags, entities and labels: every scheme says the same, what is invalid is found, entities are counted."""

import numpy as np
import pytest

from roberta_plugin.extensions.tagging.entities import (
    SCHEMES,
    Entity,
    TagCounts,
    entities_of,
    entity_labels,
    invalid_places,
    scheme_of,
    scores,
    spans,
    split_tag,
    tags_of,
)

PARIS = [Entity("LOC", 1, 4), Entity("LOC", 4, 5)]


def random_entities(rng, num_words):
    entities, place = [], 0
    while place < num_words:
        length = int(rng.integers(0, 4))
        if length and place + length <= num_words:
            entities.append(Entity(str(rng.choice(["LOC", "creative-work"])), place, place + length))
        place += length or 1
    return entities


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("iob1", "O I-LOC I-LOC I-LOC B-LOC"),
        ("iob2", "O B-LOC I-LOC I-LOC B-LOC"),
        ("iobes", "O B-LOC I-LOC E-LOC S-LOC"),
        ("bilou", "O B-LOC I-LOC L-LOC U-LOC"),
    ],
)
def test_the_example_of_the_file(scheme, expected):
    assert tags_of(PARIS, 5, scheme) == expected.split()
    assert entities_of(expected.split()) == PARIS


@pytest.mark.parametrize("scheme", SCHEMES)
def test_entities_survive_every_scheme(scheme):
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(300):
        num_words = int(rng.integers(0, 9))
        entities = random_entities(rng, num_words)
        tags = tags_of(entities, num_words, scheme)
        assert entities_of(tags) == entities
        assert invalid_places(tags, scheme) == []
        found += len(entities)
    assert found > 300


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_scheme_of_a_file_is_found_even_if_a_tag_is_wrong(scheme):
    rng = np.random.default_rng(1)
    sentences = [tags_of(random_entities(rng, 8), 8, scheme) for _ in range(50)]
    assert scheme_of(sentences) == scheme
    sentences.append(["O", "I-LOC" if scheme == "iob2" else "B-LOC", "O"])
    assert scheme_of(sentences) == scheme
    assert invalid_places(sentences[-1], scheme) == [1]


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        ("I-PER I-PER B-PER O E-LOC", [("PER", 0, 2), ("PER", 2, 3), ("LOC", 4, 5)]),
        ("B-PER I-LOC I-LOC", [("PER", 0, 1), ("LOC", 1, 3)]),
        ("S-PER I-PER E-PER E-PER", [("PER", 0, 1), ("PER", 1, 3), ("PER", 3, 4)]),
        ("B I O I", [("_", 0, 2), ("_", 3, 4)]),
        ("O O", []),
        ("", []),
    ],
)
def test_invalid_sequences_are_read_as_conlleval_reads_them(tags, entities):
    assert entities_of(tags.split()) == [Entity(*each) for each in entities]


@pytest.mark.parametrize("tag", ["NN", "b-PER", "", "-", "BE-PER", "0"])
def test_what_is_no_tag_is_named_and_a_type_may_have_hyphens(tag):
    with pytest.raises(ValueError, match=f"the tag {tag!r} is neither O nor B-TYPE"):
        split_tag(tag)
    assert split_tag("B-creative-work") == ("B", "creative-work")


def flags(*lengths):
    return np.concatenate([np.arange(length) == 0 for length in lengths])


def test_spans_of_any_labels_are_those_of_their_tags():
    rng = np.random.default_rng(0)
    labels = entity_labels(["A", "B-C", "D"])
    found = 0
    for _ in range(200):
        lengths = rng.integers(1, 7, 4)
        ids = rng.choice([0, 1, 2, 2, 3, 4, 4, 5, 6], lengths.sum())
        starts, stops = spans(ids, flags(*lengths))
        expected, place = [], 0
        for length in lengths.tolist():
            for entity in entities_of([labels[label] for label in ids[place : place + length]]):
                expected.append((place + entity.start, place + entity.stop))
            place += length
        assert list(zip(starts.tolist(), stops.tolist(), strict=True)) == expected
        found += len(expected)
    assert found > 500


def test_an_entity_is_right_if_both_ends_and_its_type_are():
    gold = np.array([1, 2, 0, 3, 0, 1, 0])
    given = np.array([1, 2, 0, 1, 0, 1, 2])
    counts = TagCounts(gold, given, flags(7), ["X", "Y"]).entities.sum(axis=0)
    assert counts.tolist() == [[1, 3, 2], [0, 0, 1]]


def test_percentages():
    assert scores(np.array([2, 4, 8])) == pytest.approx((50, 25, 100 / 3))
    assert scores(np.array([0, 0, 8])) == scores(np.array([0, 8, 0])) == scores(np.zeros(3)) == (0, 0, 0)
    found = TagCounts(np.array([1, 2, 0]), np.array([1, 0, 0]), flags(3), ["X"]).metrics()
    none = [f"{name}{end}" for name in ("f1", "precision", "recall") for end in ("", "_X")]
    assert found == {**dict.fromkeys(none, 0.0), "accuracy": 200 / 3}
    assert TagCounts(np.array([1, 2]), np.array([1, 0]), flags(2), None).metrics() == {"accuracy": 50.0}
