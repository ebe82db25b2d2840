"""What cannot work, and settings that a run did not begin with, are refused before anything is submitted."""

import dataclasses
from argparse import Namespace

import numpy as np
import pytest

from roberta_plugin.data.mmap_tokens import MmapTokensWriter
from roberta_plugin.launch import checks, status
from roberta_plugin.launch.recipe import complete
from roberta_plugin.training import arguments as train_arguments
from roberta_plugin.training import slurm_commands
from roberta_plugin.training.slurm_commands import Partition
from tests.tiny_corpus import write_data_bin
from tests.unit.launch.recipes import good_recipe


@pytest.fixture
def recipe(tiny_data_bin, tmp_path):
    def recipe(*options, data_bin=tiny_data_bin, **fields):
        return good_recipe(data_bin, tmp_path / "runs" / "run", *options, **fields)

    return recipe


def test_a_good_recipe_passes_and_leaves_no_trace(recipe, tmp_path):
    checks.check_recipe(recipe(batch_sequences=64))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"nodes": 0}, "--nodes must be 1 or more"),
        ({"env": ("WORD",)}, "--env 'WORD' must have the form NAME=VALUE"),
        ({"env": ("A=1", "A=2")}, "--env 'A' is given twice"),
        ({"env": ("A B=secret",)}, "--env 'A B' must have the form NAME=VALUE"),
        ({"name": "a\ntouch /tmp/x"}, "--name is .* must not hold a line break"),
        ({"partition": "a\nb"}, "--partition is .* must not hold a line break"),
        ({"sbatch": ("ntasks_per_node=1",)}, "--ntasks-per-node follows from other settings"),
        ({"sbatch": ("a b=1",)}, "--sbatch 'a b=1' must be NAME=VALUE"),
        ({"time": "2", "signal_delay": 120}, r"--signal-delay \(120 s\) is not shorter than --time"),
        ({"time": "soon"}, "--time 'soon'"),
        ({"batch_sequences": 3}, "An update of 3 sequences leaves some of 4 GPUs without any: take 3 GPUs at most"),
        ({"batch_tokens": 63 * 64}, "--batch-tokens needs --max-tokens"),
    ],
)
def test_bad_numbers_are_refused(recipe, fields, message):
    with pytest.raises(ValueError, match=message):
        checks.check_recipe(recipe(**fields))


def test_a_container_cannot_see_a_run_folder_with_a_comma(tiny_data_bin, tmp_path):
    with pytest.raises(ValueError, match="must not hold a comma, which separates the folders that a container sees"):
        checks.check_container(good_recipe(tiny_data_bin, tmp_path / "a,b", container="a.sqsh"))
    checks.check_container(good_recipe(tiny_data_bin, tmp_path / "a,b"))


def test_an_option_that_fairseq_train_does_not_know_is_refused(recipe):
    with pytest.raises(ValueError, match=r"fairseq-train would refuse these options: .*--learning-speed"):
        checks.check_recipe(recipe("--learning-speed", "3"))


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--mask-prob", "1.5"), "--mask-prob must be"), (("--num-workers", "-1"), "--num-workers must be 0 or more")],
)
def test_an_option_that_a_training_would_refuse_is_refused(recipe, options, message):
    with pytest.raises(ValueError, match=message):
        checks.check_recipe(recipe(*options))


