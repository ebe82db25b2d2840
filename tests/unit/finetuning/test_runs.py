"""From the paper's recipe to a grid file: what may be changed, what may not, and that the sweep reads it."""

import pytest

from roberta_plugin.cluster.grid import read_grid
from roberta_plugin.finetuning.runs import as_yaml, grid_of
from roberta_plugin.finetuning.suites import Recipe

RECIPE = Recipe(
    train={"task": "race", "weight-decay": "0.1"},
    axes={
        "lr": ["1e-5", "2e-5"],
        "batch": {"16": {"batch-size": "16", "max-update": "9"}, "32": {"batch-size": "32"}},
    },
    seeds=("1", "2", "3"),
    metric={"log": "valid", "value": "accuracy", "goal": "max", "at": "best"},
)
MODEL = {"arch": "fast_roberta", "encoder-layers": "2"}


def grid(tmp_path, **changes):
    given = {"checkpoint": tmp_path / "model.pt", "changes": {}, "only": {}, "seeds": None, "slurm": {}}
    content = grid_of(RECIPE, data=tmp_path, model=MODEL, **{**given, **changes})
    (tmp_path / "grid.yaml").write_text(as_yaml(content))
    return read_grid(tmp_path / "grid.yaml")


def test_the_grid_is_the_recipe_with_the_model(tmp_path):
    found = grid(tmp_path)
    assert len(found.cells) == 4
    assert len(found.runs) == 12
    words = found.runs[0].words
    assert words[0] == str(tmp_path)
    for option, value in {
        "--arch": "fast_roberta",
        "--lr": "1e-5",
        "--batch-size": "16",
        "--weight-decay": "0.1",
    }.items():
        assert words[words.index(option) + 1] == value
    assert words[words.index("--finetune-from-model") + 1] == str(tmp_path / "model.pt")
    assert "--finetune-from-model" not in grid(tmp_path, checkpoint=None).runs[0].words


def test_one_value_of_an_axis_other_seeds_and_other_options_can_be_chosen(tmp_path):
    found = grid(
        tmp_path,
        only={"lr": "3e-4", "batch": "32"},
        seeds=["7"],
        changes={"weight-decay": "0.01"},
        slurm={"partition": "gpu"},
    )
    (run,) = found.runs
    assert run.seed == "7"
    assert run.words[run.words.index("--lr") + 1] == "3e-4"
    assert run.words[run.words.index("--weight-decay") + 1] == "0.01"
    assert "--max-update" not in run.words
    assert found.slurm == {"partition": "gpu"}


def test_a_batch_can_be_cut_to_what_a_gpu_holds(tmp_path):
    changes = {"batch-size": "4", "update-freq": "4"}
    run = grid(tmp_path, only={"batch": "16", "lr": "1e-5"}, changes=changes, seeds=["1"]).runs[0]
    for option, value in {"--batch-size": "4", "--update-freq": "4", "--max-update": "9"}.items():
        assert run.words.count(option) == 1
        assert run.words[run.words.index(option) + 1] == value


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"only": {"seed": "1"}}, "--only seed=1: the recipe has no such axis; it has lr, batch"),
        ({"only": {"batch": "64"}}, "--only batch=64: the axis has the labels 16, 32"),
        ({"changes": {"batch-size": "8"}}, "--set batch-size: the axis batch .* by --only batch=... first"),
        ({"changes": {"lr": "1"}}, "--set lr: the axis lr .* by --only lr=... instead"),
    ],
)
def test_what_cannot_be_chosen_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        grid(tmp_path, **changes)
