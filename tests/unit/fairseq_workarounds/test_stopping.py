"""A signal stops all ranks after an update, and what that leaves of the update is done at the next start."""

import os
import signal
from types import SimpleNamespace

import pytest
from fairseq import checkpoint_utils
from omegaconf import OmegaConf

from roberta_plugin.fairseq_workarounds import stopping
from roberta_plugin.fairseq_workarounds.stopping import STOPS, Interruption, add_stop, farewell, note_stop

SAVING = {"no_save": False, "no_last_checkpoints": False, "save_dir": "runs", "save_interval_updates": 5}
LIMITS = {"max_update": 100, "max_epoch": 2, "stop_time_hours": 0}
CONFIG = OmegaConf.create({"optimization": LIMITS, "checkpoint": {**SAVING, "write_checkpoints_asynchronously": False}})


@pytest.fixture
def interruption(monkeypatch):
    """Signals taken over, as in fairseq-train; given back at the end."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    fresh = Interruption()
    monkeypatch.setattr(stopping, "interruption", fresh)
    fresh.begin()
    yield fresh
    fresh.end()
    for number, handler in handlers.items():
        signal.signal(number, handler)


def trainer(*, updates=7, ranks=1, announces_stops=True, valid_step=None):
    task = SimpleNamespace(announces_stops=announces_stops, valid_step=lambda sample: (2.0, 1, {"loss": 2.0}))
    made = SimpleNamespace(get_num_updates=lambda: updates, data_parallel_world_size=ranks, task=task)
    made.valid_step, made.begin_epoch = valid_step, lambda epoch: None
    made.cfg = SimpleNamespace(checkpoint=SimpleNamespace(no_save_optimizer_state=False))
    return made


def press(number=signal.SIGINT):
    os.kill(os.getpid(), number)


def test_within_it_the_first_ctrl_c_is_noted_and_the_second_stops_at_once(interruption, capfd):
    with interruption.training(trainer()):
        press()
        assert interruption.received is signal.SIGINT
        assert "a second Ctrl-C stops at once" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            press()


@pytest.mark.parametrize("presses", [1, 2])
def test_a_second_training_of_the_process_begins_without_the_stop_of_the_first(interruption, presses):
    """As in a notebook that calls `fairseq_cli.train.main` twice, past `call_main`, which would give signals back."""

    def epoch(*_):
        for _ in range(presses):
            press()
        interruption.note_stop()
        return [None], True

    resumed = trainer()
    config = OmegaConf.merge(CONFIG, {"checkpoint": {"no_save": True}})
    begins = SimpleNamespace(epoch=1, next_epoch_idx=2)
    stopping.load_checkpoint(lambda *_: None, config, resumed)
    with pytest.raises(SystemExit if presses == 1 else KeyboardInterrupt):
        stopping.train(epoch, config, resumed, None, begins)
    stopping.load_checkpoint(lambda *_: None, config, resumed)
    assert not interruption.received and not interruption.is_to_stop(resumed)
    assert stopping.train(lambda *_: ([1.5], False), config, resumed, None, begins) == ([1.5], False)
    press()
    assert interruption.is_to_stop(resumed)


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
        monkeypatch.setattr(stopping.os, "write", fail)
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_closed_terminal_saves_as_ctrl_c_does_and_what_nohup_ignores_stays_ignored(interruption, number):
    with interruption.training(trainer()):
        press(number)
        assert interruption.received is number
    interruption.end()
    signal.signal(number, signal.SIG_IGN)
    interruption.begin()
    with interruption.training(trainer()):
        press(number)
        assert interruption.received is None
        press(signal.SIGTERM)
        assert interruption.received is signal.SIGTERM


def test_all_ranks_hear_of_the_signal_of_one(interruption):
    """The logging outputs of an update are summed over ranks, or collected; validation's have no such key."""
    with interruption.training(trainer(ranks=2)):
        assert add_stop({"loss": 2.0}) == {"loss": 2.0, STOPS: 0.0}
        note_stop([{STOPS: 0.0}])
        note_stop([{"loss": 1.0}])
        assert not interruption.is_to_stop(trainer(ranks=2))
        press(signal.SIGTERM)
        assert not interruption.is_to_stop(trainer(ranks=2)), "others do not know yet, and would wait for this rank"
        assert add_stop({})[STOPS] == 1.0
        note_stop([{STOPS: 0.0}, {STOPS: 3.0}])
        note_stop([{STOPS: 0.0}])
        assert interruption.is_to_stop(trainer(ranks=2))


