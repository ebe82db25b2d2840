"""A config file and flags become a recipe.

What cannot work, and settings that a run did not begin with, are refused before anything is submitted."""

import dataclasses
import shutil
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from roberta_plugin.data.mmap_tokens import MmapTokensWriter
from roberta_plugin.launch import arguments as train_arguments
from roberta_plugin.launch import slurm_commands
from roberta_plugin.launch.options_file import named_options, read_file, read_yaml, to_arguments
from roberta_plugin.launch.recipe import (
    LaunchSettings,
    check_changes,
    check_no_job,
    check_recipe,
    check_run_dir,
    complete,
    load_recipe,
    located,
)
from roberta_plugin.launch.resources import minutes_of
from roberta_plugin.launch.run_folder import ITSELF, add_jobs, read_record, write_record
from roberta_plugin.record import options_of
from tests.tiny_corpus import write_data_bin
from tests.unit.launch.recipes import good_recipe

CONFIG = """
output_dir: runs/base
nodes: 4
gpus_per_node: 8
time: 24:00:00
checkpoint_minutes: 2.5
env:
  NCCL_DEBUG: WARN
train:
  data: books-bin
  task: roberta_masked_lm
  adam_betas: (0.9,0.98)
  adam-eps: 1e-6
  bf16: true
  fp16: false
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "launch.yaml"
    path.write_text(CONFIG)
    return path


def test_a_config_file_is_read(config):
    recipe = load_recipe(config, flags={}, train=["--max-update", "10"])
    assert recipe == LaunchSettings(
        output_dir=Path("runs/base"),
        nodes=4,
        gpus_per_node=8,
        time="24:00:00",
        checkpoint_minutes=2.5,
        env=("NCCL_DEBUG=WARN",),
        train=tuple(
            [
                "books-bin",
                "--task",
                "roberta_masked_lm",
                "--adam-betas",
                "(0.9,0.98)",
                "--adam-eps",
                "1e-6",
                "--bf16",
                "--max-update",
                "10",
            ]
        ),
    )
    assert recipe.num_gpus == 32
    assert recipe.job_name == "base"
    assert not recipe.is_cpu


def test_flags_win_over_the_file(config):
    recipe = load_recipe(config, flags={"nodes": "2", "partition": "gpu", "qos": None, "env": ["A=1", "B=2"]})
    assert (recipe.nodes, recipe.gpus_per_node, recipe.partition, recipe.qos) == (2, 8, "gpu", None)
    assert recipe.env == ("NCCL_DEBUG=WARN", "A=1", "B=2")


def test_no_config_file_is_needed():
    recipe = load_recipe(None, flags={"output_dir": "r"}, train=["data-bin", "--cpu"])
    assert recipe.train == ("data-bin", "--cpu")
    assert recipe.is_cpu


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("output_dir: r\nnode: 2\n", "unknown key 'node'"),
        ("output_dir: r\nnodes: two\n", "--nodes is 'two', which is not a whole number"),
        ("nodes: 2\n", "--output-dir FOLDER"),
        ("output_dir: r\ntrain: words\n", "train must be options and their values"),
        ("output_dir: r\ntrain:\n  cpu: yes\n", "line 3: train: --cpu is 'yes': write true"),
        ("output_dir: r\ngpus_per_node: many\n", "--gpus-per-node is 'many': write how many GPUs"),
    ],
)
def test_bad_files_are_refused_with_the_remedy(tmp_path, text, message):
    path = tmp_path / "launch.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_recipe(path, flags={})


def test_time_limits():
    limits = {"90": 90, "5:30": 6, "24:00:00": 1440, "1-00:00:00": 1440, "2-12": 3600, "1-01:30": 1530}
    assert {time: minutes_of(time) for time in limits} == limits
    for time in ("", "a day", "1:2:3:4", "0", "-5"):
        with pytest.raises(ValueError, match="--time"):
            minutes_of(time)


def test_gpus_may_have_a_type_and_an_empty_value_is_the_default(tmp_path):
    path = tmp_path / "launch.yaml"
    path.write_text(
        "output_dir: r\ngpus_per_node: h100:8\npartition: null\naccount: ~\nqos:\naccept_changes: true\n"
        "sbatch: {exclusive: true, reservation: night}\n"
    )
    recipe = load_recipe(path, flags={})
    assert (recipe.gpus_per_node, recipe.gpu_type, recipe.accept_changes) == (8, "h100", True)
    assert (recipe.partition, recipe.account, recipe.qos) == (None, None, None)
    assert recipe.sbatch_options == {"exclusive": True, "reservation": "night"}
    assert load_recipe(path, flags={"gpus_per_node": "a100:4"}).gpu_type == "a100"
    flags = {"sbatch": ["reservation=day", "hold"], "env": ["A=1"]}
    recipe = load_recipe(path, flags=flags)
    assert recipe.sbatch_options == {"exclusive": True, "reservation": "day", "hold": True}
    assert recipe.env == ("A=1",)


def test_a_recipe_holds_only_what_differs_from_its_base(config):
    small = config.parent / "small.yaml"
    small.write_text("base: launch.yaml\nnodes: 1\ntrain:\n  adam_eps: 1e-8\n  cpu: true\n")
    recipe = load_recipe(small, flags={})
    assert (recipe.nodes, recipe.gpus_per_node, recipe.output_dir) == (1, 8, Path("runs/base"))
    assert recipe.train[0] == "books-bin"
    assert recipe.train[-3:] == ("1e-8", "--bf16", "--cpu")
    small.write_text("base: launch.yaml\nenv: {A: 1, NCCL_DEBUG: INFO}\nsbatch:\n")
    assert load_recipe(small, flags={}).env == ("A=1", "NCCL_DEBUG=INFO"), "name by name"
    small.write_text("base: launch.yaml\nenv: {A: 1}\n")
    assert load_recipe(small, flags={}).env == ("NCCL_DEBUG=WARN", "A=1")
    small.write_text("nodes: 1\nbase: nowhere.yaml\n")
    with pytest.raises(
        ValueError, match=r"small\.yaml, line 2: base: there is no file .*nowhere\.yaml: base is a path"
    ):
        load_recipe(small, flags={})
    small.write_text("base: launch.yaml\nenv: {NCCL_DEBUG: null, A: ''}\n")
    assert load_recipe(small, flags={}).env == ("A=",), "null takes the base's out, as under train"
    (config.parent / "odd.yaml").write_text("sbatch: {comment: a}\nenv: {A: [1]}\n")
    for content, where in (
        ("base: launch.yaml\nsbatch: {comment: a}\nenv: {A: [1]}\n", r"small\.yaml, line 3"),
        ("base: launch.yaml\nenv: [[A]]\n", r"small\.yaml, line 2"),
        ("base: odd.yaml\noutput_dir: r\nenv: {A: 1}\n", r"odd\.yaml, line 2"),
    ):
        small.write_text(content)
        with pytest.raises(ValueError, match=where + ": each value of env must be one text"):
            load_recipe(small, flags={})
    small.write_text("base: launch.yaml\nnodes: 1\ntwo words: 1\n")
    with pytest.raises(ValueError, match=r"small\.yaml, line 3: has the unknown key 'two words'"):
        load_recipe(small, flags={})
    small.write_text("base: launch.yaml\ntrain: {lr: 1}\n")
    (config.parent / "launch.yaml").write_text(CONFIG + "  lrr: 1\n")
    for train in ([], ["--lr", "3"]):
        line = len(CONFIG.splitlines()) + 1
        with (
            pytest.raises(ValueError, match=rf"launch\.yaml, line {line}: --lrr is unknown"),
            located(small, flags={}, train=train),
        ):
            raise ValueError("--lrr is unknown: the nearest is --lr.")
    with pytest.raises(ValueError, match=r"launch\.yaml, line 3: --nodes is 'x'"):
        config.write_text(CONFIG.replace("nodes: 4", "nodes: x"))
        small.write_text("base: launch.yaml\n")
        load_recipe(small, flags={})
    config.write_text("base: other.yaml\n")
    (config.parent / "other.yaml").write_text("nodes: 1\n")
    with pytest.raises(ValueError, match="its base has a base too"):
        load_recipe(small, flags={})


def test_a_file_starts_from_a_recipe_of_the_package_with_its_batch_on_any_number_of_gpus(config):
    def launch(*lines, train=("recipe: base", "data: d"), **flags):
        config.write_text("\n".join(["output_dir: r", "nodes: 3", "gpus_per_node: 8", *lines, "train:"]))
        config.write_text(config.read_text() + "".join(f"\n  {line}" for line in train))
        recipe = load_recipe(config, flags=flags)
        return recipe, options_of(recipe.train)

    recipe, options = launch(train=("recipe: base", "data: d", "lr: 1e-4", "fp16: true"))
    assert (recipe.batch_sequences, options["data"], options["--lr"]) == (8192, "d", "1e-4")
    assert (options["--arch"], options["--batch-size"], options["--fp16"]) == ("fast_roberta_base", "32", "given")
    assert not options.keys() & {"--recipe", "--update-freq"}
    assert launch("batch_sequences: 96")[0].batch_sequences == 96
    assert launch(batch_tokens="98304")[0].batch_sequences is None
    recipe, options = launch(train=("recipe: base", "data: d", "max_tokens: 4096", "update_freq: 2"))
    assert recipe.batch_sequences is recipe.batch_tokens is None and options["--update-freq"] == "2"
    assert "--batch-size" not in options, "--max-tokens takes its place"
    (config.parent / "mine.yaml").write_text("nodes: 9\ntrain: {recipe: gpu-day-80gb, clip-norm: 1.0, mask-prob: }\n")
    recipe, options = launch("gpus_per_node: 1".replace("gpus_per_node", "cpus_per_gpu"), train=("recipe: mine.yaml",))
    assert (recipe.nodes, recipe.batch_tokens, options["--clip-norm"]) == (3, 2**20, "1.0")
    assert "--mask-prob" not in options, "an empty option takes it out"
    with pytest.raises(
        ValueError, match=r"launch\.yaml, line 5: train: recipe bsae: there is no such recipe.*the nearest is base"
    ):
        launch(train=("recipe: bsae",))
    with pytest.raises(
        ValueError, match=r"launch\.yaml, line 5: train: recipe: there is no file .*gone\.yaml: recipe is"
    ):
        launch(train=("recipe: gone.yaml",))
    (config.parent / "mine.yaml").write_text("train: {recipe: launch.yaml}\n")
    with pytest.raises(
        ValueError, match=r"mine\.yaml, line 1: train: recipe leads back to .*launch\.yaml: name another"
    ):
        launch(train=("recipe: mine.yaml",))
    (config.parent / "mine.yaml").write_text("train:\n  lr: {a: b}\n")
    with pytest.raises(ValueError, match=r"mine\.yaml, line 2: train: --lr must be a value or a list"):
        launch(train=("recipe: mine.yaml",))
    (config.parent / "mine.yaml").write_text("base: {lr: 1e-4, arch: fast_roberta_base}\n")
    with pytest.raises(ValueError, match=r"mine\.yaml, line 1: base must be the path of a recipe; options of"):
        launch(train=("recipe: mine.yaml",))


def test_a_growing_batch_is_shared_out_at_each_of_its_sizes(tmp_path):
    words = ["d", "--max-tokens", "2048", "--tokens-per-sample", "64", "--grow-max-tokens", "0:1024 250:2048"]
    recipe = LaunchSettings(output_dir=tmp_path, train=tuple(words), batch_tokens=2048, gpus_per_node=4)
    options = options_of(complete(recipe))
    assert (options["--max-tokens"], options["--update-freq"]) == ("2048 512", "1")
    assert complete(recipe)[-1] == "0:256 250:512"


@pytest.mark.parametrize("options", ["data: a\n  bf16: true", "[a, --bf16]"])
def test_a_data_folder_on_the_command_line_replaces_the_files(tmp_path, options):
    path = tmp_path / "launch.yaml"
    path.write_text(f"output_dir: r\ntrain:\n  {options}\n")
    assert load_recipe(path, flags={}, train=["b,c", "--lr", "1"]).train == ("b,c", "--bf16", "--lr", "1")
    assert load_recipe(path, flags={}, train=["--lr", "1"]).train == ("a", "--bf16", "--lr", "1")


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


def write(tmp_path, content):
    path = tmp_path / "x.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_values_are_text_as_it_is_written(tmp_path):
    path = write(tmp_path, "{a: 1e-4, b: 8:00:00, c: no, d: 010, e: [1.50], 256: x}")
    assert read_yaml(path) == {"a": "1e-4", "b": "8:00:00", "c": "no", "d": "010", "e": ["1.50"], "256": "x"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\nb: \xff\n", "x.yaml, line 2: this is not UTF-8 (byte 0xff)"),
        ("a: 1\nb: [\n", "x.yaml, line 3: this is not valid YAML"),
        ("a: 1\nb:\n  c: 2\n  c: 3\n", "x.yaml, line 4: c is given twice"),
        ("? [1, 2]\n: 3\n", "x.yaml, line 1: a key must be a word"),
        ("a: &a {b: 1}\nc:\n  <<: *a\n", "x.yaml, line 3: << merges nothing here: write the options out"),
        ("a: 1\nb: \0\n", "x.yaml, line 2: this is not valid YAML: special characters are not allowed (0x00)."),
        ("", "must hold keys and their values, one per line"),
        ("a: " + "[" * 5000 + "]" * 5000, "x.yaml: its lists or mappings are nested too deeply: write it as those"),
        ("- a\n", "must hold keys and their values, one per line"),
    ],
)
def test_what_is_refused_names_the_file_and_the_line(tmp_path, content, message):
    with pytest.raises(ValueError, match=r"x\.yaml") as refused:
        read_yaml(write(tmp_path, content))
    assert message in str(refused.value)


@pytest.mark.parametrize("key", ["~", "''", "two words", "a.b"])
def test_the_line_of_any_key_is_found(tmp_path, key):
    path = write(tmp_path, f"a: 1\n{key}: 2\n")
    name = key.strip("'")
    with pytest.raises(ValueError, match=rf"x\.yaml, line 2: the file has the unknown key '{name}': use a\."):
        read_file(path).check_keys(known=["a"], needed=[])
    with pytest.raises(ValueError, match=rf"x\.yaml, line 2: has the unknown key '{name}': use b\."):
        read_file(write(tmp_path, f"b: 1\n{key}: 2\n")).as_settings(dataclasses.make_dataclass("Kind", [("b", str)]))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*none\.yaml"):
        read_yaml(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lr: 1e-4", ["--lr", "1e-4"]),
        ("bf16: true", ["--bf16"]),
        ("bf16: True", ["--bf16"]),
        ("bf16: false", []),
        ("bf16: False", []),
        ("lr:", []),
        ("lr: ~", []),
        ("lr: null", []),
        ("keep: [1, 2]", ["--keep", "1", "2"]),
        ("adam_betas: (0.9,0.98)", ["--adam-betas", "(0.9,0.98)"]),
        ("sample-break-mode: none", ["--sample-break-mode", "none"]),
        ("{a: 1, data: d, b: 2}", ["d", "--a", "1", "--b", "2"]),
        ("--seed: 4", ["--seed", "4"]),
    ],
)
def test_options_become_words(tmp_path, text, words):
    options = named_options(read_yaml(write(tmp_path, text)), where="x")
    assert to_arguments(options, where="x") == words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu: yes", "x: --cpu is 'yes': write true"),
        ("cpu: Off", "x: --cpu is 'Off': write false"),
        ("keep: []", "x: --keep must be a value or a list of values"),
        ("keep: [1, null]", "x: --keep must be a value or a list of values"),
        ("keep: {a: 1}", "x: --keep must be a value or a list of values"),
        ("{adam_eps: 1, adam-eps: 2}", "x: --adam-eps is given twice"),
    ],
)
def test_options_that_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        to_arguments(named_options(read_yaml(write(tmp_path, text)), where="x"), where="x")


def test_an_option_of_a_message_is_found_in_the_file(tmp_path):
    path = write(tmp_path, "output_dir: r\n# lr: 3\ntrain:\n  lr: 6e-\n  adam_eps: 1\naxes: {drop-out: [1]}\n")
    place = read_file(path).place
    assert place("cannot read --lr 6e-") == f"{path}, line 4"
    assert place("unknown --adam-eps") == f"{path}, line 5"
    assert place("unknown --nope, --drop-out") == f"{path}, line 6"
    assert place("unknown --nope") == str(path)
    axes = read_file(path).subsection("axes")
    assert axes.place("unknown --lr") == f"{path}, line 6", "lr is in another section"


def test_anchors_that_stand_for_more_than_anyone_writes_are_refused_at_once(tmp_path):
    path = tmp_path / "recipe.yaml"
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)), "train: *a11"]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=r"recipe\.yaml holds more than 100,000 values, once its anchors are written"):
        read_yaml(path)
    path.write_text("a: &a [*a]\n")
    with pytest.raises(ValueError, match=r"once its anchors are written|recursive"):  # by PyYAML's version
        read_yaml(path)
