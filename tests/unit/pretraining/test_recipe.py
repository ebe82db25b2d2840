"""Recipes: every one of the package could begin its training; a longer training has the same shape."""

from dataclasses import replace
from pathlib import Path

import pytest

from roberta_plugin.launch.arguments import check_data, check_options, parse
from roberta_plugin.launch.options_file import RECIPES
from roberta_plugin.pretraining.choice import Machine, command
from roberta_plugin.pretraining.recipe import load, package_recipes
from tests.conftest import REPOSITORY

MINE = "summary: a\nhardware: b\ntext: c\ntrain: {{{}}}\n"
PC = Machine(cores=2, has_bf16=True)
CLUSTER_NODE = Machine(cores=64, has_bf16=True, gpus=8, gpu_memory_gb=80.0, gpu_name="H100")


@pytest.mark.parametrize("name", [path.stem for path in sorted(RECIPES.glob("*.yaml"))])
def test_fairseq_train_takes_the_options_of_every_recipe(name, tiny_data_bin):
    recipe = load(name)
    machine = PC if recipe.device == "cpu" else CLUSTER_NODE
    parsed = parse(command(recipe, machine, str(tiny_data_bin), folder=Path("runs/x")))
    check_data(parsed)
    check_options(parsed)
    assert recipe.updates == parsed.max_update > 0
    assert recipe.tokens() > 1e6
    assert not recipe.run_by_us or (REPOSITORY / recipe.run_by_us).is_file()


def test_all_updates_scale_and_nothing_else():
    recipe = load("two-hours")
    half = recipe.scaled(0.5)
    assert half.hours == recipe.hours / 2
    changed = {name for name in recipe.train if recipe.train[name] != half.train[name]}
    assert changed == {"max-update", "lr-stages", "grow-tokens-per-sample", "grow-max-tokens"}
    assert half.train["grow-max-tokens"] == "0:1024 1250:2048 4750:4096"
    assert half.train["lr-stages"] == "500:0.79 1250:0.74 1250:1 4750:0.53 4750:0.895 6750:0"
    assert half.tokens() == pytest.approx(recipe.tokens() / 2)
    assert load("base").scaled(0.1).train["warmup-updates"] == "2400"
    assert load("demo").scaled(1e-9).updates == 20


def test_tokens_are_the_sum_over_growing_batches_and_gpus():
    assert load("half-hour").tokens() == 2500 * 1024 + 8600 * 2048
    assert load("base").tokens() == 500_000 * 8192 * 512
    growing = {"batch-size": "8", "tokens-per-sample": "128", "grow-tokens-per-sample": "0:64 10:128"}
    assert replace(load("half-hour"), train={**growing, "max-update": "30"}).tokens() == 8 * (10 * 64 + 20 * 128)


def test_the_shortest_comes_first_and_processors_before_gpus():
    order = [recipe.name for recipe in package_recipes()]
    assert order.index("tour") < order.index("half-hour") < order.index("night") < order.index("base")


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("half_hour", None, ("half_hour", "half-hour")),
        ("x.yaml", None, ("x.yaml",)),
        ("x.yaml", "train: {lr: 1}\n", ("x.yaml", "max-update")),
        ("x.yaml", "train: {max-update: 3}\nhour: 1\n", ("x.yaml", "hour")),
        ("x.yaml", "train: {max-update: 3}\n", ("x.yaml", "summary")),
        ("x.yaml", "train: {max-update: 3.5}\n", ("x.yaml", "max-update", "3.5")),
        ("x.yaml", "train: {max-update: 0}\n", ("x.yaml", "max-update", "'0'")),
        ("x.yaml", MINE.format("max-update: 3") + "\ndevice: tpu\n", ("x.yaml: device", "tpu")),
        ("x.yaml", MINE.format("max-update: 3") + "\nvocab_size: 10\n", ("x.yaml: vocab-size", "300")),
        ("x.yaml", MINE.format("max-update: 3"), ("x", "batch-size")),
        ("x.yaml", MINE.format("max-update: 3, batch-size: many"), ("x", "batch-size", "many")),
        ("x.yaml", MINE.format("max-update: 3, max-tokens: 9, grow-max-tokens: 64"), ("x", "grow-max-tokens", "64")),
    ],
)
def test_what_is_no_recipe_is_refused_by_name(name, content, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_text(content)
    with pytest.raises((ValueError, OSError)) as error:
        load(name).tokens()
    assert all(word in str(error.value) for word in named)


def test_a_copy_of_a_recipe_is_a_recipe(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text((RECIPES / "half-hour.yaml").read_text().replace("lr: 1.9e-3", "lr: 1e-3"))
    assert load(str(path)).name == "mine"
    assert load(str(path)).train["lr"] == "1e-3"
