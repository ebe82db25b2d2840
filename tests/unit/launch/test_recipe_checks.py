"""What is refused before a job is submitted."""

import dataclasses
from argparse import Namespace

import numpy as np
import pytest

from roberta_plugin.data.mmap_tokens import MmapTokensWriter
from roberta_plugin.launch import arguments as train_arguments
from roberta_plugin.launch import slurm_commands
from roberta_plugin.launch.recipe_checks import check_no_job, check_recipe, check_run_dir
from roberta_plugin.launch.run_folder import ITSELF, add_jobs
from tests.tiny_corpus import write_data_bin
from tests.unit.launch.recipes import good_recipe


@pytest.fixture
def recipe(tiny_data_bin, tmp_path):
    def recipe(*options, data_bin=tiny_data_bin, output_dir=tmp_path / "runs" / "run", **fields):
        return good_recipe(data_bin, output_dir, *options, **fields)

    return recipe


def test_a_good_recipe_passes_and_leaves_no_trace(recipe, tmp_path):
    check_recipe(recipe(batch_sequences=64))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"env": ("A B=secret",)}, "--env 'A B' must have the form NAME=VALUE"),
        ({"name": "a\ntouch /tmp/x"}, "--name is .* must not hold a line break"),
        ({"time": "2", "signal_delay": 120}, r"--signal-delay \(120 s\) is not shorter than --time"),
        ({"batch_sequences": 3}, "An update of 3 sequences leaves some of 4 GPUs without any: take 3 GPUs at most"),
    ],
)
def test_bad_numbers_are_refused(recipe, fields, message):
    with pytest.raises(ValueError, match=message):
        check_recipe(recipe(**fields))


def test_a_container_cannot_see_a_run_folder_with_a_comma(tiny_data_bin, tmp_path):
    with pytest.raises(ValueError, match="must not hold ',', because it separates the folders that a container sees"):
        check_run_dir(good_recipe(tiny_data_bin, tmp_path / "a,b", container="a.sqsh"))
    check_run_dir(good_recipe(tiny_data_bin, tmp_path / "a,b"))


def test_missing_data_are_refused(recipe, tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist: make it with `roberta binarize --output-dir"):
        check_recipe(recipe(data_bin=tmp_path / "none-bin"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"holds no dict.txt"):
        check_recipe(recipe(data_bin=tmp_path / "empty"))
    with pytest.raises(ValueError, match="names no data folder"):
        train_arguments.check_data(Namespace(task="sentence_prediction", data=""))
    without = recipe()
    with pytest.raises(
        ValueError, match=r"names no data folder: give it as fairseq-train's first argument, or as data:"
    ):
        check_recipe(dataclasses.replace(without, train=without.train[1:]))


def test_missing_splits_are_refused_before_a_job_is_submitted(recipe, tmp_path):
    first, second = (write_data_bin(tmp_path / name, num_documents=3) for name in ("first", "second"))
    (second / "valid.idx").unlink()
    for data in (f"{first},{second}", f"{second}@2,{first}@1", f"{second}:{first}"):
        check_recipe(recipe(data_bin=data))
    (first / "valid.idx").unlink()
    for options in ((), ("--combine-valid-subsets",), ("--valid-subset", "held-out,valid")):
        with pytest.raises(FileNotFoundError, match=r"No data folder has the validation split '(valid|held-out)'"):
            check_recipe(recipe(*options, data_bin=f"{first}@1,{second}@3"))
    check_recipe(recipe("--disable-validation", data_bin=f"{first}@1,{second}@3"))
    (second / "train.idx").unlink()
    with pytest.raises(FileNotFoundError, match=r"second/train\.idx does not exist"):
        check_recipe(recipe("--disable-validation", data_bin=f"{first},{second}"))


def test_empty_splits_are_refused_before_a_job_is_submitted(recipe, tmp_path):
    first, second = (write_data_bin(tmp_path / name, num_documents=3) for name in ("first", "second"))
    (second / "valid.idx").unlink()
    empty(first / "valid")
    with pytest.raises(ValueError, match=r"The split 'valid' of .*/first is empty .*--valid-subset, or add --disable"):
        check_recipe(recipe(data_bin=f"{second}:{first}"))
    check_recipe(recipe("--disable-validation", data_bin=f"{second}:{first}"))
    empty(first / "train")
    with pytest.raises(
        ValueError, match=r"The split 'train' of .*/first is empty .*or take the folder out of the data"
    ):
        check_recipe(recipe("--disable-validation", data_bin=f"{second}:{first}"))


def empty(prefix):
    with MmapTokensWriter(prefix, np.uint16):
        pass


def test_a_run_folder_that_cannot_be_written_to_is_refused(recipe, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PermissionError, match="choose another --output-dir"):
        check_run_dir(recipe(output_dir=tmp_path / "file" / "run"))
    with pytest.raises(PermissionError, match="choose another --output-dir"):
        check_run_dir(recipe(output_dir=tmp_path / "file"))
    with pytest.raises(PermissionError, match="choose another --output-dir"):
        check_run_dir(recipe(output_dir=tmp_path.__class__("/proc/run")))  # nobody can write there, root included


def test_what_the_cluster_does_not_have_is_refused(monkeypatch):
    monkeypatch.setattr(slurm_commands, "partitions", lambda: {"main": 4, "long": 2})
    slurm_commands.check_partition("main", nodes=4)
    slurm_commands.check_partition("long,main", nodes=4)
    with pytest.raises(ValueError, match="no partition 'gpu': --partition can be long, main"):
        slurm_commands.check_partition("gpu", nodes=1)
    with pytest.raises(ValueError, match="--nodes is 3, and the partition long has 2 nodes"):
        slurm_commands.check_partition("long", nodes=3)


@pytest.mark.parametrize("state", ["running", "pending", "timeout"])
def test_a_run_folder_has_one_job_at_a_time(recipe, monkeypatch, state):
    monkeypatch.setattr(slurm_commands, "partitions", dict)
    monkeypatch.setattr(slurm_commands, "jobs", lambda ids: {"7": slurm_commands.Job(state, "None")})
    recipe = recipe()
    recipe.output_dir.mkdir(parents=True)
    add_jobs(recipe.output_dir, {ITSELF: "7"})
    if state == "timeout":
        check_no_job(recipe.output_dir)
    else:
        with pytest.raises(ValueError, match="scancel 7"):
            check_no_job(recipe.output_dir)


@pytest.mark.parametrize(
    "script", [None, "echo sinfo: error: no DNS >&2; echo sinfo: fatal: no configuration >&2; exit 1"]
)
def test_without_slurm_the_way_out_is_named_in_one_line(monkeypatch, tmp_path, script):
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if script else str(tmp_path))
    if script:
        (tmp_path / "sinfo").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "sinfo").chmod(0o755)
    with pytest.raises(
        ValueError, match=r"^SLURM cannot be asked here \(.*sinfo.*\)\. Submit .*--dry-run; `roberta train` and .*$"
    ):
        slurm_commands.check_partition(None, nodes=1)


@pytest.mark.parametrize(("name", "reason"), [("20:30", "PYTHONPATH"), ("50%j", "names of its logs"), ("a\\b", "logs")])
def test_a_run_folder_that_pythonpath_or_slurm_would_read_otherwise_is_refused(recipe, tmp_path, name, reason):
    with pytest.raises(ValueError, match=f"its full path must not hold '.+', because .*{reason}"):
        check_run_dir(recipe(output_dir=tmp_path / name))
