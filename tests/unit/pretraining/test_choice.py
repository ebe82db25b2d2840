"""Which recipe, how long, and for how many GPUs."""

from pathlib import Path

import pytest

from roberta_plugin.launch.arguments import check_options, parse
from roberta_plugin.models.config import SIZES
from roberta_plugin.pretraining.choice import (
    MOST_PASSES,
    Machine,
    as_given,
    choose,
    command,
    fitted,
    hours_on,
    most_factor,
    remarks,
    vocabulary_size,
)
from roberta_plugin.pretraining.recipe import load


def machine(gpus=0, memory=0.0, *, has_bf16=True):
    return Machine(cores=1, has_bf16=has_bf16, gpus=gpus, gpu_memory_gb=memory, gpu_name="GPU")


HOURS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 4, 8, 16, 30, 100)
TOKENS = (0, 10**5, 10**6, 10**7, 10**8, 10**10)
CPUS = [Machine(cores, has_bf16) for cores in (1, 2, 8, 64) for has_bf16 in (True, False)]
GPUS = [
    Machine(16, True, gpus, memory, name)
    for gpus, memory, name in (
        (1, 8.0, "RTX 3060"),
        (1, 24.0, "NVIDIA GeForce RTX 3090"),
        (1, 85.0, "NVIDIA A100-SXM4-80GB"),
        (1, 85.0, "NVIDIA H100 80GB HBM3"),
        (4, 85.0, "NVIDIA H100 80GB HBM3"),
        (8, 85.0, "NVIDIA H100 80GB HBM3"),
        (64, 85.0, "NVIDIA H100 80GB HBM3"),
    )
]


def weights(recipe):
    layers, dim, ffn_dim, _ = SIZES[recipe.train["arch"].removeprefix("fast_roberta_")]
    dim, ffn_dim = (
        int(recipe.train.get(f"encoder-{name}-dim", size)) for name, size in (("embed", dim), ("ffn-embed", ffn_dim))
    )
    return layers * (4 * dim * dim + 2 * dim * ffn_dim)


@pytest.mark.parametrize("here", CPUS + GPUS, ids=str)
def test_any_hours_and_text_give_a_training_of_that_length_and_models_grow_with_both(here):
    sizes = {}
    for tokens in TOKENS:
        for hours in HOURS:
            named = choose(here, hours=hours, tokens=tokens)
            made = fitted(named, here, hours=hours, most=most_factor(named, tokens))
            assert made.hours <= 1.1 * hours
            passes = made.tokens() / tokens if tokens else 0
            assert passes <= 1.01 * MOST_PASSES
            assert made.hours > hours / 3 or passes > 0.99 * MOST_PASSES, (
                "short only where the text does not allow more"
            )
            said = " ".join(remarks(made, named, here, tokens=tokens, hours=hours))
            assert ("Hoffmann et al. 2022" in said) == (not 0.25 <= made.updates / named.updates <= 4)
            assert ("Muennighoff et al. 2023" in said) == (made.hours < 0.9 * hours)
            sizes[tokens or 10**12, hours] = weights(named)
    for (tokens, hours), size in sizes.items():
        assert all(size <= more for (text, time), more in sizes.items() if text >= tokens and time >= hours)


def test_hours_are_those_of_the_processor():
    recipe, tour = load("half-hour"), load("tour")
    assert hours_on(Machine(1, True), recipe) == 0.5
    assert hours_on(Machine(1, False), recipe) == pytest.approx(0.9)
    assert hours_on(Machine(2, True), recipe) == pytest.approx(0.5 / 1.5)
    assert hours_on(Machine(64, True), recipe) == hours_on(Machine(8, True), recipe) > 0.2
    assert hours_on(Machine(1, False), tour) == hours_on(Machine(1, True), tour), "its products are in fp32 anyway"
    day = load("gpu-day-80gb")
    assert hours_on(GPUS[2], day) == pytest.approx(24 * 989.4 / 312)


@pytest.mark.parametrize(
    ("here", "hours", "expected"),
    [
        (machine(), None, "half-hour"),
        (machine(), 0.01, "tour"),
        (machine(), 2, "two-hours"),
        (machine(), 0.2, "half-hour"),
        (machine(), 8, "night"),
        (machine(), 24, "weekend"),
        (machine(1, 24.0), None, "gpu-day-24gb"),
        (machine(1, 80.0), None, "gpu-day-80gb"),
        (machine(8, 80.0), None, "eight-gpus"),
        (machine(8, 80.0), 100, "base"),
        (machine(1, 80.0), 0.05, "half-hour"),
        (machine(1, 8.0), None, "weekend"),
        (machine(4, 80.0), 30, "eight-gpus"),
    ],
)
def test_the_recipe_that_is_nearest_to_the_hours_on_the_machine(here, hours, expected):
    assert choose(here, hours=hours).name == expected


