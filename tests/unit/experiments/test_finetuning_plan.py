"""From the paper's recipe to a grid file: what may be changed, what may not, and that the sweep reads it."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from roberta_plugin.experiments.finetuning_grid import tuning_grid
from roberta_plugin.experiments.finetuning_plan import FinetunePlan
from roberta_plugin.experiments.settings import TuningSettings
from roberta_plugin.experiments.starting_model import Start, check_positions
from roberta_plugin.experiments.sweeps.grid import read_grid
from roberta_plugin.fairseq_workarounds.divergence import explain
from roberta_plugin.finetuning.preparation import DataSettings
from roberta_plugin.launch.resources import Resources
from tests.tiny_benchmarks import write_prepared

BATCH = ("batch-size", "update-freq")
MODEL = {"arch": "fast_roberta", "encoder-layers": "2", "max-positions": "30"}


def settings(tmp_path, **changes):
    return TuningSettings(task="made", output_dir=tmp_path, **changes)


def start_at(checkpoint, **options):
    return Start(checkpoint, {}, {**MODEL, **options}, {}, num_symbols=9, is_fine_tuned=False)


def grid(tmp_path, *, num_gpus=1, **changes):
    start, prepared = start_at(tmp_path / "model.pt"), write_prepared(tmp_path / "set")
    made = tuning_grid(settings(tmp_path, **changes), prepared, start, path=tmp_path / "grid.yaml", num_gpus=num_gpus)
    made.write()
    assert read_grid(made.path) == made, "what is written is what is trained"
    return made


def test_the_grid_is_the_recipe_with_the_model(tmp_path):
    found = grid(tmp_path)
    assert len(found.cells) == 6
    assert len(found.runs) == 30
    words = found.runs[0].arguments
    assert words[0] == str(tmp_path / "set")
    for option, value in {
        "--arch": "fast_roberta",
        "--lr": "1e-5",
        "--batch-size": "16",
        "--weight-decay": "0.1",
        "--finetune-from-model": str(tmp_path / "model.pt"),
    }.items():
        assert words[words.index(option) + 1] == value


def test_a_path_keeps_every_character(tmp_path):
    folder = tmp_path / "\N{GRINNING FACE} \u00e9, a:b"
    folder.mkdir()
    assert grid(folder).runs[0].arguments[0] == str(folder / "set")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "other"}, "--set data=other: give --data"),
        ({"task": "made-plain"}, "--set task=made-plain: it follows"),
        ({"finetune-from-model": "a.pt"}, "give --model"),
        ({"max-sentences": "4"}, "other name for batch-size"),
        ({"encoder-layers": "7"}, r"the architecture is the pretrained model's \(2\)"),
        ({"attention-window": "64"}, r"the architecture is the pretrained model's\."),
    ],
)
def test_what_other_settings_determine_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        grid(tmp_path, train_options=changes)


def test_one_value_of_an_axis_other_seeds_and_other_options_can_be_chosen(tmp_path):
    found = grid(
        tmp_path,
        only={"lr": "3e-4", "batch": "32"},
        seeds=[7],
        train_options={"weight-decay": "0.01"},
        slurm=Resources(partition="gpu"),
    )
    (run,) = found.runs
    assert run.seed == "7"
    assert run.arguments[run.arguments.index("--lr") + 1] == "3e-4"
    assert run.arguments[run.arguments.index("--weight-decay") + 1] == "0.01"
    assert found.slurm.partition == "gpu"


@pytest.mark.parametrize(
    ("num_ranks", "changes", "sizes_of_16"),
    [
        (1, {}, ("16", "1")),
        (8, {}, ("2", "1")),
        (1, {"batch-size": "4"}, ("4", "4")),
        (2, {"batch-size": "4"}, ("4", "2")),
        (1, {"update-freq": "2"}, ("8", "2")),
        (4, {"batch-size": "2", "update-freq": "2"}, ("2", "2")),
    ],
)
def test_a_cell_has_its_batch_and_updates_however_many_ranks_share_it(tmp_path, num_ranks, changes, sizes_of_16):
    only = {"lr": "1e-5", **({"batch": "16"} if len(changes) == 2 else {})}
    runs = grid(tmp_path, num_gpus=num_ranks, train_options=changes, only=only, seeds=["1"]).runs
    assert len(runs) == 2 - (len(changes) == 2)
    for run in runs:
        words = [run.arguments[run.arguments.index(f"--{name}") + 1] for name in (*BATCH, "distributed-world-size")]
        assert [run.arguments.count(f"--{name}") for name in BATCH] == [1, 1]
        assert math.prod(map(int, words)) == int(run.settings["batch"])
        assert int(words[2]) == num_ranks
    assert tuple(runs[0].arguments[runs[0].arguments.index(f"--{name}") + 1] for name in BATCH) == sizes_of_16
    assert runs[0].arguments[runs[0].arguments.index("--max-update") + 1] == "30"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"only": {"seed": "1"}}, "--only seed=1: the recipe has no such axis; it has lr, batch"),
        ({"only": {"lr": "1e-4,"}}, "--only lr=1e-4,: a value is empty"),
        ({"train_options": {"max-update": "8"}}, "--set max-update: the axis batch .* by --only batch=... first"),
        (
            {"train_options": {"batch-size": "5"}},
            "batch of 16 examples cannot be divided among 1 GPU per run x batch-size 5",
        ),
        ({"train_options": {"batch-size": "x"}}, "batch-size must be a whole number from 1 on, got 'x'"),
        ({"train_options": {"batch-size": "4", "update-freq": "2"}}, "batch-size x GPUs x update-freq must be 16"),
        ({"num_gpus": 5}, "batch of 16 examples cannot be divided among 5 GPUs per run"),
        ({"train_options": {"max-tokens": "4000"}}, "--set max-tokens=4000: the paper counts a batch in examples"),
        ({"train_options": {"distributed-world-size": "2"}}, "give --gpus-per-run"),
        ({"train_options": {"train-subset": "valid"}}, "--set train-subset=valid: runs are trained on the split train"),
        ({"train_options": {"lr": "1"}}, "--set lr: the axis lr .* by --only lr=... instead"),
    ],
)
def test_what_cannot_be_chosen_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        grid(tmp_path, **changes)


def test_options_of_their_own_are_options_of_fairseq_train(tmp_path):
    def options(**changes):
        return settings(tmp_path, **changes).options_of_runs

    found = options(patience=3, label_smoothing=0.1, train_options={"patience": "3", "bf16": "true"})
    assert found == {"patience": "3", "bf16": "true", "label-smoothing": "0.1"}
    with pytest.raises(ValueError, match="--patience 3 and --set patience=5 contradict each other"):
        options(patience=3, train_options={"patience": "5"})
    for name in ("max-epoch", "max-update"):
        with pytest.raises(ValueError, match=f"--epochs 3 and --set {name}=7 both say how long a run is"):
            options(epochs=3, train_options={name: "7"})


def test_only_rotary_positions_read_longer_texts_than_the_pretraining(tmp_path):
    """The model of the fine-tuning then has as many positions as its longest text."""
    learned = start_at(tmp_path / "model.pt", **{"max-positions": "128"})
    rotary = start_at(tmp_path / "model.pt", **{"max-positions": "128", "position-encoding": "rotary"})
    with pytest.raises(ValueError, match=r"--max-length 300: .* has 128 positions\. Give at most that"):
        check_positions(learned, DataSettings(task="made", max_length=300))
    check_positions(rotary, DataSettings(task="made", max_length=300))
    weights = {"finetune-from-model": str(tmp_path / "model.pt")}
    assert rotary.train_options(300) == {**rotary.options, "max-positions": "300", **weights}
    assert rotary.train_options(64) == {**rotary.options, **weights}
    assert replace(rotary, from_scratch=True).train_options(64) == rotary.options


def test_a_start_reads_its_weights_once_for_their_hash(tmp_path):
    start = Start(tmp_path / "model.pt", {"model": {"a": torch.ones(2)}}, {}, {}, num_symbols=9, is_fine_tuned=False)
    other = replace(start, state={"model": {"a": torch.zeros(2)}})
    found = start.sha256
    start.state["model"].clear()
    assert start.sha256 == found != other.sha256


def test_what_fairseq_train_advises_has_the_options_of_this_command(tmp_path):
    """A training that diverged advised a lower --lr, which `roberta finetune` lacks."""
    made = grid(tmp_path)
    plan = FinetunePlan(settings=settings(tmp_path), prepared=None, grid=made, gpus_per_run=0)
    trainer = SimpleNamespace(
        cfg=SimpleNamespace(
            optimization=SimpleNamespace(lr=[5.0], clip_norm=0.0),
            lr_scheduler=SimpleNamespace(warmup_updates=6),
            common=SimpleNamespace(fp16=True),
            checkpoint=SimpleNamespace(save_dir=str(tmp_path)),
        ),
        get_lr=lambda: 5.0,
    )
    others = "--odd-one stays, give another --save-dir, --max-update 3"
    said = plan.in_own_options(f"exit code 1: {explain(trainer, 'NaN', update=7)}; {others}")
    assert "a lower --only lr=... (now 5;" in said and "(--set warmup-updates=..., now 6)" in said
    assert "--set clip-norm=1, or --set bf16=true instead of --set fp16=true" in said
    assert said.endswith("--odd-one stays, give another --output-dir, --epochs 3")
