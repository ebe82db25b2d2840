"""What may change when a launched run resumes, and what is refused."""

import dataclasses
import shutil

import pytest

from roberta_plugin.launch.recipe import complete
from roberta_plugin.launch.recipe_checks import check_changes
from roberta_plugin.runs import read_record, write_record
from tests.unit.launch.recipes import good_recipe


@pytest.fixture
def launched(tiny_data_bin, tmp_path):
    """A run that was launched once; returns a function that checks a second launch of it."""
    first = good_recipe(tiny_data_bin, tmp_path / "run", batch_sequences=64)
    first.output_dir.mkdir()
    write_record(first.output_dir, first.record(complete(first), changes=("an older one",), snapshot="s"))

    def again(*options, data=tiny_data_bin, **fields):
        recipe = good_recipe(data, first.output_dir, *options, batch_sequences=64)
        recipe = dataclasses.replace(recipe, **fields)
        return check_changes(recipe, complete(recipe))

    return again


def test_the_same_launch_again_is_no_change(launched):
    assert launched() == ("an older one",)


def test_a_run_whose_folder_was_moved_with_its_data_is_the_same(tiny_data_bin, tmp_path):
    def at(place, data="bin"):
        (place / "runs").mkdir(parents=True, exist_ok=True)
        shutil.copytree(tiny_data_bin, place / data, dirs_exist_ok=True)
        return good_recipe(place / data, place / "runs" / "base", batch_sequences=64)

    first = at(tmp_path / "old")
    first.output_dir.mkdir()
    write_record(first.output_dir, first.record(complete(first), changes=(), snapshot="s"))
    (tmp_path / "old").rename(tmp_path / "new")
    again, other = at(tmp_path / "new"), at(tmp_path / "new", "other")
    assert check_changes(again, complete(again)) == ()
    with pytest.raises(ValueError, match=r"--data was .*/old/bin and is .*/new/other now"):
        check_changes(other, complete(other))


def test_an_option_of_an_earlier_version_is_no_change(launched, tmp_path):
    before = read_record(tmp_path / "run")
    arguments = (*before.arguments, "--background-checkpoints")
    write_record(tmp_path / "run", dataclasses.replace(before, arguments=arguments))
    assert launched() == ("an older one",)


def test_what_belongs_to_the_machines_may_change(launched):
    options = ("--num-workers", "3", "--log-interval", "7", "--save-interval-updates", "9", "--max-update", "9999")
    assert launched(*options, "--keep-interval-updates", "3", nodes=1, gpus_per_node=1) == ("an older one",)


def test_the_batch_of_an_update_may_not_change_where_no_setting_fixes_it(tiny_data_bin, tmp_path):
    def recipe(*options, **fields):
        return good_recipe(tiny_data_bin, tmp_path / "run", "--update-freq", "2", *options, **fields)

    first = recipe()  # 4 sequences x 2 x 4 GPUs
    first.output_dir.mkdir()
    write_record(first.output_dir, first.record(complete(first), changes=(), snapshot="s"))
    for same in (
        recipe(),
        recipe(nodes=1),  # another number of GPUs
        recipe("--batch-size", "2", "--update-freq", "4"),
        recipe("--batch-size", "8", nodes=1),
    ):
        assert check_changes(same, complete(same)) == ()
    larger = recipe("--batch-size", "8")
    with pytest.raises(ValueError, match=r"--batch-size x --update-freq x GPUs was 32 and is 64 now.*--accept-changes"):
        check_changes(larger, complete(larger))
    for given, said in (("accept_changes=true", ", or accept the change by accept_changes=true"), ("", "")):
        with pytest.raises(ValueError, match=rf"another --output-dir{said}\.$"):
            check_changes(larger, complete(larger), accepted_by=given)


@pytest.mark.parametrize(
    ("options", "fields", "change"),
    [
        (("--lr", "9e-3"), {}, "--lr was 0.003 and is 0.009 now"),
        (("--dropout", "0.3"), {}, "--dropout was not given and is 0.3 now"),
        (("--bf16",), {}, "--bf16 was False and is True now"),
        ((), {"batch_sequences": 128}, "--batch-sequences was 64 and is 128 now"),
    ],
)
def test_what_is_trained_may_not_unless_it_is_meant_and_then_it_is_recorded(launched, options, fields, change):
    with pytest.raises(ValueError, match=f"begun with other settings: .*{change}.*--accept-changes"):
        launched(*options, **fields)
    assert launched(*options, accept_changes=True, **fields) == ("an older one", change)


def test_other_data_are_refused_and_the_same_by_another_path_are_not(launched, tiny_data_bin, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match=r"--data was .* and is .*elsewhere now"):
        launched(data=tmp_path / "elsewhere")
    monkeypatch.chdir(tiny_data_bin.parent)
    assert launched(data=tiny_data_bin.name) == ("an older one",)
    assert launched(data=f"../{tiny_data_bin.parent.name}/{tiny_data_bin.name}") == ("an older one",)


def test_relative_paths_of_data_are_those_of_the_folder_where_the_run_began(tiny_data_bin, tmp_path, monkeypatch):
    monkeypatch.chdir(tiny_data_bin.parent)
    name = tiny_data_bin.name
    first = good_recipe(f"{name}@3", tmp_path / "run")
    (tmp_path / "run").mkdir()
    write_record(first.output_dir, first.record(complete(first), changes=(), snapshot="s"))
    (tmp_path / "here" / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    same, other = (good_recipe(data, tmp_path / "run") for data in (f"{tiny_data_bin}@3", f"{name}@3"))
    assert check_changes(same, complete(same)) == ()
    with pytest.raises(ValueError, match=f"--data was {tiny_data_bin}@3 and is .*here/{name}@3 now"):
        check_changes(other, complete(other))


@pytest.mark.parametrize(
    "option",
    ["--no-linear-bias", "--no-layernorm-embedding", "--zero-init-residual", "--checkpoint-suffix=-2"],
)
def test_an_option_that_changes_the_training_is_refused_however_it_begins(launched, option):
    with pytest.raises(ValueError, match=f"{option.partition('=')[0]} was .* now"):
        launched(option)


@pytest.mark.parametrize(
    ("first", "second", "change"),
    [
        (("--update-sequences", "30"), ("--update-sequences", "60"), "--update-sequences was 30 and is 60"),
        (("--update-freq", "1"), ("--update-sequences", "24"), "--update-sequences was 16 and is 24"),
        (("--update-freq", "1,2"), ("--update-freq", "1,4"), "--update-freq x GPUs was 16, 32 and is 16, 64"),
        (("--update-sequences", "16", "--batch-size", "4"), ("--update-sequences", "16", "--batch-size", "8"), None),
        (("--update-freq", "1"), ("--update-sequences", "16"), None),
    ],
)
def test_the_batch_that_options_of_fairseq_train_set_is_compared(tiny_data_bin, tmp_path, first, second, change):
    first, second = (good_recipe(tiny_data_bin, tmp_path / "run", *options) for options in (first, second))
    first.output_dir.mkdir()
    write_record(first.output_dir, first.record(complete(first), changes=(), snapshot="s"))
    if change is None:
        assert check_changes(second, complete(second)) == ()
    else:
        with pytest.raises(ValueError, match=change):
            check_changes(second, complete(second))