def test_the_batch_stays_the_same_on_fewer_gpus():
    fewer = fitted(load("base"), machine(2, 80.0), hours=None)
    assert (fewer.train["update-freq"], fewer.gpus, fewer.hours) == ("128", 2, 440)
    assert fewer.tokens() == load("base").tokens()
    with pytest.raises(ValueError, match="7 GPUs"):
        fitted(load("base"), machine(7, 80.0), hours=None)
    assert fitted(load("base"), machine(7, 80.0), hours=None, is_shared=False).train == load("base").train


def test_hours_are_those_of_the_gpus_that_are_there():
    day = load("gpu-day-80gb")
    made = fitted(day, machine(4, 80.0), hours=6)
    assert made.hours == pytest.approx(6) and made.updates == day.updates
    assert fitted(day, machine(1, 80.0), hours=6).updates == pytest.approx(day.updates / 4, abs=1)


def test_a_recipe_for_processors_takes_one_gpu_of_many():
    given = command(load("tour"), machine(8, 80.0), "bin", folder=Path("runs"))
    assert given[given.index("--distributed-world-size") + 1] == "1" and "--bf16" in given and "--cpu" not in given


@pytest.mark.parametrize(
    ("given", "gone", "kept"),
    [
        (["--lr-scheduler", "polynomial_decay", "--total-num-update", "9"], ["--lr-stages"], ["--grow-max-tokens"]),
        (["--batch-size", "8"], ["--max-tokens", "--grow-max-tokens"], ["--grow-tokens-per-sample"]),
        (["--max-tokens=8192"], ["--grow-max-tokens"], ["--grow-tokens-per-sample", "--lr-stages"]),
        (["--tokens-per-sample", "64"], ["--grow-tokens-per-sample"], ["--grow-max-tokens"]),
        (["--arch", "fast_roberta_base"], ["--encoder-layers", "--encoder-embed-dim"], ["--init-std"]),
        (["--input-format", "segment-pair"], ["--grow-tokens-per-sample", "--sample-break-mode"], ["--max-tokens"]),
    ],
)
def test_an_option_of_the_user_takes_the_place_of_those_that_only_go_with_the_recipes(given, gone, kept, tiny_data_bin):
    made = command(load("two-hours"), machine(), str(tiny_data_bin), folder=Path("runs"), further=given)
    assert not set(gone) & set(made)
    assert set(kept) <= set(made)
    check_options(parse(made))


def test_the_length_is_that_of_the_command(tiny_data_bin):
    recipe = load("half-hour")
    further = ["--batch-size", "16", "--update-freq", "2", "--max-update=100"]
    parsed = parse(command(recipe, machine(), str(tiny_data_bin), folder=Path("runs"), further=further))
    made = as_given(recipe, parsed)
    assert (made.updates, made.tokens()) == (100, 100 * 16 * 64 * 2)
    assert made.hours == pytest.approx(recipe.hours * made.tokens() / recipe.tokens())
    parsed.max_update = 0
    with pytest.raises(ValueError, match="--max-update 0"):
        as_given(recipe, parsed)


def test_options_of_the_user_replace_those_of_the_recipe():
    given = command(load("half-hour"), machine(), "bin", folder=Path("runs"), further=["--lr", "1e-3", "--seed=7"])
    assert given[0] == "bin"
    assert given.count("--lr") == 1 and given[given.index("--lr") + 1] == "1e-3"
    assert "--seed" not in given and "--seed=7" in given
    assert "--matmul-precision" in given
    without = command(load("half-hour"), machine(has_bf16=False), "bin", folder=Path("runs"))
    assert "--matmul-precision" not in without and "medium" not in without


def test_too_many_passes_too_few_and_a_processor_without_bf16_are_told():
    recipe = load("half-hour")  # 20 million tokens

    def said(machine, tokens):
        return " ".join(remarks(recipe, recipe, machine, tokens=tokens))

    assert said(machine(), 10_000_000) == said(machine(), 0) == ""  # 0: text that is no data-bin yet
    assert "202 passes" in said(machine(), 100_000)
    assert "20% of the text" in said(machine(), 100_000_000)
    assert "1.8 times as long" in said(machine(has_bf16=False), 10_000_000)


def test_the_vocabulary_grows_with_the_text_between_our_searches_and_the_papers():
    sizes = [vocabulary_size(int(size)) for size in (1, 1e6, 55e6, 1e9, 160e9, 1e13)]
    assert sizes == sorted(sizes)
    assert sizes[2] == 8_000
    assert sizes[0] == 1_000 and sizes[-1] == 50_000
    assert sizes[4] == pytest.approx(50_000, rel=0.01)
