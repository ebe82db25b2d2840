"""A table is cut by a hash of the text: in the right share, without overlap, and independently of the order."""

import numpy as np
import pytest

from roberta_plugin.finetuning.custom.examples import Example
from roberta_plugin.finetuning.custom.splits import cut_fold, cut_share, divided, position_of


@pytest.fixture
def examples(tmp_path):
    return [
        Example(path=tmp_path / "my.csv", line=line, id=str(line), texts=(f"text {line % 2000}",))
        for line in range(3000)
    ]


def key(example):
    return example.texts


def test_equal_texts_are_on_one_side_and_the_share_is_right(examples):
    chosen = cut_share(examples, share=0.1, key=key)
    valid = {example.texts for example, is_valid in zip(examples, chosen, strict=True) if is_valid}
    train = {example.texts for example, is_valid in zip(examples, chosen, strict=True) if not is_valid}
    assert not valid & train
    assert len(valid) == pytest.approx(200, abs=3 * np.sqrt(180))
    assert cut_share(examples[::-1], share=0.1, key=key) == chosen[::-1], "the side of a row depends on its text alone"
    larger = cut_share(examples, share=0.2, key=key)
    assert all(now or not before for before, now in zip(chosen, larger, strict=True))


def test_each_text_is_in_the_development_set_of_one_fold(examples):
    folds = np.array([cut_fold(examples, number=number, total=5, key=key) for number in range(1, 6)])
    assert (folds.sum(axis=0) == 1).all()
    assert folds.sum(axis=1) == pytest.approx(np.full(5, 600), abs=90)


def test_white_space_makes_no_other_text_but_another_pair_does():
    assert position_of((" a  b\n",)) == position_of(("a b",))
    assert len({position_of(texts) for texts in (("a b",), ("a", "b"), ("b", "a"), ("A b",))}) == 4


def test_a_side_without_examples_is_refused(examples):
    train, valid = divided(examples, [True] + [False] * 2999, remedy="")
    assert (len(train), valid) == (2999, examples[:1])
    with pytest.raises(ValueError, match=r"my\.csv: of 3,000 rows, none is left for the development set\. Do so\."):
        divided(examples, [False] * 3000, remedy="Do so.")
    with pytest.raises(ValueError, match="none is left for the training set"):
        divided(examples, [True] * 3000, remedy="Do so.")
