"""The most probable valid sequence, against all sequences one by one."""

import itertools

import numpy as np
import pytest

from roberta_plugin.kinds import tags as decoding
from roberta_plugin.kinds.entities import entity_labels, invalid_places
from roberta_plugin.kinds.tags import best_valid, transitions


def is_valid(tags):
    return not invalid_places(tags, "iob2")


@pytest.mark.parametrize("labels", [entity_labels(["X", "Y"]), ["I-X", "O", "B-Y", "B-X", "I-Y"]])
@pytest.mark.parametrize("memory", [1, 1 << 22])
def test_it_is_the_best_of_all_valid_sequences(labels, memory, monkeypatch):
    monkeypatch.setattr(decoding, "_MOST_NUMBERS", memory)
    rng = np.random.default_rng(0)
    lengths = [3, 1, 0, 4, 2, 4, 1]
    offsets = np.cumsum([0, *lengths])
    differs = 0
    for _ in range(15):
        probabilities = rng.dirichlet(np.full(len(labels), 0.4), offsets[-1])
        found = best_valid(probabilities, offsets, labels)
        differs += not np.array_equal(found, probabilities.argmax(axis=1))
        for first, stop in itertools.pairwise(offsets):
            choices = itertools.product(range(len(labels)), repeat=stop - first)
            rows = probabilities[first:stop]

            def score(choice, rows=rows):
                return np.log(rows[np.arange(len(choice)), list(choice)]).sum()

            best = max((choice for choice in choices if is_valid([labels[label] for label in choice])), key=score)
            assert score(found[first:stop].tolist()) == pytest.approx(score(best), abs=1e-9)
            assert is_valid([labels[label] for label in found[first:stop]])
    assert differs > 10, "the rule never mattered"


def test_impossible_labels_lose_and_the_sequence_stays_valid():
    labels = entity_labels(["X"])
    certain = np.eye(3)[[2, 2, 0, 2]]
    found = best_valid(certain, np.array([0, 4]), labels)
    assert is_valid([labels[label] for label in found])
    assert best_valid(np.eye(3)[[1, 2, 0, 1]], np.array([0, 4]), labels).tolist() == [1, 2, 0, 1]


def test_a_type_that_never_begins_with_b_has_no_rule():
    begins, follows = transitions(["O", "I-X", "B-Y", "I-Y"])
    assert begins.tolist() == [True, True, True, False]
    assert follows[0].tolist() == [True, True, True, False]
    assert follows[:, 3].tolist() == [False, False, True, True]
