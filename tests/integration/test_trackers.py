"""Weights & Biases offline (`pip install wandb`): the runs of a sweep are told apart, and a killed one continues."""

import struct
import subprocess

import pytest

from roberta_plugin.launch.process import stop_orphan, tracker_variables
from tests.integration.test_sweep import attempts_in, command, grid_of, has_reached, report_of
from tests.slurm_cluster import wait_for
from tests.tiny_corpus import environment

pytestmark = pytest.mark.integration
BLOCK, HEADER = 32768, 7  # bytes, as in LevelDB's logs; W&B's file begins with a header of as many


def records(path):
    """The records of an offline run's file, up to where it was killed."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, parts = path.read_bytes(), HEADER, b""
    while at + HEADER <= len(content):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        length, kind = struct.unpack_from("<HB", content, at + 4)
        parts += content[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(parts)
            parts = b""


def test_a_killed_run_of_a_sweep_continues_its_run_at_the_tracker(tiny_data_bin, tmp_path):
    pytest.importorskip("wandb", reason="needs Weights & Biases: pip install wandb")
    (tmp_path / "wandb").mkdir()
    mine = {**environment(), "WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path)}
    mine |= {"WANDB_CONSOLE": "off", "WANDB_SILENT": "true", "WANDB_DISABLE_GIT": "true", "WANDB_DISABLE_CODE": "true"}
    grid = grid_of(tmp_path / "grid.yaml", tiny_data_bin, axes={"lr": ["1e-3"]}, seeds=["1"], updates=150)
    grid.write_text(grid.read_text().replace("train:\n", "train:\n  wandb-project: tiny\n"))
    run = tmp_path / "mine" / "lr-1e-3" / "seed-1"
    arguments = command(grid, tmp_path / "mine")

    shown = subprocess.run([*arguments, "--dry-run"], env=mine, capture_output=True, text=True, timeout=100).stdout
    names = tracker_variables(run, name="lr-1e-3/seed-1", group="mine", user=())
    assert " ".join(f"{name}={value}" for name, value in names.items()) in shown

    first = subprocess.Popen(arguments, env=mine, stdout=subprocess.DEVNULL)
    wait_for(lambda: first.poll() is not None or has_reached(run / "log.txt", 12), 120, "update 12", longest_pause=0.02)
    assert first.poll() is None
    first.kill()
    first.wait()
    assert stop_orphan(run / "lock")
    assert subprocess.run(arguments, env=mine, stdout=subprocess.DEVNULL, timeout=120).returncode == 0
    assert report_of(tmp_path / "mine")["states"] == {"done": 1}
    stopped, resumed = attempts_in(run / "log.txt")
    assert 1 < resumed[0] <= stopped[-1] + 1

    files = sorted((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2
    for path, updates in zip(files, (stopped, resumed), strict=True):
        found = list(records(path))
        (about,) = [record.run for record in found if record.WhichOneof("record_type") == "run"][:1]
        assert (about.project, about.run_id) == ("tiny", names["WANDB_RUN_ID"])
        assert (about.display_name, about.run_group) == ("lr-1e-3/seed-1", "mine")
        steps = {record.history.step.num for record in found if record.WhichOneof("record_type") == "history"}
        assert max(updates) in steps
