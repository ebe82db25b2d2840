"""A table's splits, the grid that follows its size, and intervals that cover what they should."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats

from roberta_plugin.experiments.finetuning_grid import quickened
from roberta_plugin.extensions.own_tables.benchmark import cut_fold, cut_share, divided, intervals, position_of
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.examples import Example


def example(number, text, **more):
    return Example(path=Path("my.csv"), line=number, id=str(number), texts=(text,), **more)


def share_of(examples, **how):
    return cut_share(examples, **{"key": lambda each: each.texts, **how})


def folds_of(examples, **how):
    cut = {"total": 5, "key": lambda each: each.texts, **how}
    return np.array([cut_fold(examples, number=number, **cut) for number in range(1, 6)])


EXAMPLES = [example(number, f"text {number % 2000}") for number in range(3000)]
BY_LABEL = {"labels": lambda each: (each.target,)}


def test_equal_texts_are_on_one_side_and_the_share_is_right():
    chosen = share_of(EXAMPLES, share=0.1)
    train, valid = ({each.texts for each, at in zip(EXAMPLES, chosen, strict=True) if at == side} for side in (0, 1))
    assert not valid & train
    assert len(valid) == pytest.approx(200, abs=3 * np.sqrt(180))
    assert share_of(EXAMPLES[::-1], share=0.1) == chosen[::-1], "the side of a row depends on its text alone"
    larger = share_of(EXAMPLES, share=0.2)
    assert all(now or not before for before, now in zip(chosen, larger, strict=True))
    folds = folds_of(EXAMPLES)
    assert (folds.sum(axis=0) == 1).all(), "each text is in the development set of one fold"
    assert folds.sum(axis=1) == pytest.approx(np.full(5, 600), abs=90)


@pytest.mark.parametrize("seed", range(5))
def test_rare_labels_are_on_both_sides_and_in_every_fold(seed):
    """A tenth of 1,000 texts drawn without regard to the label has none of 10 rare ones in a third of all cases."""
    is_rare = np.arange(1000) % 100 == 7
    labels = np.where(is_rare, "rare", "common").tolist()
    examples = [example(number, f"{seed} {number}", target=label) for number, label in enumerate(labels)]
    chosen = np.array(share_of(examples, share=0.1, **BY_LABEL))
    assert chosen[is_rare].sum() == 1 and 79 <= chosen[~is_rare].sum() <= 119
    folds = folds_of(examples, **BY_LABEL)
    assert folds[:, is_rare].sum(axis=1).tolist() == [2] * 5
    assert (folds.sum(axis=0) == 1).all()
    few = [each for each in examples if each.target == "rare"][:3]
    assert sum(share_of(few, share=0.1, **BY_LABEL)) <= 1, "with three, a development set may have none"

    more = [each._replace(texts=(f"new {each.id}",)) for each in examples[:200]]
    again = np.array(share_of([*examples, *more], share=0.1, **BY_LABEL))[:1000]
    assert (again != chosen).sum() <= 5, "rows stay where they are when others are added"
    assert (again[is_rare] != chosen[is_rare]).sum() <= 1


def test_many_labels_of_a_few_texts_give_a_development_set_and_equal_folds():
    examples = [example(number, f"text {number}", target=f"label {number // 3}") for number in range(600)]
    assert 30 <= sum(share_of(examples, share=0.1, **BY_LABEL)) <= 90
    sizes = folds_of(examples, **BY_LABEL).sum(axis=1)
    assert sizes.min() >= 90 and sizes.sum() == 600


def test_a_group_counts_for_the_rarest_of_its_labels():
    examples = [example(number, str(number), target="no", group=f"group {number // 4}") for number in range(400)]
    examples[3::40] = [each._replace(target="yes") for each in examples[3::40]]
    chosen = share_of(examples, share=0.2, key=lambda each: (each.group,), **BY_LABEL)
    sides = {each.group: side for each, side in zip(examples, chosen, strict=True)}
    assert [sides[each.group] for each in examples] == chosen
    assert sum(side for each, side in zip(examples, chosen, strict=True) if each.target == "yes") == 2


def test_white_space_makes_no_other_text_but_another_pair_does():
    assert position_of((" a  b\n",)) == position_of(("a b",))
    assert len({position_of(texts) for texts in (("a b",), ("a", "b"), ("b", "a"), ("A b",))}) == 4


def test_a_side_without_examples_is_refused():
    train, valid = divided(EXAMPLES, [True] + [False] * 2999, remedy="")
    assert (len(train), valid) == (2999, EXAMPLES[:1])
    with pytest.raises(ValueError, match=r"my\.csv: of 3,000 rows, none is left for the development set\. Do so\."):
        divided(EXAMPLES, [False] * 3000, remedy="Do so.")
    with pytest.raises(ValueError, match="none is left for the training set"):
        divided(EXAMPLES, [True] * 3000, remedy="Do so.")


def recipe_for(num_examples, **options):
    settings = {"kind": "multiple_choice"}
    prepared = SimpleNamespace(task="custom", settings=settings, split=lambda name: range(num_examples))
    return benchmark_of("custom").recipe(prepared, **options)


@pytest.mark.parametrize(
    ("num_examples", "batches", "epochs", "num_runs"),
    [(999, 1, 20, 15), (1000, 2, 10, 18), (9999, 2, 10, 18), (10_000, 1, 5, 9), (100_000, 1, 3, 6)],
)
def test_the_grid_is_that_of_the_table(num_examples, batches, epochs, num_runs):
    recipe = recipe_for(num_examples)
    assert len(recipe.axes["batch"]) == batches
    assert len(recipe.axes["lr"]) * batches * len(recipe.seeds) == num_runs
    size, options = next(iter(recipe.axes["batch"].items()))
    assert int(options["max-update"]) == epochs * -(-num_examples // int(size))
    assert recipe.train["task"] == recipe.train["criterion"] == "race"


def test_quick_is_one_run_from_the_middle():
    recipe = quickened(recipe_for(5000, epochs=1))
    assert (list(recipe.axes["lr"]), list(recipe.axes["batch"]), recipe.seeds) == (["2e-5"], ["32"], ["1"])
    assert recipe.axes["batch"]["32"]["max-update"] == "157"


def accuracy(is_right):
    return lambda weights: {"accuracy": 100 * float(weights @ is_right / weights.sum())}


def test_an_interval_of_an_accuracy_is_nearly_that_of_the_binomial_distribution():
    is_right = np.arange(400) < 320
    low, high = intervals(accuracy(is_right), 400)["accuracy"]
    wanted = [value / 4 for value in scipy.stats.binom(400, 0.8).interval(0.95)]
    assert (low, high) == (pytest.approx(wanted[0], abs=0.6), pytest.approx(wanted[1], abs=0.6))
    assert intervals(accuracy(is_right), 400)["accuracy"] == (low, high)


def test_intervals_of_95_percent_hold_the_true_value_in_about_95_percent_of_all_samples():
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(40):
        low, high = intervals(accuracy(rng.random(100) < 0.7), 100)["accuracy"]
        covered += low <= 70 <= high
    assert 34 <= covered <= 40
