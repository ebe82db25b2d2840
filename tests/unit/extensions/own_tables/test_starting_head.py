"""A training on a table keeps the head of the model that it starts from by the names of its labels."""

import pytest
import torch
from huggingface_hub import constants

from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.cli import main
from roberta_plugin.experiments.finetuning_plan import GRID
from roberta_plugin.experiments.sweeps.grid import read_grid
from tests.first_runs import train
from tests.tiny_conversions import HEAD, exported, write_checkpoint

TABLES = {
    "classification": (
        "t.csv",
        "text,label\n" + "".join(f"good {n},{['yes', 'perhaps', 'no'][n % 3]}\n" for n in range(12)),
    ),
    "tagging": ("t.conll", "".join(f"good {['B-POOR', 'I-POOR', 'B-ZONE'][n % 3]}\nbad O\n\n" for n in range(12))),
}


@pytest.mark.parametrize(
    ("kind", "to", "labels", "rows", "said"),
    [
        ("classification", "huggingface", ["yes", "no", "perhaps"], [2, 0, 1], "('no', 'perhaps', 'yes'), and is put "),
        (
            "tagging",
            "",
            ["O", "B-POOR", "I-POOR", "B-ZONE", "I-ZONE"],
            [0, 3, 4],
            "'B-ZONE', 'I-ZONE' begin untrained.",
        ),
    ],
)
def test_a_fine_tuning_begins_with_the_rows_of_its_labels(tmp_path, monkeypatch, capsys, kind, to, labels, rows, said):
    """By `roberta finetune --model`, from our own checkpoint or a folder of Hugging Face."""
    monkeypatch.setattr(constants, "HF_ASSETS_CACHE", str(tmp_path / "assets"))
    model = write_checkpoint(tmp_path / "model", kind, max_positions=30)
    if to:
        exported(model, tmp_path / "exported", to)
    name, table = TABLES[kind]
    (tmp_path / name).write_text(table)
    words = ["finetune", "custom", "--kind", kind, "--train", tmp_path / name, "--valid", tmp_path / name]
    words += ["--output-dir", tmp_path / "run", "--model", tmp_path / "exported" if to else model]
    words += ["--labels", *labels, "--quick", "--only", "lr=1e-12"]
    assert main([*map(str, words), "--set", "max-update=1", "--grid-only"]) == 0
    assert said in capsys.readouterr().out
    grid = read_grid(tmp_path / "run" / GRID)
    train(grid.runs[0].arguments_in(tmp_path / "run" / "one", grid.metric))
    before, after = (
        load_state(model / "model.pt"),
        load_state(tmp_path / "run" / "one" / "checkpoints" / "checkpoint_last.pt"),
    )
    head = "token_heads.token_head" if kind == "tagging" else f"classification_heads.{HEAD}"
    weight = after["model"][f"{head}.out_proj.weight"]
    assert len(weight) == len(labels)
    for part in ("weight", "bias"):
        ours, theirs = (state["model"][f"{head}.out_proj.{part}"] for state in (after, before))
        torch.testing.assert_close(ours[: len(rows)], theirs[rows], atol=1e-6, rtol=0)
