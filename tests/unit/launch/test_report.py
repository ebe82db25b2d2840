"""report.md of a run: numbers and curves from the log, attempts, settings."""

import json
import os

from roberta_plugin.launch.report import curves_of, write_report
from roberta_plugin.launch.restart import Decision, write_attempt
from roberta_plugin.launch.run_folder import write_record, write_status
from tests.unit.launch.ends import LIMITS, TRAINING
from tests.unit.launch.test_run_folder import RECORD, STATUS


def record(kind, **values):
    prefix = "" if kind == "train_inner" else f"{kind}_"
    names = {
        f"{prefix}{name}" if name != "num_updates" else prefix + name: str(value) for name, value in values.items()
    }
    return f"0: 2026-11-22 03:00:00 | INFO | {kind} | {json.dumps(names)}\n"


def test_numbers_curves_attempts_and_settings(tmp_path):
    write_record(
        tmp_path,
        type(RECORD)(**{**vars(RECORD), "arguments": ("data-bin", "--lr", "1"), "changes": ("--lr 1 instead of 2",)}),
    )
    write_status(tmp_path, type(STATUS)(**{**vars(STATUS), "phase": "finished"}))
    write_attempt(tmp_path, TRAINING, Decision(True, "the job restarts"), LIMITS)
    (tmp_path / "logs").mkdir()
    first, second = tmp_path / "logs" / "8_0_log.out", tmp_path / "logs" / "7_0_log.out"
    first.write_text("".join(record("train_inner", num_updates=n, loss=10 - n, wps=100 * n, mfu=40) for n in (1, 2, 3)))
    text = "rank 0 of world size 4\n" + record("train_inner", num_updates=3, loss=6.5, wps=1000, mfu=42)
    counts = {"unigram_loss": 10.0, "bigram_loss": 5.5}
    text += "".join(
        record("valid", num_updates=n, loss=loss, ppl=2**loss, **counts) for n, loss in ((2, 5.0), (3, 6.0))
    )
    second.write_text(
        text + record("train", num_updates=3, loss=99.0) + record("train_inner", num_updates=4, loss=6.0)[:-9]
    )
    os.utime(first, (1, 1))
    report = write_report(tmp_path).read_text()
    for line in (
        "| state | finished |",
        "| updates | 250 of 1,000 |",
        "| tokens/s, median | 200 |",
        "| training loss, last | 6.5000 at update 3 |",
        "| valid loss, last | 6.0000, best 5.0000 at update 2 |",
        "On valid, the model has a loss of 6.000 bits per token (ppl 64): better than the unigram baseline "
        "(10.000), and worse than the bigram baseline (5.500, ppl 45.25).",
        "| GPUs | 4 |",
        "| restarts | 1 |",
        "- --lr 1 instead of 2",
        "data-bin --lr 1",
        "![Loss and speed against updates](report.png)",
    ):
        assert line in report.splitlines(), f"{line}:\n{report}"
    assert "99.0" not in report and "unigram_loss" not in report
    assert "the job restarts" in report
    assert (tmp_path / "report.png").read_bytes()[:4] == b"\x89PNG"


def test_a_log_without_numbers_is_said_to_be_one(tmp_path):
    write_record(tmp_path, RECORD)
    assert "they need `log_format: json`" in write_report(tmp_path).read_text()
    assert not (tmp_path / "report.png").exists()
    assert curves_of([]) == {}
