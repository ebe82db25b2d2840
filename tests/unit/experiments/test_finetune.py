"""The settings of the procedure from Python, and folds; the procedure itself is in unit/cli and integration/extensions/test_finetune.py."""

import dataclasses
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch

from roberta_plugin.experiments.evaluation import Evaluation
from roberta_plugin.experiments.finetune import (
    FinetuneSettings,
    fold_rows,
    fold_table,
)
from roberta_plugin.experiments.inference import run_model
from roberta_plugin.finetuning.examples_dataset import ExamplesDataset
from roberta_plugin.finetuning.kinds import kind_class
from roberta_plugin.launch.resources import Resources
from tests.made_extension.benchmark import MadeOptions
from tests.tiny_benchmarks import write_prepared

REQUIRED = {"model": Path("model.pt"), "output_dir": Path("out")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "rte"}, "There is no fine-tuning task 'rte'; there are .*made, made-too, "),
        ({"slurm": Resources()}, "--slurm needs a time limit"),
        ({"options": MadeOptions()}, "made-plain has TaskOptions, got MadeOptions"),
    ],
)
def test_settings_that_cannot_work_are_refused_when_they_are_made(changes, message):
    with pytest.raises(ValueError, match=message):
        FinetuneSettings(**{"task": "made-plain", **REQUIRED, **changes})


@pytest.mark.parametrize(
    ("task", "folder", "name"),
    [
        ("made", "runs/large", "made-large"),
        ("made", "runs/made-2/", "made-2"),
        ("made", "runs/mine/fold-1-of-5", "made-mine-fold-1-of-5"),
    ],
)
def test_squeue_shows_the_task_and_the_folder(task, folder, name):
    """And not `runs`, the folder below it that the sweep writes to."""
    assert FinetuneSettings(task=task, model=Path("model.pt"), output_dir=Path(folder)).job_name == name


def evaluation(split, **median):
    return Evaluation(task="made", split=split, members=[], median=median, ensemble={})


def test_mean_and_spread_are_those_of_the_folds():
    folds = [
        [evaluation("valid", accuracy=80.0), evaluation("test", accuracy=70.0)],
        [evaluation("valid", accuracy=90.0)],
    ]
    (row,) = fold_rows(folds)
    assert (row["split"], row["mean"], row["smallest"], row["largest"], row["folds"]) == ("valid", 85.0, 80.0, 90.0, 2)
    assert row["deviation"] == pytest.approx(7.0711, abs=1e-4)
    assert "| valid | accuracy | 85.0 | 7.1 | 80.0 to 90.0 | 2 |" in fold_table([row])


def test_folds_stand_beside_the_mean_of_their_baselines(tmp_path):
    folds = [
        [
            dataclasses.replace(
                evaluation("valid", accuracy=80.0), baseline={"accuracy": 60.0}, tf_idf={"accuracy": 81.0}
            )
        ],
        [
            dataclasses.replace(
                evaluation("valid", accuracy=90.0), baseline={"accuracy": 70.0}, tf_idf={"accuracy": 84.0}
            )
        ],
    ]
    (row,) = fold_rows(folds)
    assert (row["baseline"], row["tf_idf"]) == (65.0, 82.5)
    head, _, line = fold_table([row]).strip().splitlines()
    assert head.endswith("| folds | baseline | TF-IDF |") and line.endswith("| 2 | 65.0 | 82.5 |")


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("set") / "set", num_examples=30).split("valid")


class Sums(torch.nn.Module):
    """The score of a token is its id; that of a sequence, the sum of its ids."""

    def forward(self, tokens):
        return tokens.masked_fill(tokens.eq(1), 0).float()


@pytest.mark.parametrize("max_tokens", [1, 200, 100_000])
def test_every_sequence_has_its_own_outputs(split, max_tokens):
    def outputs(model, sample):
        sums = model(sample["net_input"]["src_tokens"]).sum(dim=1)
        return torch.stack([sums, -sums], dim=1)

    vocabulary = type("Vocabulary", (), {"pad_id": 1, "__len__": lambda self: 300})()
    training = Namespace(inputs_class=ExamplesDataset)
    task = Namespace(vocabulary=vocabulary, outputs=outputs, training=training, kind=kind_class("made")({}))
    found = run_model(Sums(), task, split, max_tokens=max_tokens)
    sums = np.array([int(split.sequences[number].sum()) for number in range(len(split.sequences))])
    assert len(sums) > 40
    assert found.logits.tolist() == np.stack([sums, -sums], axis=1).tolist()
