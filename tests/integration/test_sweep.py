"""`roberta sweep` with real trainings: here and as a SLURM job array; stopped, failed and done again."""

import json
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import yaml

from roberta_plugin.cli import main
from roberta_plugin.launch import run_folder
from roberta_plugin.launch.log import parse_line
from tests.forked_training import ForkedProcess, ForkedTrainings
from tests.slurm_cluster import needs_slurm, slurm_cluster, talking_to, wait_for
from tests.tiny_corpus import command as console_script
from tests.tiny_corpus import environment, grid_train, run, write_data_bin

pytestmark = pytest.mark.integration
UPDATES = 30


def grid_of(path, data_bin, *, axes, seeds, updates=UPDATES, save_every=5, **sections):
    """A grid file of the tiny model that the other integration tests train."""
    train = grid_train(data_bin) | {"max-update": str(updates), "total-num-update": str(updates)}
    train |= {"save-interval-updates": str(save_every), "validate-interval-updates": str(2 * save_every)}
    metric = {"log": "valid", "value": "ppl", "goal": "min", "at": "last"}
    content = {"train": train, "axes": axes, "seeds": seeds, "metric": metric, **sections}
    path.write_text(yaml.safe_dump(content))
    return path


def command(grid, folder, *options):
    return [*console_script("roberta"), "sweep", str(grid), "--output-dir", str(folder), *options]


