"""roberta sweep: tables, dry runs, refusals; whole ones are in tests/integration."""

import re

import pytest

from roberta_plugin.cli import build_parser
from roberta_plugin.experiments.sweeps.grid import read_grid
from roberta_plugin.experiments.sweeps.sweep import prepare

GRID = """
train: {data: DATA, task: roberta_masked_lm, criterion: roberta_masked_lm, arch: fast_roberta_tiny, batch-size: 4}
axes: {lr: [1, 2]}
seeds: [5]
metric: {log: valid, value: ppl, goal: min}
"""


@pytest.fixture
def grid(tiny_data_bin, tmp_path):
    path = tmp_path / "grid.yaml"
    path.write_text(GRID.replace("DATA", str(tiny_data_bin)))
    return path


@pytest.fixture
def sweep(grid, tmp_path):
    """`roberta sweep` of the grid into the folder out, after a change of its text."""

    def run_sweep(*words, old="", new=""):
        grid.write_text(grid.read_text().replace(old, new))
        args = build_parser("sweep").parse_args(["sweep", str(grid), "--output-dir", str(tmp_path / "out"), *words])
        return args.run(args)

    return run_sweep


def test_a_dry_run_shows_every_command_and_writes_nothing(sweep, tiny_data_bin, tmp_path, capsys):
    assert sweep("--dry-run") == 0
    text = capsys.readouterr().out
    assert "# lr-1/seed-5\n" in text
    assert f"fairseq-train {tiny_data_bin} --task roberta_masked_lm" in text
    assert f" --lr 2 --seed 5 --save-dir {tmp_path}/out/lr-2/seed-5/checkpoints --log-format json" in text
    assert "# 2 runs: 2 settings x 1 seeds" in text
    assert not (tmp_path / "out").exists()


def test_a_dry_run_begins_with_the_table_of_runs_also_on_slurm(sweep, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")  # without SLURM
    for words in ((), ("--slurm", "time=0:20:00", "partition=cpu", "cpus_per_task=2")):
        assert sweep("--dry-run", *words) == 0
        text = capsys.readouterr().out
        assert text.startswith("| run | lr | seed |")
        parts = ["# 2 runs: 2 settings", *["# the script of the job array"] * bool(words), "# the command of each run"]
        places = [text.index(each) for each in (*parts, "fairseq-train")]
        assert places[:-1] == sorted(places[:-1]) and places[-2] < text.rindex("fairseq-train")


@pytest.mark.parametrize(
    ("options", "stays"),
    [
        ("", ["warmup-updates", "total-num-update"]),
        ("total-num-update: 50,", ["warmup-updates"]),
        ("total-num-update: 50, warmup-updates: 3,", []),
    ],
)
def test_what_a_recipe_says_by_its_updates_and_a_sweep_of_fewer_keeps_is_named(sweep, capsys, options, stays):
    """Its warm-up was as long as the whole training."""
    assert sweep("--dry-run", old="{data:", new=f"{{recipe: tour, max-update: 50, {options} data:") == 0
    note = capsys.readouterr().out.partition("# note: max-update is 50 and the recipe's 2,500, ")[2].partition("\n")[0]
    assert {name for name in ("warmup-updates", "total-num-update") if f"{name}: " in note} == set(stays)
    assert ("warmup-updates: 3" in note) is bool(stays)


def test_a_dry_run_on_slurm_shows_the_job_and_refuses_what_a_submission_would(sweep, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")  # without SLURM
    assert sweep("--dry-run", "--parallel", "3", "--slurm", "time=0:20:00", "partition=cpu", "cpus_per_task=2") == 0
    text = capsys.readouterr().out
    for line in ("array=0-1%2", "cpus-per-task=2", "partition=cpu", "time=20", "job-name=out"):
        assert f"#SBATCH --{line}\n" in text
    assert "gpus" not in text.partition("# the script of the job array")[2].partition("| run")[0].replace(
        "NUM_GPUS", ""
    )
    assert "| run | lr | seed |" in text and "| lr-2/seed-5 | 2 | 5 |" in text
    for words, message in (
        (["partition=cpu"], "have no time limit"),
        (["time=5", "sbatch.cpus-per-task=1"], "follows from other settings: cpus_per_gpu, or cpus_per_task without"),
        (["time=1", "signal_delay=90"], "is not shorter than --time"),
    ):
        with pytest.raises(ValueError, match=message):
            sweep("--dry-run", "--slurm", *words)
    assert not (tmp_path / "out").exists()


def test_a_dry_run_shows_what_trackers_are_told(sweep, capsys):
    assert sweep("--dry-run", old="{data:", new="{wandb-project: mine, data:") == 0
    told = r"^WANDB_NAME=lr-[12]/seed-5 WANDB_RUN_ID=(\w+) WANDB_RESUME=allow WANDB_RUN_GROUP=out \S*fairseq-train "
    assert len(set(re.findall(told, capsys.readouterr().out, flags=re.MULTILINE))) == 2


@pytest.mark.parametrize(("options", "splits"), [("", "valid"), (" disable-validation: true,", "none")])
def test_a_metric_of_a_split_that_no_run_is_validated_on_is_refused_before_the_first_run(
    sweep, grid, tmp_path, options, splits
):
    said = rf"log: 'nope' is not a split that setting lr-1 is validated on \({splits}\): name"
    grid.write_text(grid.read_text().replace("{data:", f"{{{options} data:"))
    with pytest.raises(ValueError, match=said):
        sweep(old="log: valid", new="log: nope")
    assert not (tmp_path / "out").exists()
    assert sweep("--dry-run", old="log: nope", new="log: train") == 0


@pytest.mark.parametrize(
    ("words", "new", "message"),
    [
        (["--wait"], "{data:", "--wait goes with --slurm"),
        (["--slurm", "--retries", "1"], "{data:", "--retries has no effect with --slurm"),
        (["--dry-run"], "{user-dir: robezta, data:", r"line 2, .*--user-dir robezta does not exist: correct"),
    ],
)
def test_what_is_refused_and_how(sweep, tmp_path, words, new, message):
    with pytest.raises(ValueError, match=message):
        sweep(*words, old="{data:", new=new)
    assert not (tmp_path / "out").exists()


def test_a_dry_run_refuses_a_folder_that_the_start_would_refuse(sweep, grid, tmp_path):
    prepare(read_grid(grid), tmp_path / "out")
    with pytest.raises(ValueError, match=r"holds a run with other options: --dropout was not given and is 0\.2"):
        sweep("--dry-run", old="{data:", new="{dropout: 0.2, data:")


def test_a_report_of_what_is_there_trains_nothing(sweep, tmp_path, capsys):
    assert sweep("--report-only") == 0
    assert "2 runs: 2 waiting" in capsys.readouterr().out
    assert not list((tmp_path / "out").rglob("log.txt"))
