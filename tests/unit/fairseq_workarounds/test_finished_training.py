"""A training that has reached its limits makes no update."""

import logging
from types import SimpleNamespace

import pytest

from roberta_plugin.fairseq_workarounds.finished_training import load_checkpoint, train, why_finished


def config(*, max_update=0, stop_time_hours=0, max_epoch=0):
    limits = SimpleNamespace(max_update=max_update, stop_time_hours=stop_time_hours, max_epoch=max_epoch)
    return SimpleNamespace(optimization=limits)


@pytest.mark.parametrize(
    ("limits", "updates", "hours", "said"),
    [
        ({"max_update": 90}, 89, 5, None),
        ({"max_update": 90}, 90, 5, "the checkpoint has 90 updates, and --max-update is 90"),
        ({"max_update": 90}, 91, 5, "the checkpoint has 91 updates, and --max-update is 90"),
        ({}, 91, 5, None),
        ({"stop_time_hours": 5}, 10, 5, None),
        ({"stop_time_hours": 5}, 10, 5.1, "the checkpoint has 5.1 hours of training, and --stop-time-hours is 5"),
        ({"stop_time_hours": 5}, 0, 5.1, None),  # the hours are of the model that a fine-tuning starts from
    ],
)
def test_limits_are_those_of_fairseq(limits, updates, hours, said):
    assert why_finished(config(**limits), updates=updates, hours=hours) == said


def trained(cfg, *, updates, caplog):
    calls = []
    trainer = SimpleNamespace(get_num_updates=lambda: updates, _previous_training_time=0.0)
    with caplog.at_level(logging.INFO):
        result = train(lambda *arguments: calls.append(arguments) or "an epoch", cfg, trainer, None, None)
    return calls, result


def test_a_finished_training_skips_fairseqs_loop_and_says_so(caplog):
    calls, result = trained(config(max_update=90), updates=90, caplog=caplog)
    assert (calls, result) == ([], ([None], True))
    assert "This training is finished" in caplog.text


def test_an_unfinished_one_goes_through_it(caplog):
    calls, result = trained(config(max_update=91), updates=90, caplog=caplog)
    assert (len(calls), result) == (1, "an epoch")
    assert "finished" not in caplog.text


@pytest.mark.parametrize(("next_epoch", "is_said"), [(3, False), (4, True)])
def test_max_epoch_is_said(next_epoch, is_said, caplog):
    trainer = SimpleNamespace(cfg=config(max_epoch=3))
    loaded = ({}, SimpleNamespace(next_epoch_idx=next_epoch))
    with caplog.at_level(logging.INFO):
        assert load_checkpoint(lambda *arguments: loaded, None, trainer) == loaded
    assert ("has 3 epochs, and --max-epoch is 3" in caplog.text) == is_said
