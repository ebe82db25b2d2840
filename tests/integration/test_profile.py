"""`roberta profile` on a real training command."""

import json

import pytest

from tests.tiny_corpus import command, run, train_command

pytestmark = pytest.mark.integration


def test_a_trace_and_a_table_are_written(tiny_data_bin, tmp_path):
    training = train_command(tiny_data_bin, tmp_path / "unused", "--max-update", "100", "--total-num-update", "100")[1:]
    destination = tmp_path / "profile"
    options = ["--output-dir", str(destination), "--steps", "2", "--warm-up", "1", "--rows", "7"]
    done = run([*command("roberta"), "profile", *options, "--", *training])
    assert done.returncode == 0, done.stderr[-3000:]
    table = (destination / "table.txt").read_text()
    assert "Self CPU" in table
    assert "tokens/s with the profiler on" in done.stdout
    events = json.loads((destination / "trace.json").read_text())["traceEvents"]
    names = {event.get("name") for event in events}
    assert {"ProfilerStep#1", "ProfilerStep#2"} <= names
    assert not (tmp_path / "unused").exists()

    large = ["--batch-size", "40"]  # so that the epoch ends before the profiler records
    too_many = run([*command("roberta"), "profile", *options[:2], "--steps", "500", "--", *training, *large])
    assert too_many.returncode == 2
    assert "only 3 updates in an epoch, and --warm-up 3 and --steps 500 need 503" in too_many.stderr
