"""`roberta plan`: the table and the JSON file."""

import json

import pytest

from roberta_plugin.cli import build_parser
from tests.conftest import REPOSITORY

MACHINE = str(REPOSITORY / "slurm" / "machine.yaml")


def run(*words):
    args = build_parser("plan").parse_args(["plan", *words])
    return args.run(args)


def test_table_and_json_agree(tmp_path, capsys):
    config = str(REPOSITORY / "slurm" / "pretrain_large.yaml")
    words = ["--config", config, "--machine", MACHINE, "--tokens-per-second", "15000", "--gpus", "8", "1024"]
    assert run(*words, "--json", str(tmp_path / "plan.json")) == 0
    text = capsys.readouterr().out
    facts = json.loads((tmp_path / "plan.json").read_text())
    assert "355.4 M parameters" in text
    rows = [line for line in text.splitlines() if line.startswith(("| 8 |", "| 1,024 |"))]
    assert len(rows) == len(facts["rows"]) == 2
    assert "| 8 x 1 |" in rows[1]
    assert f"| {facts['rows'][1]['days']:.3g} |" in rows[1]


def test_an_unknown_machine_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"--machine tpu is no file: name a YAML file.*slurm/machine.yaml"):
        run("--config", str(tmp_path / "x.yaml"), "--machine", "tpu")


def test_price_and_speed_of_writing_are_options(tmp_path, capsys):
    config = tmp_path / "synchronous.yaml"
    base = REPOSITORY / "slurm" / "pretrain.yaml"
    train = "{arch: fast_roberta_large}"
    config.write_text(f"base: {base}\noutput_dir: runs/large\ntrain: {train}\n")
    words = ["--config", str(config), "--machine", MACHINE, "--utilization", "0.4", "--gpus", "1024", "--price", "2"]
    assert run(*words, "--json", str(tmp_path / "plan.json")) == 0
    slow = capsys.readouterr().out
    row = json.loads((tmp_path / "plan.json").read_text())["rows"][0]
    assert row["cost"] == 2 * row["gpu_hours"]
    assert f"| {row['cost']:,.0f} |" in slow
    assert "A checkpoint: 5.7 GB, written twice at 1 GB/s" in slow
    assert row["saving"] == pytest.approx(11.37 / 900, rel=1e-3), "every 15 minutes, by the recipe"
    assert run(*words, "--write-gb-s", "10", "--json", str(tmp_path / "fast.json")) == 0
    fast = json.loads((tmp_path / "fast.json").read_text())["rows"][0]
    assert fast["saving"] == pytest.approx(row["saving"] / 10)


def test_both_shipped_recipes_keep_97_percent_at_a_failure_a_day(tmp_path, capsys):
    for name in ("base", "large"):
        config = str(REPOSITORY / "slurm" / f"pretrain_{name}.yaml")
        words = ["--config", config, "--machine", MACHINE, "--utilization", "0.4", "--gpus", "1024"]
        assert run(*words, "--failures-per-day", "1", "--json", str(tmp_path / "plan.json")) == 0
        row = json.loads((tmp_path / "plan.json").read_text())["rows"][0]
        assert 0.97 < row["goodput"] < 1
        assert f"| {row['goodput']:.2%} |" in capsys.readouterr().out
    assert run(*words, "--failures-per-day", "1", "--restart-minutes", "60", "--json", str(tmp_path / "plan.json")) == 0
    assert json.loads((tmp_path / "plan.json").read_text())["rows"][0]["goodput"] < row["goodput"]
    with pytest.raises(ValueError, match="nothing would be kept"):
        run(*words, "--failures-per-day", "1000000")
