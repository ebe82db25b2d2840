"""A grid's file and its report."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from roberta_plugin.experiments.sweeps.grid import read_grid
from roberta_plugin.experiments.sweeps.report import best_cell, cell_results, ensemble, write_report
from roberta_plugin.launch.arguments import PACKAGE
from roberta_plugin.launch.resources import Resources
from roberta_plugin.launch.run_folder import Metric, Run, RunFolder

GRID = """
train:
  data: data-bin/books
  arch: fast_roberta_base
  adam-eps: 1e-6
  bf16: true
  reset_optimizer: false
  tensorboard-logdir: "{folder}/tensorboard"
axes:
  dropout: [0.0, 0.1]
  batch:
    256: {update-freq: 1, lr: 1e-4}
    2K: {update-freq: 8, lr: 7e-4}
seeds: [1, 2, 3]
metric: {log: valid, value: ppl, goal: min, at: last}
slurm: {partition: gpu, time: 8:00:00, gpus_per_node: 8}
"""


def read(tmp_path, text):
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    return read_grid(path)


def test_every_combination_with_every_seed_once(tmp_path):
    grid = read(tmp_path, GRID)
    assert grid.cells == [
        "dropout-0.0_batch-256",
        "dropout-0.0_batch-2K",
        "dropout-0.1_batch-256",
        "dropout-0.1_batch-2K",
    ]
    assert [run.name for run in grid.runs] == [f"{cell}/seed-{seed}" for cell in grid.cells for seed in (1, 2, 3)]
    assert grid.metric == Metric(log="valid", value="ppl", goal="min", at="last")
    assert grid.slurm == Resources(partition="gpu", time="8:00:00", gpus_per_node=8)


def test_values_reach_the_command_as_they_are_written(tmp_path):
    grid = read(tmp_path, GRID)
    (run,) = [run for run in grid.runs if run.name == "dropout-0.1_batch-2K/seed-3"]
    assert run.settings == {"dropout": "0.1", "batch": "2K"}
    folder = tmp_path / "x"
    assert run.arguments_in(folder, grid.metric) == [
        *("data-bin/books", "--arch", "fast_roberta_base", "--adam-eps", "1e-6", "--bf16"),
        *("--tensorboard-logdir", f"{folder}/tensorboard", "--dropout", "0.1", "--update-freq", "8", "--lr", "7e-4"),
        *("--seed", "3", "--save-dir", f"{folder}/checkpoints", "--log-format", "json", "--user-dir", str(PACKAGE)),
    ]
    assert (PACKAGE / "tasks" / "masked_lm.py").is_file()


def test_shared_layers_are_an_axis(tmp_path):
    """`none` is a word in YAML, and `groups:2` no mapping."""
    axes = "{share-layers: [none, all, groups:2], share-parts: [all, ffn]}"
    grid = read(tmp_path, f"train: {{data: d}}\naxes: {axes}\nmetric: {{log: valid, value: loss, goal: min}}\n")
    assert [run.settings["share-layers"] for run in grid.runs] == ["none", "none", "all", "all", "groups:2", "groups:2"]
    arguments = [run.arguments_in(tmp_path / run.name, grid.metric) for run in grid.runs]
    assert arguments[5][:5] == ["d", "--share-layers", "groups:2", "--share-parts", "ffn"]


def test_an_axis_wins_over_the_options_of_all_runs(tmp_path):
    grid = read(tmp_path, "train: {data: d, lr: 1}\naxes: {lr: [2]}\nmetric: {log: valid, value: loss, goal: min}\n")
    assert [run.arguments for run in grid.runs] == [("d", "--lr", "2")]
    assert grid.metric.at == "best"


def test_without_axes_and_seeds_there_is_one_run(tmp_path):
    grid = read(tmp_path, "train: {data: d, user_dir: u}\nmetric: {file: a.json, value: f1, goal: max}\n")
    assert [run.name for run in grid.runs] == ["base/seed-1"]
    words = grid.runs[0].arguments_in(tmp_path, grid.metric)
    assert words.count("--user-dir") == 1
    assert words[words.index("--user-dir") + 1] == "u"


def test_fairseq_keeps_the_checkpoint_that_the_metric_calls_best(tmp_path):
    text = "train: {data: d%s}\nmetric: {log: valid, value: accuracy, goal: max, at: best}\n"
    grid = read(tmp_path, text % "")
    words = grid.runs[0].arguments_in(tmp_path, grid.metric)
    assert words[-3:] == ["--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"]
    grid = read(tmp_path, text % ", best-checkpoint-metric: loss")
    assert "accuracy" not in grid.runs[0].arguments_in(tmp_path, grid.metric)


def test_a_list_in_train_is_several_words(tmp_path):
    grid = read(tmp_path, "train: {data: d, keep: [1, 2]}\nmetric: {log: valid, value: loss, goal: min}\n")
    assert grid.runs[0].arguments == ("d", "--keep", "1", "2")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("train:", "options:", "line 2: the file has the unknown key 'options': use axes, base, metric"),
        ("  data: data-bin/books\n", "", "must hold `data`"),
        (
            "  bf16: true",
            "  save-dir: x",
            "line 6: save-dir is set by the sweep itself: every run has its own",
        ),
        ("  bf16: true", "  --seed: 4", "line 6: seed is set by the sweep itself: list the seeds"),
        ("  bf16: true", "  arch: fast_roberta_large", "line 6: arch is given twice"),
        ("[0.0, 0.1]", "0.1", "axes, dropout must be a list"),
        ("[0.0, 0.1]", "[0.1, 0.1]", "axes, dropout has a value twice"),
        ("256: {update-freq: 1, lr: 1e-4}", "256: {dropout: 0.3}", "two axes set dropout"),
        ("2K: {", "'25/6': {x: y}\n    '25 6': {", "would both be called"),
        ("[1, 2, 3]", "[1, x]", "line 14: seeds must be whole numbers below 2^32 without leading zeros, got 1, x"),
        ("[1, 2, 3]", "[01, 1]", "line 14: seeds must be whole numbers below 2^32 without leading zeros, got 01, 1"),
        ("[1, 2, 3]", "[\u00b2]", "line 14: seeds must be whole numbers"),
        ("goal: min", "goal: small", "goal must be min or max, got 'small'"),
        ("at: last", "at: end", "at must be best or last, got 'end'"),
        ("log: valid", "log: valid, file: a.json", "either log"),
        ("log: valid, ", "", "either log"),
        ("metric: {log: valid, value: ppl", "metric: {log: valid, values: ppl", "unknown key 'values'"),
        (
            "partition: gpu",
            "partitions: gpu",
            "line 16: slurm has the unknown key 'partitions': use account",
        ),
        ("bf16: true", "bf16: {a: b}", "line 6: bf16 must be a value or a list"),
        ("bf16: true", "bf16: on", "line 6: bf16 is 'on': write true"),
        ("bf16: true", "adam_eps: 1e-8", "line 5: train: adam-eps is given twice"),
        ("[1, 2, 3]", "[1, 1]", "line 14: seeds must be a list of different whole numbers"),
        ("value: ppl", "value: ~", "metric: value is missing"),
        ("log: valid", "log: [valid]", "line 15: metric: log must be one value"),
        ("train:", "train: [", "is not valid YAML"),
    ],
)
def test_what_is_refused_and_how(tmp_path, old, new, message):
    assert GRID.count(old) == 1
    with pytest.raises(ValueError, match=r"grid\.yaml") as refused:
        read(tmp_path, GRID.replace(old, new))
    assert message in str(refused.value)


def test_a_null_in_the_metric_leaves_the_default(tmp_path):
    text = GRID.replace("at: last", "at: ~, file: null")
    assert read(tmp_path, text).metric == Metric(log="valid", value="ppl", goal="min", at="best")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*none\.yaml"):
        read_grid(tmp_path / "none.yaml")


def test_any_option_of_sbatch_is_kept_below_sbatch(tmp_path):
    for further in ("{reservation: night, exclusive: true}", "[reservation=night, exclusive]"):
        grid = read(tmp_path, GRID.replace("gpus_per_node: 8", f"gpus_per_node: h100:8, sbatch: {further}"))
        assert grid.slurm.sbatch_options == {"reservation": "night", "exclusive": True}
        assert (grid.slurm.gpus_per_node, grid.slurm.gpu_type) == (8, "h100")


def test_settings_of_the_command_line_win_over_the_files(tmp_path):
    (tmp_path / "grid.yaml").write_text(GRID)
    grid = read_grid(tmp_path / "grid.yaml", slurm={"time": "5", "env.A": "1", "sbatch.mail-type": "END"})
    assert (grid.slurm.time, grid.slurm.partition, grid.slurm.env) == ("5", "gpu", ("A=1",))
    assert grid.slurm.sbatch_options == {"mail-type": "END"}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("cpus_per_task: 4, gpus_per_node: 8", "cpus_per_task is for nodes without GPUs. Write cpus_per_gpu"),
        ("cpus_per_task: 4, cpus_per_gpu: 2", "leave cpus_per_task out"),
        ("cpus_per_task: all", "is 'all', which is not a whole number"),
        ("cpus_per_gpu: all", "slurm: cpus-per-gpu is 'all', which is not a whole number"),
        ("nodes: 2", "a run of a sweep has one node"),
        ("gpu_type: [a, b]", "must be one value"),
    ],
)
def test_resources_that_are_refused_are_found_by_line(tmp_path, setting, message):
    with pytest.raises(ValueError, match=r"grid\.yaml") as refused:
        read(tmp_path, GRID.replace("gpus_per_node: 8", setting))
    assert message in str(refused.value)


def test_user_directories_are_those_of_the_snapshot(tmp_path):
    grid = read(tmp_path, GRID)
    words = grid.runs[0].arguments_in(tmp_path, grid.metric, code=tmp_path / "code")
    assert words[words.index("--user-dir") + 1] == str(tmp_path / "code" / "roberta_plugin")


ACCURACY = Metric(log="valid", value="accuracy", goal="max")
PPL = Metric(log="valid", value="ppl", goal="min")


def make(root, values, metric=ACCURACY):
    """A sweep with `values`: cell -> a value a seed, None where the run is not done, "x" where it has failed."""
    runs = [
        Run(cell=cell, seed=str(seed), settings={"lr": cell}, arguments=("data",))
        for cell, numbers in values.items()
        for seed in range(len(numbers))
    ]
    grid = SimpleNamespace(path=Path("table3.yaml"), metric=metric, cells=list(values))
    folders = [RunFolder(root, run, metric) for run in runs]
    for folder in folders:
        folder.prepare()
        value = values[folder.run.cell][int(folder.run.seed)]
        if value == "x":
            (folder.path / "failure.json").write_text(json.dumps({"reason": "it broke", "attempts": 2}))
        elif value is not None:
            (folder.path / "result.json").write_text(json.dumps({"value": value, "metric": {}}))
            (folder.path / "checkpoints").mkdir()
            (folder.path / "checkpoints" / "checkpoint_last.pt").touch()
    return grid, folders


def test_median_min_and_max_by_cell(tmp_path):
    a, b, c = cell_results(*make(tmp_path, {"a": [1, 9, 2], "b": [5, None, "x"], "c": [None, None, None]}))
    assert (a.median, a.smallest, a.largest, a.num_failed, a.is_complete) == (2, 1, 9, 0, True)
    assert (b.median, b.smallest, b.largest, b.num_failed, b.is_complete) == (5, 5, 5, 1, False)
    assert (c.median, c.smallest, c.largest, c.num_failed, c.values) == (None, None, None, 0, {})


@pytest.mark.parametrize(
    ("values", "metric", "best"),
    [
        ({"a": [1, 9, 2], "b": [3, 3, 3]}, ACCURACY, "b"),  # by median: a has the best run
        ({"a": [1, 9, 2], "b": [3, 3, 3]}, PPL, "a"),
        ({"a": [2, 2], "b": [2, 2]}, PPL, "a"),
        ({"a": [2, 2], "b": [9, None]}, ACCURACY, "a"),  # b lacks a seed
        ({"a": [2, None], "b": [9, None]}, ACCURACY, "b"),
        ({"a": ["x"]}, ACCURACY, None),
    ],
)
def test_the_best_cell(tmp_path, values, metric, best):
    grid, folders = make(tmp_path, values, metric)
    found = best_cell(cell_results(grid, folders), metric)
    assert (found.name if found else None) == best


def test_members_of_an_ensemble_are_the_best_runs_that_have_a_checkpoint(tmp_path):
    _, folders = make(tmp_path, {"a": [1, 9, 2], "b": [5, 7, None]})
    (tmp_path / "b" / "seed-1" / "checkpoints" / "checkpoint_last.pt").unlink()
    (tmp_path / "b" / "seed-0" / "checkpoints" / "checkpoint_best.pt").touch()
    members = ensemble(folders, ACCURACY, size=3)
    assert [(member["run"], member["value"]) for member in members] == [
        ("a/seed-1", 9),
        ("b/seed-0", 5),
        ("a/seed-2", 2),
    ]
    assert [Path(member["checkpoint"]).name for member in members] == [
        "checkpoint_last.pt",
        "checkpoint_best.pt",
        "checkpoint_last.pt",
    ]
    assert [member["value"] for member in ensemble(folders, PPL, size=1)] == [1]


def test_where_the_last_value_counts_the_last_checkpoint_is_the_member(tmp_path):
    at_last = Metric(log="valid", value="accuracy", goal="max", at="last")
    _, folders = make(tmp_path, {"a": [1]}, at_last)
    (tmp_path / "a" / "seed-0" / "checkpoints" / "checkpoint_best.pt").touch()
    (member,) = ensemble(folders, at_last, size=3)
    assert Path(member["checkpoint"]).name == "checkpoint_last.pt"


def test_the_report_has_all_of_it(tmp_path):
    grid, folders = make(tmp_path, {"1e-4": [1.25, 9, 2], "2e-4": [5, None, "x"]})
    facts = write_report(grid, folders, root=tmp_path, ensemble_size=2)
    assert facts == json.loads((tmp_path / "report.json").read_text())
    assert facts["states"] == {"done": 4, "failed": 1, "waiting": 1}
    assert facts["best_settings"] == {"lr": "1e-4"}
    text = (tmp_path / "report.md").read_text()
    assert "4 of 6 runs done. Metric: valid accuracy, best, larger is better." in text
    assert "| **1e-4** | 2 | 1.25 | 9 | 3 of 3 | 0 |" in text
    assert "| 2e-4 | 5 | 5 | 5 | 1 of 3 | 1 |" in text
    assert "- 2e-4/seed-2, attempt 2: it broke" in text


def test_a_report_of_nothing(tmp_path):
    grid, folders = make(tmp_path, {"a": [None]})
    facts = write_report(grid, folders, root=tmp_path, ensemble_size=2)
    assert facts["best_cell"] is None
    assert "| a | - | - | - | 0 of 1 | 0 |" in (tmp_path / "report.md").read_text()
