"""A run's log, and the report.md made from it."""

import io
import json
import math
import os

import pytest
from tqdm import tqdm

from roberta_plugin.launch.log import Record, curve, median_speed, parse_line, show_on
from roberta_plugin.launch.report import curves_of, write_report
from roberta_plugin.launch.restart import Decision, write_attempt
from roberta_plugin.launch.run_folder import write_status
from roberta_plugin.runs import write_record
from tests.unit.launch.ends import LIMITS, TRAINING
from tests.unit.launch.test_run_folder import RECORD, STATUS

START = "2026-01-01 00:00:00 | INFO | "


def inner(update, loss, *, wps=100.0):
    return f'{START}train_inner | {{"epoch": 1, "num_updates": "{update}", "loss": "{loss}", "wps": "{wps}"}}'


def test_a_record_has_its_kind_and_numbers():
    record = parse_line(inner(40, 9.25))
    assert record is not None
    assert record.kind == "train_inner"
    assert record.values == {"epoch": 1.0, "num_updates": 40.0, "loss": 9.25, "wps": 100.0}


def test_the_split_is_taken_off_the_names_of_a_validation():
    record = parse_line(f'{START}valid | {{"epoch": 2, "valid_loss": "8.5", "valid_num_updates": "60"}}')
    assert record is not None
    assert record.kind == "valid"
    assert record.values == {"epoch": 2.0, "loss": 8.5, "num_updates": 60.0}


@pytest.mark.parametrize(
    "line",
    [
        "",
        f"{START}fairseq.trainer | begin training epoch 1",
        f"{START}fairseq_cli.train | {{'_name': None}}",
        inner(40, 9.25)[:-9],
        inner(40, 9.25) + inner(50, 9.0)[:60],
    ],
)
def test_other_lines_and_cut_off_ones_are_no_records(line):
    assert parse_line(line) is None


def test_values_that_are_no_numbers_do_not_stop_it():
    record = parse_line(f'{START}train_inner | {{"num_updates": "10", "loss": "nan", "best": null, "x": "word"}}')
    assert record is not None
    assert math.isnan(record.values["loss"])
    assert math.isnan(record.values["best"])
    assert math.isnan(record.values["x"])


def test_a_resumed_run_replaces_the_updates_it_repeats():
    lines = [inner(10, 9.0), inner(20, 8.0), inner(30, 7.0), inner(20, 8.5), inner(30, 7.5), inner(40, 6.5)]
    assert curve(lines, kind="train_inner", value="loss") == ([10, 20, 30, 40], [9.0, 8.5, 7.5, 6.5])
    assert curve(lines, kind="valid", value="loss") == ([], [])


def test_the_speed_is_the_median_so_that_a_pause_does_not_count():
    assert median_speed([inner(10, 9, wps=1), inner(20, 9, wps=50), inner(30, 9, wps=60)]) == 50
    assert median_speed([]) == 0


class Bar:
    """What `show` needs of a tqdm bar."""

    def __init__(self):
        self.n = self.initial = 0
        self.postfix = {}

    def update(self, count):
        self.n += count

    def set_postfix(self, values, refresh):
        self.postfix = values


def test_the_bar_follows_the_updates_and_shows_the_last_values():
    bar = Bar()
    show_on(bar, Record("train_inner", {"num_updates": 10, "loss": 9.126, "wps": 12345.6}))
    show_on(bar, Record("valid", {"num_updates": 10, "loss": 9.0, "accuracy": 12.34}))
    show_on(bar, Record("train_inner", {"num_updates": 20, "loss": 8.5, "wps": 12000}))
    assert bar.n == 20
    assert bar.postfix == {"loss": "8.50", "tokens/s": "12,000", "valid accuracy": "12.3 %"}


def test_a_resumed_run_counts_only_its_own_updates_as_speed(monkeypatch):
    seconds = [1000.0]
    monkeypatch.setattr("tqdm.std.time", lambda: seconds[0])
    bar = tqdm(total=4000, mininterval=0, file=io.StringIO())
    for update, seconds[0] in ((510, 1030.0), (550, 1050.0), (590, 1070.0)):
        show_on(bar, Record("train_inner", {"num_updates": update, "loss": 9.0, "wps": 1}))
    assert bar.n == 590 and bar.format_dict["rate"] == 2.0


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
        "(10.000, ppl 1,024), and worse than the previous-token baseline (5.500, ppl 45.25).",
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
