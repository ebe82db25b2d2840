"""A checkpoint with a value that no training has written is refused by the name of its entry."""

import copy
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from roberta_plugin.fairseq_workarounds.saved_state import check_moments, check_options, check_state
from tests.refusals import refused

WEIGHT = torch.zeros(3, 2)
STATE = {
    "model": {"weight": WEIGHT, "version": torch.tensor([3])},
    "task_state": {},
    "optimizer_history": [{"num_updates": 7, "lr_scheduler_state": {"best": None}}],
    "extra_state": {
        "best": torch.tensor(2.5),
        "val_loss": None,
        "train_iterator": {"epoch": 2, "iterations_in_epoch": 0, "blocks_in_epoch": 0},
        "previous_training_time": 12.5,
        "patience": {"best": 2.5, "num_runs": 1},
        "unfinished_update": {"epoch": 1, "end_of_epoch": False},
        "metrics": [],
    },
    "last_optimizer_state": {"state": {0: {"exp_avg": WEIGHT, "exp_avg_sq": WEIGHT}}},
}
OF_MODEL = {"weight": WEIGHT, "version": torch.tensor([3])}


def test_what_trainings_write_passes():
    check_state(STATE, Path("a.pt"), parameters=OF_MODEL)
    of_ranks = copy.deepcopy(STATE)  # which share their times
    of_ranks["extra_state"]["previous_training_time"] = torch.tensor(12.5, dtype=torch.float64)
    check_state(of_ranks, Path("a.pt"), parameters=OF_MODEL)
    check_moments(STATE["last_optimizer_state"], Path("a.pt"), parameters=[WEIGHT])
    check_options(OmegaConf.create({"task": {"data": "a", "lr": [1, 2]}, "model": {"note": "$x {y}"}}), "a.pt")
    check_options(None, "a.pt")


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("optimizer_history.0.num_updates", "7", "optimizer_history.num_updates must be a whole number, and is '7'"),
        ("optimizer_history.0.num_updates", -7, "num_updates must be a whole number, and is '-7'"),
        ("extra_state.best", "x", "extra_state.best must be a number, and is 'x'"),
        ("extra_state.unfinished_update", "x", "unfinished_update must be a dictionary"),
        ("extra_state.unfinished_update", {"epoch": 3}, "extra_state.unfinished_update does not have end_of_epoch"),
        ("extra_state.train_iterator.blocks_in_epoch", "x", "blocks_in_epoch must be a whole number, and is 'x'"),
        ("extra_state.train_iterator", 5, "train_iterator must be a dictionary, and is '5'"),
        ("extra_state.previous_training_time", float("nan"), "must be a number of seconds, and is 'nan'"),
        ("extra_state.previous_training_time", torch.tensor(-1.0), "must be a number of seconds, and is a tensor"),
        ("task_state", 5, "task_state must be a dictionary"),
        ("model.weight", WEIGHT.to(torch.int8), "weight has numbers of the type torch.int8"),
        ("model.weight", torch.tensor(1.0), "weight has 0 dimensions, not 2"),
        ("model.weight", "x", "weight is 'x', not a plain tensor"),
    ],
)
def test_another_value_is_refused_by_the_name_of_its_entry(place, value, said):
    state = copy.deepcopy(STATE)
    *keys, last = place.split(".")
    entry = state
    for key in keys:
        entry = entry[int(key) if key.isdecimal() else key]
    entry[last] = value
    refused(f"^a.pt: .*{said}.*bring this one back", check_state, state, Path("a.pt"), parameters=OF_MODEL)


@pytest.mark.parametrize(("moment", "said"), [(WEIGHT * torch.nan, "NaN or infinite"), (torch.tensor(0.0), "no shape")])
def test_moments_that_are_no_numbers_or_have_no_shape_are_refused(moment, said):
    state = {"state": {0: {"exp_avg": WEIGHT, "exp_avg_sq": moment}}}
    refused(
        f"the optimizer's exp_avg_sq of parameter 0 (holds|has) {said}",
        check_moments,
        state,
        Path("a"),
        parameters=[WEIGHT],
    )


def test_options_that_read_the_environment_are_refused_without_its_value(monkeypatch):
    monkeypatch.setenv("SECRET_OF_TEST", "s3cret")
    config = OmegaConf.create({"model": {"names": ["${oc.env:SECRET_OF_TEST}"]}})
    said = refused("^a.pt: the option model.names is .*reads the environment", check_options, config, "a.pt")
    assert "s3cret" not in said
