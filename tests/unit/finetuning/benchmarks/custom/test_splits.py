"""A table is cut by a hash of the text: in the right share, without overlap, and independently of the order."""

import numpy as np
import pytest

from roberta_plugin.finetuning.benchmarks.custom import cut_fold, cut_share, divided, position_of
from roberta_plugin.finetuning.examples import Example


@pytest.fixture
def examples(tmp_path):
    return [
        Example(path=tmp_path / "my.csv", line=line, id=str(line), texts=(f"text {line % 2000}",))
        for line in range(3000)
    ]


def key(example):
    return example.texts


def label_of(example):
    return (example.target,)


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


@pytest.mark.parametrize("seed", range(5))
def test_rare_labels_are_on_both_sides_and_in_every_fold(tmp_path, seed):
    """A tenth of 1,000 texts drawn without regard to the label has none of 10 rare ones in a third of all cases."""
    labels = ["rare" if number % 100 == 7 else "common" for number in range(1000)]
    examples = [
        Example(tmp_path / "my.csv", number, str(number), (f"{seed} {number}",), target=label)
        for number, label in enumerate(labels)
    ]
    is_rare = np.array(labels) == "rare"
    chosen = np.array(cut_share(examples, share=0.1, key=key, labels=label_of))
    assert chosen[is_rare].sum() == 1 and 79 <= chosen[~is_rare].sum() <= 119
    folds = np.array([cut_fold(examples, number=n, total=5, key=key, labels=label_of) for n in range(1, 6)])
    assert folds[:, is_rare].sum(axis=1).tolist() == [2] * 5
    assert (folds.sum(axis=0) == 1).all()
    few = [each for each in examples if each.target == "rare"][:3]
    assert sum(cut_share(few, share=0.1, key=key, labels=label_of)) <= 1, "with three, a development set may have none"

    more = [each._replace(texts=(f"new {each.id}",)) for each in examples[:200]]
    again = np.array(cut_share([*examples, *more], share=0.1, key=key, labels=label_of))[:1000]
    assert (again != chosen).sum() <= 5, "rows stay where they are when others are added"
    assert (again[is_rare] != chosen[is_rare]).sum() <= 1


def test_many_labels_of_a_few_texts_give_a_development_set_and_equal_folds(tmp_path):
    examples = [
        Example(tmp_path / "my.csv", number, str(number), (f"text {number}",), target=f"label {number // 3}")
        for number in range(600)
    ]
    assert 30 <= sum(cut_share(examples, share=0.1, key=key, labels=label_of)) <= 90
    sizes = [sum(cut_fold(examples, number=n, total=5, key=key, labels=label_of)) for n in range(1, 6)]
    assert min(sizes) >= 90 and sum(sizes) == 600


def test_a_group_counts_for_the_rarest_of_its_labels(tmp_path):
    examples = [
        Example(tmp_path / "my.csv", number, str(number), (str(number),), target="no", group=f"group {number // 4}")
        for number in range(400)
    ]
    examples[3::40] = [each._replace(target="yes") for each in examples[3::40]]
    chosen = cut_share(examples, share=0.2, key=lambda example: (example.group,), labels=label_of)
    sides = {example.group: side for example, side in zip(examples, chosen, strict=True)}
    assert [sides[example.group] for example in examples] == chosen
    assert sum(side for example, side in zip(examples, chosen, strict=True) if example.target == "yes") == 2


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
