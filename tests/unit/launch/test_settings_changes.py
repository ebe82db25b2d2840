"""A run folder goes on with its settings, but for those of the machines."""

import dataclasses

import pytest

from roberta_plugin.launch import checks, status
from roberta_plugin.launch.recipe import complete
from tests.unit.launch.recipes import good_recipe


@pytest.fixture
def launched(tiny_data_bin, tmp_path):
    """A run that was launched once; returns a function that checks a second launch of it."""
    first = good_recipe(tiny_data_bin, tmp_path / "run", batch_sequences=64)
    first.output_dir.mkdir()
    launch = status.Launch(
        job_id="7",
        name="run",
        num_gpus=4,
        batch_sequences=64,
        batch_tokens=None,
        snapshot="s",
        arguments=complete(first),
        changes=("an older one",),
    )
    status.write_launch(first.output_dir, launch)

    def again(*options, without=(), data=tiny_data_bin, **fields):
        recipe = good_recipe(data, first.output_dir, *options, without=without, batch_sequences=64)
        recipe = dataclasses.replace(recipe, **fields)
        return checks.check_changes(recipe, complete(recipe))

    return again


def test_the_same_launch_again_is_no_change(launched):
    assert launched() == ("an older one",)


def test_what_belongs_to_the_machines_may_change(launched):
    options = ("--num-workers", "3", "--log-interval", "7", "--save-interval-updates", "9", "--max-update", "9999")
    assert launched(*options, "--keep-interval-updates", "3", nodes=1, gpus_per_node=1) == ("an older one",)


def test_the_batch_of_an_update_may_not_change_where_no_setting_fixes_it(tiny_data_bin, tmp_path):
    def recipe(*options, **fields):
        return good_recipe(tiny_data_bin, tmp_path / "run", "--update-freq", "2", *options, **fields)

    first = recipe()  # 4 sequences x 2 x 4 GPUs
    first.output_dir.mkdir()
    values = {"job_id": "7", "name": "run", "batch_sequences": None, "batch_tokens": None, "snapshot": "s"}
    status.write_launch(first.output_dir, status.Launch(num_gpus=4, arguments=complete(first), **values))
    for same in (
        recipe(),
        recipe(nodes=1),  # another number of GPUs
        recipe("--batch-size", "2", "--update-freq", "4"),
        recipe("--batch-size", "8", nodes=1),
    ):
        assert checks.check_changes(same, complete(same)) == ()
    larger = recipe("--batch-size", "8")
    with pytest.raises(ValueError, match=r"--batch-size x --update-freq x GPUs 64 instead of 32.*--accept-changes"):
        checks.check_changes(larger, complete(larger))


@pytest.mark.parametrize(
    ("options", "without", "message"),
    [
        (("--lr", "9e-3"), (), r"--lr \[0.009\] instead of \[0.003\]"),
        (("--seed", "77"), ("--seed",), "--seed 77 instead of 3"),
        (("--mask-prob", "0.4"), (), "--mask-prob 0.4 instead of 0.15"),
        (("--dropout", "0.3"), (), "--dropout 0.3 instead of nothing"),
        (("--bf16",), (), "--bf16 True instead of False"),
    ],
)
def test_what_is_trained_may_not(launched, options, without, message):
    with pytest.raises(ValueError, match=f"begun with other settings: .*{message}.*--accept-changes"):
        launched(*options, without=without)


def test_other_data_are_refused_and_the_same_by_another_path_are_not(launched, tiny_data_bin, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match=r"--data '.*elsewhere' instead of"):
        launched(data=tmp_path / "elsewhere")
    monkeypatch.chdir(tiny_data_bin.parent)
    assert launched(data=tiny_data_bin.name) == ("an older one",)


def test_the_effective_batch_counts(launched):
    with pytest.raises(ValueError, match="--batch-sequences 128 instead of 64"):
        launched(batch_sequences=128)


def test_a_change_that_is_meant_is_recorded(launched):
    changes = launched("--lr", "9e-3", accept_changes=True)
    assert changes == ("an older one", "--lr [0.009] instead of [0.003]")
