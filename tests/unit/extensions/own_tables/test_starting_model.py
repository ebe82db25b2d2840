"""A fine-tuning goes on with what its model says of itself: pooling, length, what is read of long texts."""

import json

import pytest
import torch

from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.cli import main
from roberta_plugin.finetuning.identity import KEY
from roberta_plugin.finetuning.prepared import Prepared
from tests.tiny_conversions import write_checkpoint

VECTORS = {"pooling": "first", "normalize": True, "max_length": 12}
WINDOWS = {"long_texts": "windows", "window_stride": 4, "max_windows": 3, "window_pooling": "max", "max_length": 12}
TABLES = {
    "embedding": "text,text_pair,label\n" + "".join(f"good {n} so it is,bad {n} or not,{n % 2}\n" for n in range(24)),
    "classification": "text,label\n" + "".join(f"good {n} so it is,{'ab'[n % 2]}\n" for n in range(24)),
}


def write_model(folder, settings, *, kind="masked_lm"):
    model = write_checkpoint(folder, kind, max_positions=30)
    state = load_state(model / "model.pt")
    state["task_state"] = {KEY: {"task": "", "settings": settings}}
    torch.save(state, model / "model.pt")
    return model


def plan(folder, kind, model, *options):
    """What `roberta finetune` prepares, without training."""
    table = folder / f"{kind}.csv"
    table.write_text(TABLES[kind])
    words = ["finetune", "custom", "--kind", kind, "--train", table, "--model", model, "--output-dir", folder / "run"]
    words += ["--text-pair-column", "text_pair", "--label-column", "label"] if kind == "embedding" else []
    code = main([*map(str, words), "--quick", "--grid-only", *options])
    return code, Prepared.open(folder / "run" / "data").settings


@pytest.mark.parametrize(
    ("kind", "trained", "options", "expected", "said"),
    [
        ("embedding", VECTORS, [], VECTORS, "takes over --pooling first, --normalize, --max-length 12 from "),
        (
            "embedding",
            VECTORS,
            ["--pooling", "max", "--no-normalize", "--max-length", "20"],
            {"pooling": "max", "normalize": False, "max_length": 20},
            "--max-length 20 (--max-length 12), --normalize not given (--normalize), --pooling max (--pooling first).",
        ),
        ("embedding", {}, [], {"pooling": "mean", "normalize": False, "max_length": 30}, ""),
        ("embedding", {"max_length": 12, "kind": "classification"}, [], {"pooling": "mean", "max_length": 30}, ""),
        (
            "classification",
            {"kind": "classification", **WINDOWS},
            [],
            WINDOWS,
            "takes over --max-length 12, --long-texts wind",
        ),
        (
            "classification",
            {"kind": "classification", **WINDOWS},
            ["--long-texts", "tail"],
            {"long_texts": "tail", "window_stride": None, "window_pooling": None, "max_length": 12},
            "--long-texts tail (--long-texts windows)",
        ),
        ("classification", VECTORS, [], {"long_texts": None, "max_length": 30}, ""),
    ],
)
def test_what_the_model_says_of_itself_is_taken_over_where_no_option_says_otherwise(
    tmp_path, capsys, kind, trained, options, expected, said
):
    model = write_model(tmp_path / "model", trained)
    for _ in range(2):  # the second time the folder is there
        code, settings = plan(tmp_path, kind, model, *options)
        assert code == 0
        assert {name: settings[name] for name in expected} == expected
        found = capsys.readouterr().out
        assert said in found if said else "--max-length" not in found and "--pooling" not in found


def test_a_folder_that_was_prepared_otherwise_is_used_and_what_differs_is_said(tmp_path, capsys):
    plain, vectors = write_model(tmp_path / "plain", {}), write_model(tmp_path / "model", VECTORS)
    assert plan(tmp_path, "embedding", plain)[0] == 0
    (tmp_path / "run" / "start.json").unlink()
    code, settings = plan(tmp_path, "embedding", vectors)
    assert (code, settings["pooling"]) == (0, "mean")
    assert "--pooling mean (--pooling first)" in capsys.readouterr().out
    words = ["--data", tmp_path / "run" / "data", "--output-dir", tmp_path / "results", "--device", "cpu"]
    assert main(["evaluate", *map(str, words), "--checkpoint", str(vectors)]) == 2
    assert "makes other vectors than" in (said := capsys.readouterr().err)
    assert "--pooling was first and is mean now" in said and "--normalize was True and is False now" in said
    assert main(["evaluate", *map(str, words), "--checkpoint", str(plain)]) == 0
    assert json.loads((tmp_path / "results" / "evaluation_valid.json").read_text())["ensemble"]