@pytest.fixture
def saved(monkeypatch):
    """What the checkpoints say is left to do."""
    notes = []
    keep = lambda cfg, trainer, *rest: notes.append(trainer.unfinished_update)  # noqa: E731
    monkeypatch.setattr(checkpoint_utils, "save_checkpoint", keep)
    return notes


@pytest.mark.parametrize(
    ("updates", "epoch", "end_of_epoch", "is_stopped"),
    [(7, 1, False, True), (7, 1, True, True), (7, 2, False, True), (7, 2, True, False), (100, 1, False, False)],
)
def test_a_stop_saves_without_validation_but_not_after_the_last_update(
    interruption, saved, updates, epoch, end_of_epoch, is_stopped
):
    stopped, epoch_itr = trainer(updates=updates), SimpleNamespace(epoch=epoch)
    given = CONFIG, stopped, None, epoch_itr, ["valid"], end_of_epoch
    with interruption.training(stopped):
        press()
        result = stopping.validate_and_save(lambda *arguments: "fairseq's", *given)
    assert result == (([None], True) if is_stopped else "fairseq's")
    assert saved == ([{"epoch": epoch, "end_of_epoch": end_of_epoch}] if is_stopped else [])
    assert interruption.has_stopped == is_stopped


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_validation_is_left_at_the_batch_at_which_all_ranks_know(interruption, saved, ranks):
    batches = []

    def valid_step(sample):
        batches.append(sample)
        if sample == 3:
            press(signal.SIGTERM)
        *_, logging_output = validating.task.valid_step(sample)
        if ranks > 1:  # as RobertaTask.reduce_metrics does, on all ranks
            assert logging_output == {"loss": 2.0, STOPS: float(sample >= 3)}
            note_stop([logging_output])

    validating = trainer(ranks=ranks, valid_step=valid_step)

    def validate(*arguments):
        for sample in range(1, 100):
            validating.valid_step(sample)

    own_step = validating.task.valid_step
    given = CONFIG, validating, None, SimpleNamespace(epoch=1), ["valid"], False
    with interruption.training(validating):
        assert stopping.validate_and_save(validate, *given) == ([None], True)
    assert batches == [1, 2, 3]
    assert saved == [{"epoch": 1, "end_of_epoch": False}]
    assert (validating.valid_step, validating.task.valid_step) == (valid_step, own_step)


def test_a_signal_between_two_epochs_stops_before_the_first_update(interruption, monkeypatch):
    saved = []
    monkeypatch.setattr(checkpoint_utils, "save_checkpoint", lambda cfg, *rest: saved.append(cfg.save_interval_updates))
    stopped = trainer()

    def fairseqs(cfg, trainer, task, epoch_itr):
        trainer.begin_epoch(epoch_itr.next_epoch_idx - 1)
        assert epoch_itr.next_epoch_idx == 2, "an update of the second epoch was made"
        return [None], False

    assert stopping.train(fairseqs, CONFIG, stopped, None, SimpleNamespace(next_epoch_idx=2)) == ([None], False)
    press()  # while fairseq makes the next epoch's batches
    with pytest.raises(SystemExit) as end:
        stopping.train(fairseqs, CONFIG, stopped, None, SimpleNamespace(next_epoch_idx=3))
    assert (saved, end.value.code) == ([0], 130)


@pytest.mark.parametrize("when", ["before", "after an error", "after --max-update", "after --max-epoch"])
def test_outside_the_training_loop_ctrl_c_is_as_ever(interruption, when):
    if when == "after an error":
        with pytest.raises(MemoryError), interruption.training(trainer()):
            raise MemoryError
    elif when != "before":
        is_done, next_epoch = (True, 2) if when == "after --max-update" else (False, 3)
        begins = SimpleNamespace(next_epoch_idx=next_epoch)
        stopping.train(lambda *arguments: ([None], is_done), CONFIG, trainer(), None, begins)
    with pytest.raises(KeyboardInterrupt):
        press()


