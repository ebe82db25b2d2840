"""The files of a run folder, read and written."""

import json
import time
from dataclasses import replace

import pytest

from roberta_plugin.launch.restart import (
    CRASHED,
    START_FAILED,
    Decision,
    End,
    note_failure,
    note_start,
    read_attempts,
    read_end,
    write_attempt,
)
from tests.unit.launch.ends import LIMITS, STARTING, TRAINING


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
