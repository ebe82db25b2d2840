"""`roberta sweep`: options and what is printed; whole sweeps are in tests/integration/test_sweep.py."""

import re

import pytest

from roberta_plugin.cli import build_parser


def run(*words):
    args = build_parser("sweep").parse_args(["sweep", *words])
    return args.run(args)


GRID = """
train: {data: DATA, task: roberta_masked_lm, criterion: roberta_masked_lm, arch: fast_roberta_tiny, batch-size: 4}
axes: {lr: [1, 2]}
seeds: [5]
metric: {log: valid, value: ppl, goal: min}
"""


@pytest.fixture
def grid(tiny_data_bin, tmp_path):
    path = tmp_path / "grid.yaml"
    path.write_text(GRID.replace("DATA", str(tiny_data_bin)))
    return path


def test_a_dry_run_shows_every_command_and_writes_nothing(grid, tiny_data_bin, tmp_path, capsys):
    assert run(str(grid), "--output-dir", str(tmp_path / "out"), "--dry-run") == 0
    text = capsys.readouterr().out
    assert "# lr-1/seed-5\n" in text
    assert f"fairseq-train {tiny_data_bin} --task roberta_masked_lm" in text
    assert f" --lr 2 --seed 5 --save-dir {tmp_path}/out/lr-2/seed-5/checkpoints --log-format json" in text
    assert "# 2 runs: 2 settings x 1 seeds" in text
    assert not (tmp_path / "out").exists()


def test_a_dry_run_shows_what_trackers_are_told(grid, tmp_path, capsys):
    grid.write_text(grid.read_text().replace("{data:", "{wandb-project: mine, data:"))
    assert run(str(grid), "--output-dir", str(tmp_path / "out"), "--dry-run") == 0
    ids = re.findall(
        r"^WANDB_NAME=lr-[12]/seed-5 WANDB_RUN_ID=(\w+) WANDB_RESUME=allow WANDB_RUN_GROUP=out \S*fairseq-train ",
        capsys.readouterr().out,
        flags=re.MULTILINE,
    )
    assert len(set(ids)) == 2


@pytest.mark.parametrize(("options", "splits"), [("", "valid"), (" disable-validation: true,", "none")])
def test_a_metric_of_a_split_that_no_run_is_validated_on_is_refused_before_the_first_run(
    grid, tmp_path, options, splits
):
    text = grid.read_text().replace("{data:", f"{{{options} data:")
    grid.write_text(text.replace("log: valid", "log: nope"))
    with pytest.raises(
        ValueError, match=rf"log: 'nope' is no split that setting lr-1 is validated on \({splits}\): name"
    ):
        run(str(grid), "--output-dir", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    grid.write_text(text.replace("log: valid", "log: train"))
    assert run(str(grid), "--output-dir", str(tmp_path / "out"), "--dry-run") == 0


def test_a_user_dir_that_does_not_exist_is_refused_in_one_line(grid, tmp_path):
    grid.write_text(grid.read_text().replace("{data:", "{user-dir: robezta_plugin, data:"))
    with pytest.raises(ValueError, match=r"line 2, .*--user-dir robezta_plugin does not exist: correct"):
        run(str(grid), "--output-dir", str(tmp_path / "out"), "--dry-run")


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--wait"], "--wait goes with --slurm"), (["--slurm", "--retries", "1"], "are for runs on this machine")],
)
def test_what_is_refused_and_how(grid, tmp_path, words, message):
    with pytest.raises(ValueError, match=message):
        run(str(grid), "--output-dir", str(tmp_path / "out"), *words)
    assert not (tmp_path / "out").exists()


def test_a_report_of_what_is_there_trains_nothing(grid, tmp_path, capsys):
    assert run(str(grid), "--output-dir", str(tmp_path / "out"), "--report-only") == 0
    assert "2 runs: 2 waiting" in capsys.readouterr().out
    assert not list((tmp_path / "out").rglob("log.txt"))
