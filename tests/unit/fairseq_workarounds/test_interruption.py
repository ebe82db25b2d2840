"""When a signal is noted, when it acts as ever, and how all ranks hear of it."""

import os
import signal
from types import SimpleNamespace

import pytest
from fairseq import checkpoint_utils
from omegaconf import OmegaConf

from roberta_plugin.fairseq_workarounds import interruption as module
from roberta_plugin.fairseq_workarounds.interruption import STOPS, Interruption, announce, farewell, hear


@pytest.fixture
def interruption(monkeypatch):
    """Signals taken over, as in fairseq-train; given back at the end."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    fresh = Interruption()
    monkeypatch.setattr(module, "interruption", fresh)
    fresh.begin()
    yield fresh
    fresh.end()
    for number, handler in handlers.items():
        signal.signal(number, handler)


def trainer(*, updates=7, ranks=1, announces_stops=True):
    task = SimpleNamespace(announces_stops=announces_stops)
    return SimpleNamespace(get_num_updates=lambda: updates, data_parallel_world_size=ranks, task=task)


def press(number=signal.SIGINT):
    os.kill(os.getpid(), number)


def test_before_the_training_loop_ctrl_c_is_as_ever(interruption):
    with pytest.raises(KeyboardInterrupt):
        press()


def test_within_it_the_first_ctrl_c_is_noted_and_the_second_stops_at_once(interruption, capfd):
    with interruption.training(trainer()):
        press()
        assert interruption.received is signal.SIGINT
        assert "a second Ctrl-C stops at once" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            press()


def test_sigterm_after_ctrl_c_is_no_second_one(interruption):
    """`roberta demo` and supervisors send it to make sure."""
    with interruption.training(trainer()):
        press()
        press(signal.SIGTERM)
        press(signal.SIGTERM)
    assert interruption.received is signal.SIGINT


def test_nobody_has_to_listen(interruption, monkeypatch):
    """The death of `roberta demo` closes the pipe that a training writes to, and sends it SIGTERM."""

    def fail(descriptor, data):
        raise BrokenPipeError

    with interruption.training(trainer()):
        monkeypatch.setattr(module.os, "write", fail)
        press(signal.SIGTERM)
    assert interruption.received is signal.SIGTERM


def test_a_task_that_would_not_tell_other_ranks_is_not_stopped(interruption):
    with interruption.training(trainer(ranks=2, announces_stops=False)), pytest.raises(KeyboardInterrupt):
        press()


def test_signals_that_somebody_else_handles_are_left_alone(interruption):
    interruption.end()
    seen = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    other = Interruption()
    other.begin()
    with other.training(trainer()):
        press(signal.SIGTERM)
    assert (seen, other.received) == ([signal.SIGTERM], None)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_ctrl_c_stays_ignored_under_nohup(interruption):
    interruption.end()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interruption.begin()
    with interruption.training(trainer()):
        press()
        assert interruption.received is None
        press(signal.SIGTERM)
        assert interruption.received is signal.SIGTERM


def test_all_ranks_hear_of_the_signal_of_one(interruption):
    """The logging outputs of an update are summed over ranks, or collected; validation's have no such key."""
    with interruption.training(trainer(ranks=2)):
        assert announce({"loss": 2.0}) == {"loss": 2.0, STOPS: 0.0}
        hear([{STOPS: 0.0}])
        hear([{"loss": 1.0}])
        assert not interruption.is_to_stop(trainer(ranks=2))
        press(signal.SIGTERM)
        assert not interruption.is_to_stop(trainer(ranks=2)), "others do not know yet, and would wait for this rank"
        assert announce({})[STOPS] == 1.0
        hear([{STOPS: 0.0}, {STOPS: 3.0}])
        hear([{STOPS: 0.0}])
        assert interruption.is_to_stop(trainer(ranks=2))


@pytest.mark.parametrize(
    ("updates", "end_of_epoch", "is_stopped"), [(7, False, True), (7, True, False), (100, False, False)]
)
def test_a_stop_saves_without_validation_and_not_where_fairseq_has_its_own_to_do(
    interruption, monkeypatch, updates, end_of_epoch, is_stopped
):
    saved = []
    monkeypatch.setattr(checkpoint_utils, "save_checkpoint", lambda *arguments: saved.append(arguments))
    cfg = OmegaConf.create({"optimization": {"max_update": 100}, "checkpoint": {"no_save": False}})
    with interruption.training(trainer()):
        press()
        result = module.validate_and_save(
            lambda *arguments: "fairseq's", cfg, trainer(updates=updates), None, None, ["valid"], end_of_epoch
        )
    assert result == (([None], True) if is_stopped else "fairseq's")
    assert len(saved) == interruption.has_stopped == is_stopped


def test_the_last_words_say_how_to_go_on(interruption):
    with interruption.training(trainer()):
        press()
    checkpoint = SimpleNamespace(no_save=False, no_last_checkpoints=False, save_dir="runs/books")
    expected = "Stopped by SIGINT after update 81, which is saved in runs/books/checkpoint_last.pt: the same command"
    assert farewell(checkpoint, updates=81).startswith(expected)
    checkpoint.no_save = True
    assert "which is not saved: --no-save" in farewell(checkpoint, updates=81)
