"""`roberta sweep`: options and what is printed; whole sweeps are in tests/integration/test_sweep.py."""

import argparse

import pytest

from roberta_plugin.cli import sweep


def run(*words):
    parser = argparse.ArgumentParser()
    sweep.add_parser(parser.add_subparsers())
    args = parser.parse_args(["sweep", *words])
    return args.run(args)


@pytest.fixture
def grid(tmp_path):
    path = tmp_path / "grid.yaml"
    path.write_text("train: {data: d}\naxes: {lr: [1, 2]}\nseeds: [5]\nmetric: {log: valid, value: ppl, goal: min}\n")
    return path


def test_a_dry_run_shows_every_command_and_writes_nothing(grid, tmp_path, capsys):
    assert run(str(grid), "--folder", str(tmp_path / "out"), "--dry-run") == 0
    text = capsys.readouterr().out
    assert "# lr-1/seed-5\n" in text
    assert (
        f"fairseq-train d --lr 2 --seed 5 --save-dir {tmp_path}/out/lr-2/seed-5/checkpoints --log-format json" in text
    )
    assert "# 2 runs: 2 cells x 1 seeds" in text
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--parallel", "0"], "--parallel must be 1 or more, got 0"),
        (["--retries", "-1"], "--retries must be 0 or more, got -1"),
        (["--wait"], "--wait goes with --slurm"),
        (["--slurm", "--retries", "1"], "are for runs on this machine"),
        (["--slurm", "--gpus-per-run", "1"], "are for runs on this machine"),
    ],
)
def test_what_is_refused_and_how(grid, tmp_path, words, message):
    with pytest.raises(ValueError, match=message):
        run(str(grid), "--folder", str(tmp_path / "out"), *words)
    assert not (tmp_path / "out").exists()


def test_a_report_of_what_is_there_trains_nothing(grid, tmp_path, capsys):
    assert run(str(grid), "--folder", str(tmp_path / "out"), "--report-only") == 0
    assert "2 runs: 2 waiting" in capsys.readouterr().out
    assert not list((tmp_path / "out").rglob("log.txt"))
