"""A training that has reached its limits makes no update."""

import logging
from types import SimpleNamespace

import fairseq_cli.train
import pytest

from roberta_plugin.fairseq_workarounds.finished_training import (
    load_checkpoint,
    load_trainer,
    restore_patience,
    save_trainer,
    train,
    why_finished,
)


def config(*, max_update=0, stop_time_hours=0, max_epoch=0, patience=0, metric="loss"):
    limits = SimpleNamespace(max_update=max_update, stop_time_hours=stop_time_hours, max_epoch=max_epoch)
    checkpoint = SimpleNamespace(
        patience=patience, best_checkpoint_metric=metric, maximize_best_checkpoint_metric=False
    )
    return SimpleNamespace(optimization=limits, checkpoint=checkpoint)


@pytest.fixture
def validations():
    """fairseq's count of validations for --patience, empty at first and at the end."""
    restore_patience(config().checkpoint, {})
    yield fairseq_cli.train.should_stop_early
    restore_patience(config().checkpoint, {})


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


def saved_state(cfg):
    return save_trainer(
        lambda trainer, filename, extra_state: extra_state, SimpleNamespace(cfg=cfg), "a.pt", {"best": 2}
    )


def test_the_count_of_patience_is_saved_and_restored(validations, caplog):
    cfg = config(patience=2)
    assert saved_state(cfg) == {"best": 2}
    assert [validations(cfg, loss) for loss in (3.0, 2.0, 2.5)] == [False, False, False]
    state = saved_state(cfg)
    assert state["patience"] == {"best": 2.0, "num_runs": 1, "metric": "loss", "is_maximized": False}
    restore_patience(cfg.checkpoint, {})
    assert not hasattr(validations, "best")
    assert (
        load_trainer(lambda *arguments, **options: state, SimpleNamespace(cfg=cfg), "a.pt", reset_meters=False) == state
    )
    assert why_finished(cfg, updates=10, hours=1) is None
    assert validations(cfg, 2.5), "the second validation that is no better"
    assert "early stop: no improvement in the last 2 validations" in why_finished(cfg, updates=10, hours=1)
    assert why_finished(config(patience=3), updates=10, hours=1) is None
    calls, result = trained(cfg, updates=10, caplog=caplog)
    assert (calls, result) == ([], ([None], True))


@pytest.mark.parametrize("options", [{"reset_optimizer": True}, {"reset_meters": True}, {"metric": "accuracy"}])
def test_the_count_is_that_of_this_training_and_metric(validations, options):
    validations(config(patience=2), 3.0)
    state = saved_state(config(patience=2))
    cfg = config(patience=2, metric=options.pop("metric", "loss"))
    load_trainer(lambda *arguments, **options: state, SimpleNamespace(cfg=cfg), "a.pt", **options)
    assert not hasattr(validations, "best")


def test_what_a_stop_has_left_comes_first(caplog):
    trainer = SimpleNamespace(get_num_updates=lambda: 90, _previous_training_time=0.0, unfinished_update={"epoch": 1})
    assert train(lambda *arguments: "an epoch", config(max_update=90), trainer, None, None) == "an epoch"
