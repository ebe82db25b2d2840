"""A training keeps the head of the model that it starts from by the names of its labels, not by its shape."""

from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.cli import main
from roberta_plugin.experiments.finetuning_plan import GRID
from roberta_plugin.experiments.sweeps.grid import read_grid
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.identity import rows_by_name
from roberta_plugin.finetuning.kinds import kind_class
from roberta_plugin.finetuning.starting_head import named_labels, starting_head, take_over_head
from tests.first_runs import train
from tests.tiny_conversions import HEAD, exported, write_checkpoint

PATH = Path("model.pt")


@pytest.mark.parametrize(
    ("theirs", "ours", "rows"),
    [
        (["no", "yes"], ["yes", "no"], [1, 0]),
        (["YES", "no"], ["no", "perhaps", "yes"], [1, None, 0]),
        (["a", "A"], ["A", "a"], [1, 0]),
        (["a", "A"], ["a", "\u00e4"], [0, None]),
        (["A", "a\u0308"], ["a", "A"], [None, 0]),  # the row of A is that of A
        (["stra\u00dfe"], ["STRASSE"], [0]),
        (["LABEL_0"], ["no"], [None]),
        ([], ["no"], [None]),
    ],
)
def test_rows_are_found_by_names(theirs, ours, rows):
    assert rows_by_name(theirs, ours) == rows


def state_with(kind, labels, *, name=HEAD, num_rows=None, task="made up"):
    rows = num_rows or len(labels)
    weight = torch.arange(rows * 2.0).view(rows, 2)
    prefix = f"{kind.head}_heads.{name}."
    settings = {"labels": labels} if labels else {}
    return {
        "model": {f"{prefix}out_proj.weight": weight, f"{prefix}out_proj.bias": weight[:, 0], f"{prefix}dense.bias": 1},
        "cfg": {"task": {}, "model": {}},
        "task_state": {identity.KEY: {"task": task, "settings": settings}},
    }


TAGS = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]


@pytest.mark.parametrize(
    ("name", "theirs", "ours", "rows", "said"),
    [
        ("classification", ["a", "b", "c"], ["a", "b", "c"], [0, 1, 2], ""),
        ("classification", ["a", "b", "c"], ["C", "a", "b"], [2, 0, 1], "is kept. It has the labels of model.pt"),
        ("classification", ["a", "b", "c"], ["a", "b", "d"], [], "untrained: model.pt has the labels 'a', 'b', 'c', "),
        ("classification", ["a", "b", "c"], ["a", "b"], [], "begins untrained"),
        ("classification", ["LABEL_0", "LABEL_1"], ["a", "b"], [], "'LABEL_0', 'LABEL_1', and the data 'a', 'b'."),
        ("classification", [], ["a", "b"], [], "does not name the 2 labels of its own. `roberta import model.pt"),
        ("multi_label", ["joy", "fear"], ["fear", "joy"], [1, 0], "is kept"),
        ("multi_label", ["joy", "fear"], ["rage", "joy"], [None, 0], "rows of 'joy' are kept, by their names. 'rage' "),
        ("tagging", TAGS, ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"], [0, 3, 4, 1, 2], "is kept"),
        ("tagging", TAGS, ["O", "B-PER", "I-PER", "B-ZONE", "I-ZONE"], [0, 3, 4, None, None], "'I-ZONE' begin untrai"),
        (
            "tagging",
            TAGS,
            ["O", "B-PER", "I-PER"],
            [0, 3, 4],
            "rows of 'O', 'B-PER', 'I-PER' are kept, by their names.",
        ),
        ("tagging", TAGS, ["O", "B-ZONE", "I-ZONE"], [], "begins untrained"),
    ],
)
def test_a_head_begins_with_the_rows_of_its_labels(name, theirs, ours, rows, said):
    kind = kind_class(name)({"labels": ours})
    state = state_with(kind, theirs, num_rows=len(theirs) or 2)
    found = starting_head(state, kind, HEAD, checkpoint=PATH)
    assert found.rows == rows
    assert said in found.line if said else not found.line
    prefix = f"{kind.head}_heads.{HEAD}."
    fresh = {
        f"{prefix}out_proj.weight": torch.full((len(ours), 2), -1.0),
        f"{prefix}out_proj.bias": -torch.ones(len(ours)),
    }
    take_over_head(state, kind, HEAD, fresh=fresh, checkpoint=PATH)
    if not rows:
        assert not state["model"], "a new head has nothing of it"
        return
    bias = [-1.0 if row is None else 2.0 * row for row in rows]
    assert state["model"][f"{prefix}out_proj.bias"].tolist() == bias
    assert state["model"][f"{prefix}out_proj.weight"][:, 0].tolist() == bias
    assert state["model"][f"{prefix}dense.bias"] == 1


def test_a_head_of_another_name_is_taken_if_it_is_the_only_one():
    kind = kind_class("classification")({"labels": ["entailment", "neutral", "contradiction"]})
    state = state_with(kind, [], name="mnli", num_rows=3)
    take_over_head(state, kind, HEAD, fresh={}, checkpoint=PATH)
    assert state["model"][f"classification_heads.{HEAD}.out_proj.bias"].tolist() == [4, 2, 0]
    two = state_with(kind, [], name="mnli", num_rows=3)
    two["model"]["classification_heads.other.out_proj.weight"] = torch.zeros(2, 2)
    assert starting_head(two, kind, HEAD, checkpoint=PATH) is None
    assert starting_head(state, kind_class("regression")({}), HEAD, checkpoint=PATH) is None


def test_labels_of_fairseqs_checkpoints_are_in_the_folder_of_their_data_also_from_another_current_folder(tmp_path):
    (tmp_path / "RTE-bin" / "label").mkdir(parents=True)
    (tmp_path / "RTE-bin" / "label" / "dict.txt").write_text("not_entailment 9\nentailment 7\nmadeupword0000 0\n")
    state = {"cfg": {"task": {"_name": "sentence_prediction", "data": "RTE-bin"}, "model": {}}}
    found = named_labels(state, "any", num_labels=2, checkpoint=tmp_path / "checkpoints" / "checkpoint_best.pt")
    assert found == ("not_entailment", "entailment")
    assert named_labels(state, "any", num_labels=2) == ()


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
