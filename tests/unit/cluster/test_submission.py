"""A recipe becomes an sbatch script; a dry run shows it and writes nothing."""

import dataclasses
import re
import subprocess

import pytest

from roberta_plugin.cluster import status
from roberta_plugin.cluster.rendezvous import port_of
from roberta_plugin.cluster.submission import restart_lines, submit

from .recipes import good_recipe


def directives(script):
    return dict(
        line.removeprefix("#SBATCH --").partition("=")[::2] for line in script.splitlines() if "#SBATCH" in line
    )


def test_a_dry_run_shows_everything_and_writes_nothing(tiny_data_bin, tmp_path):
    run_dir = tmp_path / "run"
    recipe = good_recipe(
        tiny_data_bin,
        run_dir,
        partition="gpu",
        time="1-00:00:00",
        account="lab",
        constraint="h200",
        exclude="gpu7",
        mem_gb=400,
        env=("NCCL_DEBUG=WARN AND INFO",),
        setup=("module load cuda",),
        sbatch=("reservation=night",),
        batch_sequences=64,
    )
    submission = submit(recipe, dry_run=True)
    assert list(tmp_path.iterdir()) == []
    assert submission.job_id is None
    found = directives(submission.script)
    expected = {
        "nodes": "2",
        "ntasks-per-node": "2",
        "cpus-per-task": "4",
        "time": "1440",
        "partition": "gpu",
        "account": "lab",
        "constraint": "h200",
        "exclude": "gpu7",
        "mem": "400GB",
        "signal": "USR2@120",
        "distribution": "block",
        "reservation": "night",
        "requeue": "",
        "job-name": "run",
        "open-mode": "append",
    }
    assert expected.items() <= found.items()
    assert "gpus-per-node" not in found  # the recipe says --cpu
    assert "wckey" not in found
    lines = submission.script.splitlines()
    assert "export NCCL_DEBUG='WARN AND INFO'" in lines
    assert lines.index("module load cuda") < next(i for i, line in enumerate(lines) if line.startswith("srun "))
    assert f"{run_dir}/snapshots/0/code" in submission.script
    assert "--kill-on-bad-exit=1" in submission.script
    command = submission.commands[1]
    assert f"--distributed-init-method tcp://FIRST-NODE:{port_of(run_dir)}" in command
    assert "--distributed-world-size 4 --distributed-rank $SLURM_PROCID" in command
    assert "--batch-size 4 --update-freq 4" in command


def test_a_gpu_job_asks_for_its_gpus(tiny_data_bin, tmp_path):
    recipe = good_recipe(tiny_data_bin, tmp_path / "run")
    recipe = dataclasses.replace(recipe, train=tuple(word for word in recipe.train if word != "--cpu"))
    submission = submit(recipe, dry_run=True)
    assert directives(submission.script)["gpus-per-node"] == "2"
    assert "--device-id $SLURM_LOCALID" in submission.commands[1]


def test_containers(tiny_data_bin, tmp_path):
    recipe = good_recipe(tiny_data_bin, tmp_path / "run", container="lab/roberta:1", container_mounts="/data:/data")
    script = submit(recipe, dry_run=True).script
    assert "--container-image=lab/roberta:1" in script
    assert f"--container-mounts={tmp_path}/run:{tmp_path}/run,/data:/data" in script
    assert "python3 -P -u -m submitit" in script
    script = submit(dataclasses.replace(recipe, container_runtime="apptainer"), dry_run=True).script
    assert f"apptainer exec --nv --bind {tmp_path}/run --bind /data:/data lab/roberta:1 python3 -P" in script


def test_a_run_keeps_its_effective_batch(tiny_data_bin, tmp_path):
    recipe = good_recipe(tiny_data_bin, tmp_path / "run", batch_sequences=64)
    recipe.run_dir.mkdir()
    status.write_launch(
        recipe.run_dir,
        status.Launch(job_id="7", name="run", num_gpus=8, batch_sequences=64, batch_tokens=None, snapshot="s"),
    )
    submit(recipe, dry_run=True)
    with pytest.raises(ValueError, match="was begun with --batch-sequences 64"):
        submit(dataclasses.replace(recipe, batch_sequences=128), dry_run=True)


@pytest.mark.parametrize(
    ("phase", "attempt", "job", "code", "restarts"),
    [
        ("training", 1, "JobState=RUNNING Reason=None", 137, True),
        ("training", 1, "JobState=COMPLETING Reason=TimeLimit", 143, True),
        ("training", 0, "JobState=RUNNING Reason=None", 1, False),  # the status is of the attempt before
        ("training", 1, "JobState=RUNNING Reason=None", 0, False),
        ("starting", 1, "JobState=RUNNING Reason=None", 1, False),  # the same would happen again
        ("starting", 1, "JobState=RUNNING Reason=None", 140, True),  # the preemption signal came during the start
        ("starting", 1, "JobState=COMPLETING Reason=None", 140, False),
        ("requeued", 1, "JobState=RUNNING Reason=None", 255, False),
        ("training", 1, "JobState=COMPLETING Reason=None", 143, False),  # cancelled
    ],
)
def test_what_fails_in_the_midst_of_training_starts_again(tmp_path, phase, attempt, job, code, restarts):
    run = run_restart_lines(tmp_path, phase=phase, attempt=attempt, job=job, code=code, max_requeues=5)
    assert run.returncode == code
    assert bool(re.search(r"^scontrol requeue 7$", run.stdout, re.M)) == restarts


def test_there_is_a_last_restart(tmp_path):
    arguments = {"phase": "training", "attempt": 1, "job": "JobState=RUNNING", "code": 9}
    run = run_restart_lines(tmp_path, **arguments, max_requeues=1)
    assert "scontrol requeue" not in run.stdout
    assert "--max-requeues 1 allows no more" in run.stderr


def run_restart_lines(folder, *, phase, attempt, job, code, max_requeues):
    """Run the end of the batch script as bash does, in attempt 1 of job 7, with a scontrol that only talks."""
    from roberta_plugin.cluster.recipe import Recipe

    last = status.Status(
        job_id="7",
        attempt=attempt,
        phase=phase,
        update=9,
        max_update=10,
        loss=None,
        tokens_per_second=None,
        updates_per_second=None,
        time=0.0,
    )
    status.write_status(folder, last)
    scontrol = folder / "scontrol"
    scontrol.write_text(f'#!/bin/sh\n[ "$1" = show ] && echo "JobId=7 {job}" || echo "scontrol $*"\n')
    scontrol.chmod(0o755)
    script = "\n".join([f"(exit {code})", *restart_lines(Recipe(run_dir=folder, train=(), max_requeues=max_requeues))])
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"}
    return subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
