"""`roberta plan`: the table and the JSON file."""

import argparse
import json

import pytest

from roberta_plugin.cli import plan
from tests.conftest import REPOSITORY


def run(*words):
    parser = argparse.ArgumentParser()
    plan.add_parser(parser.add_subparsers())
    args = parser.parse_args(["plan", *words])
    return args.run(args)


def test_table_and_json_agree(tmp_path, capsys):
    config = str(REPOSITORY / "slurm" / "pretrain_large.yaml")
    words = ["--config", config, "--machine", "v100", "--tokens-per-second", "15000", "--gpus", "8", "1024"]
    assert run(*words, "--json", str(tmp_path / "plan.json")) == 0
    text = capsys.readouterr().out
    facts = json.loads((tmp_path / "plan.json").read_text())
    assert "355.4 M parameters" in text
    rows = [line for line in text.splitlines() if line.startswith(("| 8 |", "| 1,024 |"))]
    assert len(rows) == len(facts["rows"]) == 2
    assert "| 8 x 1 |" in rows[1]
    assert f"| {facts['rows'][1]['days']:.3g} |" in rows[1]


def test_an_unknown_machine_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"--machine must be one of v100, .*, got 'tpu'"):
        run("--config", str(tmp_path / "x.yaml"), "--machine", "tpu")
