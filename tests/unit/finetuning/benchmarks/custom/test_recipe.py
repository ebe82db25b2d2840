"""The grid follows the size of the data."""

from types import SimpleNamespace

import pytest

from roberta_plugin.experiments.finetuning_plan import quickened
from roberta_plugin.finetuning.benchmarks import benchmark_of


def recipe_for(num_examples, **options):
    prepared = SimpleNamespace(
        task="custom", settings={"kind": "multiple_choice"}, split=lambda name: range(num_examples)
    )
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
    assert (recipe.axes["lr"], list(recipe.axes["batch"]), recipe.seeds) == (["2e-5"], ["32"], ["1"])
    assert recipe.axes["batch"]["32"]["max-update"] == "157"
