"""Which recipe, how long, and for how many GPUs."""

from pathlib import Path

import pytest

from roberta_plugin.launch.arguments import check_options, parse
from roberta_plugin.pretraining.choice import Machine, as_given, choose, command, fitted, remarks, vocabulary_size
from roberta_plugin.pretraining.recipe import load


def machine(gpus=0, memory=0.0, *, has_bf16=True):
    return Machine(cores=2, has_bf16=has_bf16, gpus=gpus, gpu_memory_gb=memory, gpu_name="GPU")


@pytest.mark.parametrize(
    ("here", "hours", "expected"),
    [
        (machine(), None, "half-hour"),
        (machine(), 0.01, "tour"),
        (machine(), 2, "two-hours"),
        (machine(), 24, "night"),
        (machine(1, 24.0), None, "gpu-day-24gb"),
        (machine(1, 80.0), None, "gpu-day-80gb"),
        (machine(8, 80.0), None, "eight-gpus"),
        (machine(8, 80.0), 100, "base"),
        (machine(4, 80.0), 100, "gpu-day-80gb"),
    ],
)
def test_the_longest_recipe_that_the_machine_holds_in_the_hours(here, hours, expected):
    assert choose(here, hours=hours).name == expected


def test_a_gpu_without_room_for_any_recipe_is_told():
    with pytest.raises(ValueError, match=r"8 GB.*--recipe.*--cpu"):
        choose(machine(1, 8.0), hours=None)


def test_the_batch_stays_the_same_on_fewer_gpus():
    fewer = fitted(load("base"), machine(2, 80.0), hours=None)
    assert (fewer.train["update-freq"], fewer.gpus, fewer.hours) == ("128", 2, 440)
    assert fewer.tokens() == load("base").tokens()
    with pytest.raises(ValueError, match="7 GPUs"):
        fitted(load("base"), machine(7, 80.0), hours=None)
    assert fitted(load("base"), machine(7, 80.0), hours=None, is_shared=False) == load("base")


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
    assert remarks(recipe, machine(), tokens=10_000_000) == []
    assert "202 passes" in remarks(recipe, machine(), tokens=100_000)[0]
    assert "20% of the text" in remarks(recipe, machine(), tokens=100_000_000)[0]
    assert "bf16" in remarks(recipe, machine(has_bf16=False), tokens=10_000_000)[0]
    assert remarks(recipe, machine(), tokens=0) == []  # text that is no data-bin yet


def test_the_vocabulary_grows_with_the_text_between_our_searches_and_the_papers():
    sizes = [vocabulary_size(int(size)) for size in (1, 1e6, 55e6, 1e9, 160e9, 1e13)]
    assert sizes == sorted(sizes)
    assert sizes[2] == 8_000
    assert sizes[0] == 1_000 and sizes[-1] == 50_000
    assert sizes[4] == pytest.approx(50_000, rel=0.01)
