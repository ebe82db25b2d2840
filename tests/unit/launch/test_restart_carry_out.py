"""The commands that SLURM is given, and what is made of its answers."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from roberta_plugin.launch import restart as carry_out_module
from roberta_plugin.launch.restart import FINISHED, Slurm, SlurmError, carry_out, read_attempts
from tests.unit.launch.ends import LIMITS, STARTING, TRAINING

FOLDER = Path(carry_out_module.__file__).parent


@pytest.fixture
def scontrol(tmp_path, monkeypatch):
    """A scontrol (and sinfo) that notes how it is called, and answers as `answer` says."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(carry_out_module, "ASK_EVERY_S", 0.05)

    def answer(show="JobState=RUNNING Reason=None Partition=main ExcNodeList=(null)", *, down=0, refuses=""):
        script = f"""#!/bin/bash
echo "$(basename $0) $*" >> {tmp_path}/calls
down={down}; calls=$(wc -l < {tmp_path}/calls)
[ $calls -le $down ] && {{ echo "Unable to contact slurm controller (connect failure)" >&2; exit 1; }}
[ -n "{refuses}" ] && [ "$1" = "{refuses}" ] && {{ echo "Access/permission denied" >&2; exit 1; }}
[ $(basename $0) = sinfo ] && echo 8
[ "$1" = show ] && echo "JobId=7 {show}"
exit 0
"""
        for name in ("scontrol", "sinfo"):
            (folder / name).write_text(script)
            (folder / name).chmod(0o755)

    def calls():
        path = tmp_path / "calls"
        return path.read_text().splitlines() if path.exists() else []

    answer.calls = calls
    answer()
    return answer


def act(output_dir, end, *, patience_s=5.0, limits=LIMITS):
    said = []
    code = carry_out(
        end, limits, output_dir=output_dir, slurm=Slurm(said.append, patience_s=patience_s), say=said.append
    )
    return code, "\n".join(said)


def test_a_job_that_goes_on_is_requeued_and_noted(tmp_path, scontrol):
    code, said = act(tmp_path, TRAINING)
    assert scontrol.calls()[-1] == "scontrol requeue 7"
    assert (code, len(read_attempts(tmp_path))) == (1, 1)
    assert "attempt 3 failed in training (exit code 1): the job restarts from its last checkpoint" in said


@pytest.mark.parametrize("code", [0, 137])
def test_a_finished_job_has_succeeded_and_asks_nothing(tmp_path, scontrol, code):
    """srun's own code may be another: it ends a step in which it has lost a daemon."""
    assert act(tmp_path, replace(TRAINING, code=code, phase="finished"))[0] == 0
    assert scontrol.calls() == []
    assert read_attempts(tmp_path)[0]["kind"] == FINISHED


def test_a_stop_that_does_not_go_on_is_a_failure(tmp_path, scontrol):
    stopped = replace(TRAINING, code=0, phase="stopped")
    code, said = act(tmp_path, stopped, limits=replace(LIMITS, max_requeues=0))
    assert code == 1
    assert "--max-requeues is 0" in said
    assert "scontrol requeue 7" not in scontrol.calls()


def test_a_controller_that_is_down_is_asked_again(tmp_path, scontrol):
    scontrol(down=4)
    _, said = act(tmp_path, TRAINING)
    assert scontrol.calls()[-1] == "scontrol requeue 7"
    assert "Unable to contact slurm controller" in said
    assert read_attempts(tmp_path)[0]["restarts"]


def test_a_controller_that_stays_down_reads_as_that_and_not_as_cancelled(tmp_path, scontrol):
    scontrol(down=10_000)
    code, said = act(tmp_path, TRAINING, patience_s=0.2)
    assert code == 1
    assert "could not be requeued" in said
    assert "scontrol requeue 7" in said
    assert "cancelled" not in said
    assert not read_attempts(tmp_path)[0]["restarts"]


def test_without_scontrol_the_way_out_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, said = act(tmp_path, TRAINING)
    assert code == 1
    assert "scontrol cannot be run on this node" in said
    assert "cancelled" not in said


def test_a_refusal_is_not_repeated(tmp_path, scontrol):
    scontrol(refuses="requeue")
    _, said = act(tmp_path, TRAINING)
    assert scontrol.calls().count("scontrol requeue 7") == 1
    assert "Access/permission denied" in said
    with pytest.raises(SlurmError):
        Slurm(print).requeue("7")


def test_a_named_node_is_excluded_beside_those_that_were(tmp_path, scontrol):
    scontrol("JobState=RUNNING Reason=None Partition=main ExcNodeList=gpu[1-2]")
    end = replace(STARTING, is_preflight=True, nodes=("gpu7",), reason="rank 3: node gpu7")
    _, said = act(tmp_path, end)
    calls = scontrol.calls()
    assert calls.index("scontrol requeue 7") < calls.index("scontrol update jobid=7 ExcNodeList=gpu[1-2],gpu7")
    assert "excludes gpu7" in said
    assert read_attempts(tmp_path)[0]["excluded"] == ["gpu7"]


def test_no_node_is_excluded_if_too_few_would_be_left(tmp_path, scontrol):
    end = replace(STARTING, is_preflight=True, nodes=("gpu7",))
    _, said = act(tmp_path, end, limits=replace(LIMITS, num_nodes=8))
    assert not any("ExcNodeList" in call for call in scontrol.calls())
    assert "cannot be excluded" in said
    assert read_attempts(tmp_path)[0]["excluded"] == []


def test_a_pause_is_asked_of_slurm(tmp_path, scontrol):
    for _ in range(2):
        act(tmp_path, replace(STARTING, code=137))
    assert scontrol.calls()[-1] == "scontrol update jobid=7 StartTime=now+300"


def test_it_runs_alone_with_plain_python(tmp_path, scontrol):
    """As in the batch script: no PYTHONPATH, another working folder, signals that are for the ranks."""
    (tmp_path / "status.json").write_text('{"job_id": "7", "attempt": 3, "phase": "training", "update": 57}')
    command = [sys.executable, "-I", "-S", str(FOLDER / "restart.py"), "--output-dir", str(tmp_path), "--code", "137"]
    command += ["--num-nodes", "2", "--max-requeues", "9", "--preemption-code", "140"]
    environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "3"}
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 137, done.stderr
    assert "failed in training (exit code 137 (SIGKILL)): the job restarts" in done.stderr
    assert scontrol.calls()[-1] == "scontrol requeue 7"


def test_only_the_standard_library_is_imported():
    code = "import sys; before = set(sys.modules); sys.path.append(sys.argv[1])\n"
    code += "import node, restart\n"
    code += "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
    code += "print(sorted(new - sys.stdlib_module_names))"
    command = [sys.executable, "-I", "-S", "-c", code, str(FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['node', 'restart']"
