"""Labels are found, sorted and weighted, and what is no label column is said."""

from collections import Counter

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from roberta_plugin.finetuning.examples import (
    Example,
    balanced_weights,
    found_labels,
    look_alikes,
    number_of,
    positive_weights,
)


def pairs_of(tmp_path, labels):
    return [
        (label, Example(path=tmp_path / "my.csv", line=line, id="", texts=("a",), target=label))
        for line, label in enumerate(labels, start=2)
    ]


def found(tmp_path, labels, given=None):
    return found_labels(pairs_of(tmp_path, labels), given, path="my.csv")


def test_labels_are_sorted_as_numbers_if_they_are_and_the_user_may_order_them(tmp_path):
    assert found(tmp_path, ["10", "9", "9", "-1"]) == ["-1", "9", "10"]
    assert found(tmp_path, ["10", "9", "x"]) == ["10", "9", "x"]
    assert found(tmp_path, ["b", "a"], ["b", "c", "a"]) == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("labels", "given", "message"),
    [
        (["a", "b", "c"], ["a", "b"], r"my\.csv, line 4: the label 'c' is none of --labels a b"),
        (["a", "a"], None, r"there is no other label than 'a', so there is nothing to learn"),
        ([], None, "no row has a label"),
        ([str(number / 7) for number in range(30)], None, "30 different values in 30 rows.* --kind regression"),
    ],
)
def test_a_column_that_is_not_one_of_labels_is_refused(tmp_path, labels, given, message):
    with pytest.raises(ValueError, match=message):
        found(tmp_path, labels, given)


def test_a_label_that_training_lacks_is_named(tmp_path):
    ((_, example),) = pairs_of(tmp_path, ["z"])
    with pytest.raises(
        ValueError, match=r"my\.csv, line 2: no row of the training table has the label 'z'; it has a, b"
    ):
        number_of("z", ["a", "b"], example)
    assert number_of("b", ["a", "b"], example) == 1


def test_labels_that_look_alike_are_found():
    assert look_alikes(["1", "Pos", "1.0", "pos", "+1", "2", "x y", "x  y"]) == [
        ("1", "1.0"),
        ("Pos", "pos"),
        ("1", "+1"),
        ("x y", "x  y"),
    ]
    assert look_alikes(["\u00e9", "e\u0301"]) == [("\u00e9", "e\u0301")]
    assert look_alikes(["1.0", "1.1", "10", "1e1", "a", "\u00e4"]) == []


def test_balanced_weights_are_those_of_scikit_learn():
    labels = ["a", "b", "c"]
    column = np.array(["a"] * 7 + ["b"] * 2 + ["c"])
    weights = balanced_weights(labels, Counter(column.tolist()))
    assert weights == pytest.approx(compute_class_weight("balanced", classes=np.array(labels), y=column))
    assert np.mean([weights[labels.index(label)] for label in column]) == pytest.approx(1)
    assert balanced_weights(labels, Counter({"a": 1, "b": 3})) == [2.0, 2 / 3, 1.0]


def test_weights_of_presence_make_present_and_absent_labels_weigh_the_same():
    assert positive_weights(["a", "b", "c"], Counter({"a": 2, "b": 10}), 10) == [4.0, 1.0, 1.0]
