"""How far runs are, by their logs; a line for each that ends where there is no terminal."""

import sys

from roberta_plugin.experiments.sweeps import progress as sweep_progress
from roberta_plugin.experiments.sweeps.grid import Run
from roberta_plugin.experiments.sweeps.progress import SweepProgress, share_done
from roberta_plugin.locks import try_lock
from tests.unit.experiments.sweeps.test_keep import ACCURACY, RunFolder


def make(root, seed, *, updates=None, value=None):
    run = Run(cell="a", seed=seed, settings={}, arguments=("data", "--max-update", "40"))
    folder = RunFolder(root, run, ACCURACY)
    folder.prepare()
    if updates is not None:
        record = f'x | INFO | train_inner | {{"num_updates": "{updates}", "loss": "1"}}\n'
        (folder.path / "log.txt").write_text("words\n" * 10_000 + record)
    if value is not None:
        folder._write("result.json", {"value": value})
    return folder


def test_a_run_is_as_far_as_its_log_says(tmp_path):
    runs = [make(tmp_path, "1"), make(tmp_path, "2", updates=10), make(tmp_path, "3", updates=10, value=1.0)]
    assert [share_done(run) for run in runs] == [0.0, 0.25, 1.0]


def test_without_a_terminal_there_is_a_line_for_each_run_that_ends(tmp_path, capsys):
    runs = [make(tmp_path, "1", value=87.25), make(tmp_path, "2")]
    with SweepProgress(runs) as progress:
        for event in ("started", "done"):
            progress.report(runs[0], event)
            progress.look()
        progress.report(runs[1], "failed")
    out, err = capsys.readouterr()
    assert err == ""
    first, second = out.splitlines()
    assert first.endswith("1 of 2: a/seed-1 done: 87.25")
    assert second.endswith(f"2 of 2: a/seed-2 failed, see {runs[1].path / 'log.txt'}")


def test_on_a_terminal_a_bar_shows_the_share_and_the_time_left_and_one_the_run_that_trains(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sweep_progress, "_LOOK_EVERY_S", 0.0)
    runs = [make(tmp_path, "1", updates=20), make(tmp_path, "2")]
    with SweepProgress(runs) as progress:
        progress.report(runs[0], "started")
        with open(runs[0].path / "lock", "w") as lock:
            assert try_lock(lock.fileno())
            progress.look()
        assert progress._bar.n == 0.5
    shown = capsys.readouterr().err
    assert "0.5 of 2 runs" in shown
    assert "left" in shown
    assert "a/seed-1:  50%" in shown and "20/40 updates" in shown and "loss=1.00" in shown
    assert "a/seed-2" not in shown
