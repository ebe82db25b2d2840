"""Entities counted from labels, and percentages; the definitions are compared in tests/parity/test_tagging_metrics.py."""

import numpy as np
import pytest

from roberta_plugin.kinds.entities import count_entities, entities_of, entity_labels, evaluate, scores, spans


def flags(*lengths):
    return np.concatenate([np.arange(length) == 0 for length in lengths])


def test_the_example_of_the_file():
    starts, stops = spans(np.array([2, 2, 1, 2, 0]), flags(3, 2))
    assert list(zip(starts.tolist(), stops.tolist(), strict=True)) == [(0, 2), (2, 3), (3, 4)]


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
    counts = count_entities(gold, given, flags(7), num_types=2)
    assert counts.tolist() == [[1, 3, 2], [0, 0, 1]]


def test_percentages():
    assert scores(np.array([2, 4, 8])) == pytest.approx((50, 25, 100 / 3))
    assert scores(np.array([0, 0, 8])) == scores(np.array([0, 8, 0])) == scores(np.zeros(3)) == (0, 0, 0)
    found = evaluate(np.array([1, 2, 0]), np.array([1, 0, 0]), flags(3), ["X"])
    assert found == {
        "f1": 0.0,
        "precision": 0.0,
        "recall": 0.0,
        "accuracy": 200 / 3,
        "precision_X": 0.0,
        "recall_X": 0.0,
        "f1_X": 0.0,
    }
    assert evaluate(np.array([1, 2]), np.array([1, 0]), flags(2), None) == {"accuracy": 50.0}