def sweep_here(grid, folder, *options):
    """`roberta sweep` in this process, its trainings in forks; the exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_folder, "TrainingProcess", ForkedProcess)
        return main(["sweep", str(grid), "--output-dir", str(folder), *options])


def report_of(folder):
    return json.loads((folder / "report.json").read_text())


def attempts_in(log):
    """The updates of each attempt, in the order in which they were done; none before the run has begun."""
    attempts = []
    for line in log.read_text().splitlines() if log.exists() else []:
        if "training on 1 devices" in line:
            attempts.append([])
        record = parse_line(line)
        if record and record.kind == "train_inner":
            attempts[-1].append(int(record.values["num_updates"]))
    return attempts


def has_reached(log, update):
    return any(number >= update for attempt in attempts_in(log) for number in attempt)


def test_a_sweep_is_stopped_resumed_extended_and_reported(tiny_data_bin, tmp_path, capsys):
    """The first start is a command with a training of its own; the others are calls, whose trainings are forks."""
    updates = 100  # of 6 ms on a fast core: those after the seventh take far longer than the signal to stop
    cells = {"axes": {"lr": ["1e-5", "1e-2"]}, "updates": updates, "save_every": 25}
    grid = grid_of(tmp_path / "grid.yaml", tiny_data_bin, seeds=["1"], **cells)
    folder = tmp_path / "out"
    (process,) = ForkedTrainings([command(grid, folder)], cwd=tmp_path, environment=environment()).processes
    first = folder / "lr-1e-5" / "seed-1" / "log.txt"
    wait_for(lambda: process.poll() is not None or has_reached(first, 7), 120, "update 7", longest_pause=0.02)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert report_of(folder)["states"] == {"waiting": 2}, "the stopped run should neither run on nor count as failed"

    assert sweep_here(grid, folder, "--parallel", "2") == 0
    stopped, resumed = attempts_in(first)
    assert stopped[-1] < updates
    assert 1 < resumed[0] <= stopped[-1] + 1, "the run began anew"
    assert resumed[-1] == updates

    facts = report_of(folder)
    assert facts["states"] == {"done": 2}
    assert facts["best_cell"] == "lr-1e-2"
    assert {cell["name"]: len(cell["values"]) for cell in facts["cells"]} == {"lr-1e-5": 1, "lr-1e-2": 1}
    best, other = facts["ensemble"]
    assert best["run"] == "lr-1e-2/seed-1"
    assert best["value"] < other["value"]
    assert torch.load(best["checkpoint"], weights_only=True)["optimizer_history"][-1]["num_updates"] == updates

    before = first.stat().st_mtime_ns
    grid_of(grid, tiny_data_bin, seeds=["1", "2"], **cells)
    assert sweep_here(grid, folder, "--parallel", "2", "--keep", "best") == 0
    assert "2 of 4 runs to do" in capsys.readouterr().out
    assert first.stat().st_mtime_ns == before, "a finished run was trained again"
    values = {cell["name"]: cell["values"] for cell in report_of(folder)["cells"]}
    assert all(set(by_seed) == {"1", "2"} and by_seed["1"] != by_seed["2"] for by_seed in values.values())
    kept = {(path.parts[-4], path.parts[-3]) for path in folder.glob("*/*/checkpoints/*.pt")}
    assert kept == {(cell, f"seed-{min(by_seed, key=by_seed.get)}") for cell, by_seed in values.items()}, (
        "the best seeds"
    )


def test_a_failed_run_is_reported_and_tried_again(tmp_path, capsys):
    data_bin = write_data_bin(tmp_path / "data-bin")
    grid = grid_of(tmp_path / "grid.yaml", data_bin, axes={}, seeds=["1"], updates=10)
    folder = tmp_path / "out"
    tokens = (data_bin / "valid.bin").read_bytes()
    (data_bin / "valid.bin").write_bytes(b"\xff" * len(tokens))  # found by the first validation
    assert sweep_here(grid, folder) == 1
    said = capsys.readouterr().out
    assert re.search(r"failed: base/seed-1: fairseq-train ended with exit code 2: \w+Error: .*; see ", said)
    assert report_of(folder)["failures"]["base/seed-1"]["attempts"] == 1
    (data_bin / "valid.bin").write_bytes(tokens)
    assert sweep_here(grid, folder) == 0
    assert report_of(folder)["states"] == {"done": 1}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm_cluster(tmp_path_factory.mktemp("slurm"), num_nodes=2) as cluster:
        yield cluster


@pytest.fixture
def on_cluster(cluster):
    with talking_to(cluster):
        yield cluster


RESOURCES = {"partition": "main", "time": "10", "cpus_per_gpu": "1"}


def submitted_job(stdout):
    return re.search(r"submitted as job (\d+)", stdout).group(1)


@pytest.mark.slurm
@needs_slurm
@pytest.mark.slow
def test_an_array_with_a_limit_is_left_alone_while_it_runs(on_cluster, tiny_data_bin, tmp_path):
    axes = {"lr": ["1e-5", "1e-3", "1e-2"]}
    grid = grid_of(tmp_path / "grid.yaml", tiny_data_bin, axes=axes, seeds=["1"], slurm=RESOURCES)
    folder = tmp_path / "out"
    done = run(command(grid, folder, "--slurm", "--parallel", "2"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"`roberta jobs {folder}` shows their progress" in done.stdout
    assert {path.stat().st_mode & 0o777 for path in (folder / "submitit").iterdir()} <= {0o600, 0o644}
    assert {path.stat().st_mode & 0o077 for path in (folder / "submitit").glob("*.sh")} == {0}
    assert "ArrayTaskThrottle=2" in on_cluster.call("scontrol", "show", "job", submitted_job(done.stdout))
    most = 0

    def has_ended():
        nonlocal most
        states = on_cluster.call("squeue", "--noheader", "--array", "--format=%T").split()
        most = max(most, states.count("RUNNING"))
        return not states

    with ThreadPoolExecutor() as executor:  # some runs end while the second command starts
        end = executor.submit(wait_for, has_ended, 240, "the array's end")
        again = run(command(grid, folder, "--slurm", "--parallel", "2"))
        assert again.returncode == 0, again.stdout + again.stderr
        assert "submitted" not in again.stdout, "queued runs were submitted a second time"
        end.result()
    assert most == 2
    done = run(command(grid, folder, "--report-only"))
    assert done.returncode == 0, done.stdout + done.stderr
    facts = report_of(folder)
    assert facts["states"] == {"done": 3}
    assert facts["best_cell"] == "lr-1e-2"


@pytest.mark.slurm
@needs_slurm
@pytest.mark.usefixtures("on_cluster")
def test_what_sbatch_refuses_is_said(tiny_data_bin, tmp_path, capsys):
    elsewhere = {**RESOURCES, "partition": "no-such-partition"}
    grid = grid_of(tmp_path / "grid.yaml", tiny_data_bin, axes={"lr": ["1", "2"]}, seeds=["1"], slurm=elsewhere)
    assert sweep_here(grid, tmp_path / "out", "--slurm") == 2
    assert "The cluster has no partition 'no-such-partition'" in capsys.readouterr().err
    grid.write_text(grid.read_text().replace("partition: no-such-partition", "constraint: quantum"))
    assert sweep_here(grid, tmp_path / "out", "--slurm") == 2
    assert "sbatch refused the job" in capsys.readouterr().err


@pytest.mark.slurm
@needs_slurm
@pytest.mark.slow
def test_a_preempted_run_is_requeued_and_goes_on(on_cluster, tiny_data_bin, tmp_path):
    grid = grid_of(tmp_path / "grid.yaml", tiny_data_bin, axes={}, seeds=["1"], updates=300, slurm=RESOURCES)
    folder = tmp_path / "out"
    done = run(command(grid, folder, "--slurm"))
    assert done.returncode == 0, done.stdout + done.stderr
    job = submitted_job(done.stdout)
    log = folder / "base" / "seed-1" / "log.txt"
    wait_for(lambda: has_reached(log, 20), 120, "update 20")
    on_cluster.call("scancel", "--signal=USR2", job)  # what SLURM sends before it takes the node away

    def has_ended():
        on_cluster.release(job)
        time.sleep(0.2)
        return not on_cluster.call("squeue", "--noheader").strip()

    wait_for(has_ended, 240, "the job's end")
    stopped, resumed = attempts_in(log)
    assert stopped[-1] < 300
    assert 1 < resumed[0] <= stopped[-1] + 1, "the run began anew"
    assert resumed[-1] == 300
    assert run(command(grid, folder, "--report-only")).returncode == 0
    assert report_of(folder)["states"] == {"done": 1}