def test_missing_data_are_refused(recipe, tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist: make it with `roberta binarize --output-dir"):
        checks.check_recipe(recipe(data_bin=tmp_path / "none-bin"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"holds no dict.txt"):
        checks.check_recipe(recipe(data_bin=tmp_path / "empty"))
    with pytest.raises(ValueError, match="names no data folder"):
        train_arguments.check_data(Namespace(task="sentence_prediction", data=""))


def test_missing_splits_are_refused_before_a_job_is_submitted(recipe, tmp_path):
    first, second = (write_data_bin(tmp_path / name, num_documents=3) for name in ("first", "second"))
    (second / "valid.idx").unlink()
    for data in (f"{first},{second}", f"{second}@2,{first}@1", f"{second}:{first}"):
        checks.check_recipe(recipe(data_bin=data))
    (first / "valid.idx").unlink()
    for options in ((), ("--combine-valid-subsets",), ("--valid-subset", "held-out,valid")):
        with pytest.raises(FileNotFoundError, match=r"No data folder has the validation split '(valid|held-out)'"):
            checks.check_recipe(recipe(*options, data_bin=f"{first}@1,{second}@3"))
    checks.check_recipe(recipe("--disable-validation", data_bin=f"{first}@1,{second}@3"))
    (second / "train.idx").unlink()
    with pytest.raises(FileNotFoundError, match=r"second/train\.idx does not exist"):
        checks.check_recipe(recipe("--disable-validation", data_bin=f"{first},{second}"))


def test_empty_splits_are_refused_before_a_job_is_submitted(recipe, tmp_path):
    first, second = (write_data_bin(tmp_path / name, num_documents=3) for name in ("first", "second"))
    (second / "valid.idx").unlink()
    empty(first / "valid")
    with pytest.raises(ValueError, match=r"The split 'valid' of .*/first is empty .*--valid-subset, or add --disable"):
        checks.check_recipe(recipe(data_bin=f"{second}:{first}"))
    checks.check_recipe(recipe("--disable-validation", data_bin=f"{second}:{first}"))
    empty(first / "train")
    with pytest.raises(
        ValueError, match=r"The split 'train' of .*/first is empty .*or take the folder out of the data"
    ):
        checks.check_recipe(recipe("--disable-validation", data_bin=f"{second}:{first}"))


def empty(prefix):
    with MmapTokensWriter(prefix, np.uint16):
        pass


def test_a_run_folder_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PermissionError, match="choose another --output-dir"):
        checks.check_run_dir(tmp_path / "file" / "run")
    with pytest.raises(PermissionError, match="choose another --output-dir"):
        checks.check_run_dir(tmp_path / "file")
    with pytest.raises(PermissionError, match="choose another --output-dir"):
        checks.check_run_dir(tmp_path.__class__("/proc/run"))  # nobody can write there, root included


def test_what_the_cluster_does_not_have_is_refused(recipe, monkeypatch):
    monkeypatch.setattr(slurm_commands, "partitions", lambda: [Partition("main", 4), Partition("long", 2)])
    checks.check_cluster(recipe(partition="main", nodes=4))
    checks.check_cluster(recipe(partition="long,main", nodes=4))
    with pytest.raises(ValueError, match="no partition 'gpu': --partition can be long, main"):
        checks.check_cluster(recipe(partition="gpu"))
    with pytest.raises(ValueError, match="--nodes is 3, and the partition long has 2 nodes"):
        checks.check_cluster(recipe(partition="long", nodes=3))


@pytest.mark.parametrize("state", ["running", "pending", "timeout"])
def test_a_run_folder_has_one_job_at_a_time(recipe, monkeypatch, state):
    monkeypatch.setattr(slurm_commands, "partitions", list)
    monkeypatch.setattr(slurm_commands, "job_state", lambda job_id: state)
    recipe = recipe()
    recipe.output_dir.mkdir(parents=True)
    status.write_launch(
        recipe.output_dir,
        status.Launch(job_id="7", name="run", num_gpus=4, batch_sequences=None, batch_tokens=None, snapshot="s"),
    )
    if state == "timeout":
        checks.check_cluster(recipe)
    else:
        with pytest.raises(ValueError, match="scancel 7"):
            checks.check_cluster(recipe)


@pytest.mark.parametrize(
    "script", [None, "echo sinfo: error: no DNS >&2; echo sinfo: fatal: no configuration >&2; exit 1"]
)
def test_without_slurm_the_way_out_is_named_in_one_line(recipe, monkeypatch, tmp_path, script):
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if script else str(tmp_path))
    if script:
        (tmp_path / "sinfo").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "sinfo").chmod(0o755)
    with pytest.raises(ValueError, match=r"^No SLURM here \(.*sinfo.*\)\. Submit .*--dry-run; `roberta train` and .*$"):
        checks.check_cluster(recipe())


@pytest.mark.parametrize(("name", "reason"), [("20:30", "PYTHONPATH"), ("50%j", "names of its logs"), ("a\\b", "logs")])
def test_a_run_folder_that_pythonpath_or_slurm_would_read_otherwise_is_refused(tmp_path, name, reason):
    with pytest.raises(ValueError, match=f"its full path must not hold '.+', because .*{reason}"):
        checks.check_run_dir(tmp_path / name)


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


def test_an_option_of_an_earlier_version_is_no_change(launched, tmp_path):
    before = status.read_launch(tmp_path / "run")
    arguments = (*before.arguments, "--background-checkpoints")
    status.write_launch(tmp_path / "run", dataclasses.replace(before, arguments=arguments))
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
    with pytest.raises(ValueError, match=r"--batch-size x --update-freq x GPUs was 32 and is 64 now.*--accept-changes"):
        checks.check_changes(larger, complete(larger))


@pytest.mark.parametrize(
    ("options", "without", "message"),
    [
        (("--lr", "9e-3"), (), "--lr was 0.003 and is 0.009 now"),
        (("--dropout", "0.3"), (), "--dropout was not given and is 0.3 now"),
        (("--bf16",), (), "--bf16 was False and is True now"),
    ],
)
def test_what_is_trained_may_not(launched, options, without, message):
    with pytest.raises(ValueError, match=f"begun with other settings: .*{message}.*--accept-changes"):
        launched(*options, without=without)


def test_other_data_are_refused_and_the_same_by_another_path_are_not(launched, tiny_data_bin, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match=r"--data was .* and is .*elsewhere now"):
        launched(data=tmp_path / "elsewhere")
    monkeypatch.chdir(tiny_data_bin.parent)
    assert launched(data=tiny_data_bin.name) == ("an older one",)


def test_the_effective_batch_counts(launched):
    with pytest.raises(ValueError, match="--batch-sequences was 64 and is 128 now"):
        launched(batch_sequences=128)


def test_a_change_that_is_meant_is_recorded(launched):
    changes = launched("--lr", "9e-3", accept_changes=True)
    assert changes == ("an older one", "--lr was 0.003 and is 0.009 now")