def test_the_last_words_say_how_to_go_on(interruption):
    with interruption.training(trainer()):
        press()
    checkpoint = SimpleNamespace(no_save=False, no_last_checkpoints=False, save_dir="runs/books")
    expected = "Stopped by SIGINT after update 81, which is saved in runs/books/checkpoint_last.pt: the same command"
    assert farewell(checkpoint, updates=81).startswith(expected)
    checkpoint.no_save = True
    assert "which is not saved: --no-save" in farewell(checkpoint, updates=81)


VALIDATION = SimpleNamespace(dataset=SimpleNamespace(valid_subset="valid,valid1"))
calls = []


def validate_and_save(cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch):
    """Called by name, as in fairseq_cli.train."""
    calls.append((epoch_itr.epoch, epoch_itr.end_of_epoch(), epoch_itr.state_dict(), valid_subsets, end_of_epoch))
    return [1.5], trainer.is_done


def fairseqs(cfg, trainer, task, epoch_itr):
    trainer.begin_epoch(epoch_itr.epoch)
    calls.append("updates")
    return [2.5], False


@pytest.fixture
def resumed():
    calls.clear()
    made = SimpleNamespace(begin_epoch=lambda epoch: calls.append(f"begin {epoch}"), is_done=False)
    made.lr_step = lambda epoch, loss: calls.append(f"lr {epoch} {loss}")
    return made


def trained(resumed, number):
    """What `train_after_unfinished_update` returns in this epoch."""
    return stopping.train_after_unfinished_update(fairseqs, VALIDATION, resumed, None, epoch(number))


def epoch(number):
    return SimpleNamespace(epoch=number, end_of_epoch=lambda: False, state_dict=lambda: {"epoch": number})


def test_without_a_note_nothing_changes(resumed):
    begin = resumed.begin_epoch
    assert trained(resumed, 1) == ([2.5], False)
    assert (calls, resumed.begin_epoch) == (["begin 1", "updates"], begin)


def test_an_update_within_an_epoch_is_finished_first_and_once_and_may_be_the_last(resumed):
    finished = (1, False, {"epoch": 1}, ["valid", "valid1"], False)
    resumed.unfinished_update = note = {"epoch": 1, "end_of_epoch": False}
    for _ in range(2):
        assert trained(resumed, 1) == ([2.5], False)
    assert calls == ["begin 1", finished, "updates", "begin 1", "updates"]
    resumed.unfinished_update, resumed.is_done = note, True
    assert trained(resumed, 1) == ([1.5], True)
    assert calls[5:] == ["begin 1", finished]


def test_the_end_of_an_epoch_has_its_own_number_and_the_learning_rate_its_loss(resumed):
    resumed.unfinished_update = {"epoch": 1, "end_of_epoch": True}
    trained(resumed, 2)
    assert calls == ["begin 2", (1, True, {"epoch": 2}, ["valid", "valid1"], True), "lr 1 1.5", "updates"]


@pytest.mark.parametrize(
    ("updates", "number", "end_of_epoch", "expected"),
    [(9, 2, False, False), (9, 2, True, True), (9, 1, True, False), (10, 1, False, True)],
)
def test_the_last_update_is_that_of_max_update_or_max_epoch_or_stop_time_hours(updates, number, end_of_epoch, expected):
    limits = SimpleNamespace(max_update=10, max_epoch=2, stop_time_hours=3)
    cfg = SimpleNamespace(optimization=limits)
    trainer = SimpleNamespace(get_num_updates=lambda: updates, cumulative_training_time=lambda: 3 * 3600)
    assert stopping.is_last_update(cfg, trainer, epoch(number), end_of_epoch=end_of_epoch) == expected
    limits.stop_time_hours = 2
    assert stopping.is_last_update(cfg, trainer, epoch(number), end_of_epoch=end_of_epoch)
