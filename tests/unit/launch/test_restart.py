"""The policy of restarts case by case, the records it is based on, and what is asked of SLURM."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from roberta_plugin.launch import restart as carry_out_module
from roberta_plugin.launch.restart import (
    CRASHED,
    FINISHED,
    MAX_CRASHES,
    MAX_START_FAILURES,
    OURS,
    SLURMS,
    START_FAILED,
    STOPPED,
    UNKNOWN,
    Decision,
    End,
    Slurm,
    SlurmError,
    carry_out,
    decide,
    note_failure,
    note_start,
    read_attempts,
    read_end,
    whose,
    write_attempt,
)
from tests.unit.launch.ends import LIMITS, STARTING, TRAINING


def record(kind, *, job_id="7", newer=False, trained=True):
    return {"job_id": job_id, "kind": kind, "has_newer_checkpoint": newer, "has_trained": trained}


def restarts(end, history=(), job=OURS, limits=LIMITS):
    return decide(end, history, limits, job=job).restarts


@pytest.mark.parametrize(
    ("phase", "code", "kind"),
    [
        ("finished", 0, FINISHED),
        ("finished", 143, FINISHED),  # a rank that dies after the end takes nothing away
        ("stopped", 0, STOPPED),
        ("stopped", 137, STOPPED),
        ("training", 1, CRASHED),
        ("training", 140, CRASHED),
        ("training", 0, FINISHED),
        ("starting", 1, START_FAILED),
        ("", 1, START_FAILED),
        ("starting", 140, STOPPED),  # the preemption signal ended a rank that could not note it yet
        ("", 140, STOPPED),
        ("", 0, FINISHED),
    ],
)
def test_the_kinds_of_ends(phase, code, kind):
    assert End(job_id="7", attempt=0, code=code, phase=phase).kind(140) == kind


CRASH, STOP = replace(TRAINING, has_newer_checkpoint=False), replace(TRAINING, phase="stopped", code=0)
FULL = [record(CRASHED)] * (MAX_CRASHES - 1)
PROGRESS = record(STOPPED, newer=True)


@pytest.mark.parametrize(
    ("end", "history", "expected"),
    [
        *((replace(TRAINING, phase="finished", code=code), [], False) for code in (0, 1, 137)),
        # A stop after saving, and a failure after a newer checkpoint, start again however often.
        (STOP, [], True),
        (STOP, [record(STOPPED)] * 50, True),
        (STOP, [record(CRASHED)] * 2 + [record(START_FAILED)] * 4, True),
        (replace(STOP, has_newer_checkpoint=False), [record(STOPPED)] * 50, True),
        (TRAINING, [record(CRASHED, newer=True)] * 50, True),
        (End(job_id="7", attempt=0, code=140, phase="starting"), [], True),  # preempted before the first update
        # Progress makes the count of crashes begin anew.
        (CRASH, FULL, False),
        (CRASH, [*FULL, PROGRESS], True),
        (CRASH, [*FULL, record(CRASHED, newer=True), record(CRASHED)], True),
        (CRASH, [PROGRESS, *FULL], False),
        # Kinds are counted apart, and stops between them do not end a row.
        (CRASH, [record(CRASHED), *[record(START_FAILED)] * 4, record(STOPPED)], True),
        (CRASH, [record(CRASHED), record(START_FAILED), record(STOPPED), record(CRASHED)], False),
        # Records of an earlier job do not count.
        (CRASH, [record(CRASHED, job_id="6")] * 9, True),
        (STARTING, [record(CRASHED, job_id="6", newer=True)], False),
        # A start that a signal ends is tried again where there is a checkpoint, one that fails where it has trained.
        *((replace(STARTING, code=code, attempt=0), [], True) for code in (137, 139, 143)),
        (STARTING, [PROGRESS], True),
        (STARTING, [record(START_FAILED, trained=False)], False),
    ],
)
def test_what_starts_again(end, history, expected):
    """Unless it was cancelled, which is not known of a job that could not be asked about; and up to --max-requeues."""
    assert restarts(end, history) is restarts(end, history, job=UNKNOWN) is expected
    assert restarts(end, history, limits=replace(LIMITS, max_requeues=end.attempt + 1)) is expected
    assert not restarts(end, history, limits=replace(LIMITS, max_requeues=end.attempt))
    assert not restarts(end, history, job=SLURMS)


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_crash_loop_without_progress_ends(has_checkpoint):
    end = replace(TRAINING, has_newer_checkpoint=False, has_checkpoint=has_checkpoint)
    history = []
    while (decision := decide(end, history, LIMITS, job=OURS)).restarts:
        history.append(record(CRASHED))
        assert len(history) < 50
    assert len(history) + 1 == MAX_CRASHES
    assert f"{MAX_CRASHES} attempts in a row have failed without saving a newer checkpoint" in decision.text


@pytest.mark.parametrize("code", [1, 137, 139, 143])
@pytest.mark.parametrize("is_preflight", [True, False])
def test_a_first_start_that_fails_stays_final(code, is_preflight):
    end = End(job_id="7", attempt=0, code=code, phase="starting", is_preflight=is_preflight)
    decision = decide(end, [], LIMITS, job=OURS)
    assert not decision.restarts
    assert "before the first checkpoint" in decision.text


def test_what_the_preflight_finds_is_tried_again_and_the_node_left_out():
    decision = decide(replace(STARTING, is_preflight=True, nodes=("gpu7",)), [], LIMITS, job=OURS)
    assert (decision.restarts, decision.exclude) == (True, ("gpu7",))


def test_an_error_of_a_launch_that_has_not_trained_is_final_and_later_tried_again():
    decision = decide(STARTING, [], LIMITS, job=OURS)
    assert not decision.restarts
    assert "has not trained yet" in decision.text
    assert restarts(STARTING, [record(STOPPED, newer=True)])
    assert not restarts(STARTING, [record(START_FAILED, trained=False)])


def test_starts_that_fail_in_a_row_wait_longer_and_longer_and_then_end():
    history, pauses = [record(STOPPED, newer=True)], []
    while (decision := decide(STARTING, history, LIMITS, job=OURS)).restarts:
        pauses.append(decision.pause_s)
        history.append(record(START_FAILED))
        assert len(history) < 50
    assert len(pauses) + 1 == MAX_START_FAILURES
    assert pauses == sorted(pauses)
    assert pauses[0] == 0 < pauses[1] < pauses[-1]
    assert f"{MAX_START_FAILURES} starts in a row have failed" in decision.text
    assert decide(STARTING, [*history, record(CRASHED, newer=True)], LIMITS, job=OURS).pause_s == 0


@pytest.mark.parametrize(
    ("num_nodes", "named", "excluded"),
    [(1, 1, 1), (2, 1, 1), (2, 2, 0), (4, 2, 2), (4, 3, 0), (128, 3, 3), (128, 128, 0)],
)
def test_so_many_nodes_that_the_fault_is_elsewhere_are_not_excluded(num_nodes, named, excluded):
    end = replace(STARTING, is_preflight=True, nodes=tuple(f"n{i}" for i in range(named)))
    decision = decide(end, [], replace(LIMITS, num_nodes=num_nodes), job=OURS)
    assert decision.restarts
    assert len(decision.exclude) == excluded


@pytest.mark.parametrize(
    ("fields", "who"),
    [
        (None, UNKNOWN),
        ({}, SLURMS),  # forgotten
        ({"JobState": "RUNNING", "Reason": "None", "Restarts": "3"}, OURS),
        ({"JobState": "COMPLETING", "Reason": "TimeLimit"}, OURS),
        ({"JobState": "TIMEOUT", "Reason": "TimeLimit"}, OURS),
        ({"JobState": "COMPLETING", "Reason": "None"}, SLURMS),
        ({"JobState": "CANCELLED", "Reason": "None"}, SLURMS),
        ({"JobState": "PENDING", "Reason": "BeginTime"}, SLURMS),
        ({"JobState": "RUNNING", "Reason": "None", "Restarts": "4"}, SLURMS),  # requeued already, and running
    ],
)
def test_whose_turn_it_is(fields, who):
    assert whose(fields, 3) == who


def write_status(output_dir, **changes):
    values = {"job_id": "7", "attempt": 3, "phase": "training", "update": 57}
    (output_dir / "status.json").write_text(json.dumps({**values, **changes}))


def checkpoint(output_dir, name="checkpoint_last.pt"):
    (output_dir / "checkpoints").mkdir(exist_ok=True)
    (output_dir / "checkpoints" / name).write_text("")
    time.sleep(0.02)  # the file system's clock ticks


def read(output_dir, code=1):
    return read_end(output_dir, job_id="7", attempt=3, code=code)


def test_an_empty_folder_is_a_start_that_failed(tmp_path):
    assert read(tmp_path) == End(job_id="7", attempt=3, code=1)


def test_only_the_status_of_this_attempt_counts(tmp_path):
    write_status(tmp_path)
    assert (read(tmp_path).phase, read(tmp_path).update) == ("training", 57)
    write_status(tmp_path, attempt=2)
    assert read(tmp_path).phase == ""
    write_status(tmp_path, job_id="6")
    assert read(tmp_path).phase == ""


@pytest.mark.parametrize("text", ["", "{", "[1]", '"x"'])
def test_a_damaged_file_is_as_good_as_none(tmp_path, text):
    (tmp_path / "status.json").write_text(text)
    (tmp_path / "training_started.json").write_text(text)
    assert read(tmp_path) == End(job_id="7", attempt=3, code=1)


def test_progress_is_a_checkpoint_that_is_newer_than_the_start(tmp_path):
    checkpoint(tmp_path)
    assert read(tmp_path).has_checkpoint
    assert not read(tmp_path).has_newer_checkpoint, "the training of this attempt has not begun"
    note_start(tmp_path, job_id="7", attempt=3)
    time.sleep(0.02)
    assert not read(tmp_path).has_newer_checkpoint
    checkpoint(tmp_path, "notes.txt")
    checkpoint(tmp_path, "checkpoint_1_5.pt.tmp")
    assert not read(tmp_path).has_newer_checkpoint
    checkpoint(tmp_path, "checkpoint_1_5.pt")
    assert read(tmp_path).has_newer_checkpoint
    note_start(tmp_path, job_id="7", attempt=2)
    checkpoint(tmp_path)
    assert not read(tmp_path).has_newer_checkpoint, "the mark is of another attempt"


def test_of_the_failures_of_an_attempt_the_first_is_kept(tmp_path):
    ids = {"job_id": "7", "attempt": 3}
    note_failure(tmp_path, **ids, rank=5, host="gpu2", error=ValueError("bad lr"), node=1)
    note_failure(tmp_path, **ids, rank=0, host="gpu1", error=RuntimeError("peer is gone"))
    end = read(tmp_path)
    assert (end.reason, end.node, end.is_preflight) == ("rank 5 on gpu2: ValueError: bad lr", 1, False)
    assert not list(tmp_path.rglob("*.tmp"))
    note_failure(
        tmp_path, job_id="7", attempt=4, rank=0, host="a", error=RuntimeError("x"), nodes=["gpu9"], is_preflight=True
    )
    later = read_end(tmp_path, job_id="7", attempt=4, code=1)
    assert (later.is_preflight, later.nodes) == (True, ("gpu9",))


def test_records_are_read_as_they_were_written_whatever_a_kill_has_cut_off(tmp_path):
    assert read_attempts(tmp_path) == []
    write_attempt(tmp_path, TRAINING, Decision(True, "again"), LIMITS)
    with open(tmp_path / "attempts.jsonl", "a") as file:
        file.write('{"job_id": "7", "ki')
    write_attempt(tmp_path, replace(STARTING, code=137), Decision(False, "the end", exclude=("n",)), LIMITS)
    first, second = read_attempts(tmp_path)
    assert (first["kind"], first["has_trained"], first["has_newer_checkpoint"]) == (CRASHED, True, True)
    assert (second["kind"], second["reason"]) == (START_FAILED, "exit code 137 (SIGKILL)")
    assert (second["then"], second["excluded"], second["log"]) == ("the end", ["n"], "logs/7_0_log.out")


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
    code += "import rendezvous, restart\n"
    code += "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
    code += "print(sorted(new - sys.stdlib_module_names))"
    command = [sys.executable, "-I", "-S", "-c", code, str(FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['rendezvous', 'restart']"
