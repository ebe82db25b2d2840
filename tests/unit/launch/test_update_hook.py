"""After an update: fairseq's own step, a stop in its place, or a checkpoint more."""

import functools
import os
import signal
from types import SimpleNamespace

import fairseq_cli.train
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.logging import metrics
from omegaconf import OmegaConf

from roberta_plugin.fairseq_workarounds import hooks, stopping
from roberta_plugin.launch import update_hook
from roberta_plugin.launch.job import STOP_SIGNALS
from roberta_plugin.launch.run_folder import read_status
from roberta_plugin.launch.update_hook import Speed, UpdateHook, agree
from roberta_plugin.stop_signals import StopSignals


class Run:
    """A hook, and what it calls."""

    def __init__(self, folder, monkeypatch, *, checkpoint_minutes=0.0, max_update=100):
        self.saved, self.fairseqs = [], []
        monkeypatch.setattr(fairseq_cli.train, "validate_and_save", self.validate_and_save)
        monkeypatch.setattr(fairseq_cli.train, "validate", self.validate)
        self.validation_batches, self.validated, self.signal_in_batch = 0, 0, None
        monkeypatch.setattr(checkpoint_utils, "save_checkpoint", self.save_checkpoint)
        self.folder = folder
        self.stop = StopSignals(STOP_SIGNALS)
        self.hook = UpdateHook(
            self.stop, output_dir=folder, job_id="7", checkpoint_minutes=checkpoint_minutes, is_master=True
        )
        self.config = OmegaConf.create(
            {
                "optimization": {"max_update": max_update, "max_epoch": 0, "stop_time_hours": 0},
                "checkpoint": {"save_interval_updates": 50, "no_save_optimizer_state": False},
            }
        )

    def validate(self, cfg, trainer, task, epoch_itr, subsets):
        for _ in range(self.validation_batches):
            trainer.valid_step("batch")
        return [1.5]

    def valid_step(self, sample):
        self.validated += 1
        if self.validated == self.signal_in_batch:
            os.kill(os.getpid(), signal.SIGUSR2)

    def validate_and_save(self, cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch):
        self.fairseqs.append(trainer.get_num_updates())
        if self.validation_batches:
            loss = fairseq_cli.train.validate(cfg, trainer, task, epoch_itr, valid_subsets)[0]
            return [loss], trainer.get_num_updates() >= self.config.optimization.max_update
        return [1.5], trainer.get_num_updates() >= self.config.optimization.max_update

    def save_checkpoint(self, cfg, trainer, epoch_itr, loss):
        self.saved.append((trainer.get_num_updates(), cfg.save_interval_updates, loss))
        self.left = getattr(trainer, "unfinished_update", None)

    def update(self, number, *, end_of_epoch=False):
        """What fairseq's loop does after an update."""
        trainer = SimpleNamespace(
            cfg=self.config, get_num_updates=lambda: number, device=torch.device("cpu"), valid_step=self.valid_step
        )
        return fairseq_cli.train.validate_and_save(
            self.config, trainer, None, SimpleNamespace(epoch=1), ["valid"], end_of_epoch
        )


@pytest.fixture
def run(tmp_path, monkeypatch):
    return Run(tmp_path, monkeypatch)


def test_without_a_signal_fairseq_does_what_it_does(run):
    with run.hook:
        assert run.update(7) == ([1.5], False)
    assert (run.fairseqs, run.saved) == ([7], [])
    assert run.update(8) == ([1.5], False)
    assert run.fairseqs == [7, 8]
    assert read_status(run.folder).update == 7


def test_the_listeners_of_the_plugin_stay_and_come_after_the_hook(run, monkeypatch):
    called = []

    def listener(fairseqs, *args):
        called.append(run.hook.update)
        return fairseqs(*args)

    with hooks.listening(fairseq_cli.train, "validate_and_save", listener), run.hook:
        run.update(7)
    assert called == [7]


def test_what_a_checkpoint_has_counts_before_the_first_update(run, monkeypatch):
    monkeypatch.setattr(checkpoint_utils, "load_checkpoint", lambda cfg, trainer, **options: options)
    hook = UpdateHook(run.stop, output_dir=run.folder, job_id="7", checkpoint_minutes=0, is_master=True)
    trainer = SimpleNamespace(get_num_updates=lambda: 100, cfg=run.config)
    with hook:
        assert checkpoint_utils.load_checkpoint(None, trainer, a=1) == {"a": 1}
        hook.write_status("finished")
    found = read_status(run.folder)
    assert (found.phase, found.update, found.max_update) == ("finished", 100, 100)


def test_a_signal_ends_the_training_with_one_checkpoint_and_no_validation(run):
    with run.stop, run.hook:
        os.kill(os.getpid(), signal.SIGTERM)
        assert run.update(7) == ([None], True)
    assert (run.fairseqs, run.saved) == ([], [(7, 50, None)])
    assert run.hook.has_stopped
    assert run.hook.update == 7


def test_at_the_end_of_an_epoch_its_validation_is_left_to_the_next_start(run):
    with run.stop, run.hook:
        os.kill(os.getpid(), signal.SIGTERM)
        assert run.update(7, end_of_epoch=True) == ([None], True)
    assert (run.fairseqs, run.saved) == ([], [(7, 50, None)])
    assert run.left == {"epoch": 1, "end_of_epoch": True}


def test_after_the_last_update_there_is_nothing_to_stop(run):
    with run.stop, run.hook:
        os.kill(os.getpid(), signal.SIGTERM)
        assert run.update(100) == ([1.5], True)
    assert not run.hook.has_stopped
    assert (run.fairseqs, run.saved) == ([100], [])


@pytest.mark.parametrize("end_of_epoch", [False, True])
def test_a_stop_in_a_validation_leaves_it_and_saves_without_a_loss(run, end_of_epoch):
    run.validation_batches, run.signal_in_batch = 50, 3
    with run.stop, run.hook:
        assert run.update(7, end_of_epoch=end_of_epoch) == ([None], True)
    assert run.left == {"epoch": 1, "end_of_epoch": end_of_epoch}
    assert run.validated == 3, "the signal was noticed too late"
    assert run.saved == [(7, 50, None)]
    assert run.hook.has_stopped


def test_the_handling_of_signals_in_a_plain_training_stands_aside(run, monkeypatch):
    """In a job it is installed between the hook and fairseq, and would take the stop in the validation for its own."""
    between = functools.partial(stopping.validate_and_save, run.validate_and_save)
    monkeypatch.setattr(fairseq_cli.train, "validate_and_save", between)
    run.validation_batches, run.signal_in_batch = 50, 3
    with run.stop, run.hook:
        assert run.update(7) == ([None], True)
    assert run.validated == 3
    assert run.hook.has_stopped
    assert run.saved == [(7, 50, None)]


def test_the_last_validation_is_finished_whatever_comes(run):
    run.validation_batches, run.signal_in_batch = 50, 3
    with run.stop, run.hook:
        assert run.update(100) == ([1.5], True)
    assert run.validated == 50
    assert not run.hook.has_stopped


def test_without_a_signal_a_validation_is_whole(run):
    run.validation_batches = 5
    with run.stop, run.hook:
        assert run.update(7) == ([1.5], False)
    assert run.validated == 5
    assert fairseq_cli.train.validate == run.validate


def test_the_clock_saves_a_checkpoint_of_its_own_name(tmp_path, monkeypatch):
    run = Run(tmp_path, monkeypatch, checkpoint_minutes=10)
    now = [1000.0]
    monkeypatch.setattr(update_hook.time, "monotonic", lambda: now[0])
    run.hook._saved_at = now[0]
    with run.hook:
        run.update(1)
        now[0] += 599
        run.update(2)
        now[0] += 2
        run.update(3)
        run.update(4)
        now[0] += 601
        run.update(5, end_of_epoch=True)
        run.update(6)
    assert run.saved == [(3, 1, None), (6, 1, None)]
    assert run.config.checkpoint.save_interval_updates == 50
    assert run.fairseqs == [1, 2, 3, 4, 5, 6]


@pytest.fixture
def speed(monkeypatch):
    """Returns a Speed, its clock, and a function that logs an update of `masked` predicted tokens as fairseq does."""
    now = [50.0]
    monkeypatch.setattr(update_hook.time, "monotonic", lambda: now[0])
    metrics.reset()
    speed = Speed()

    def log(loss, tokens, masked):
        with metrics.aggregate("train"):
            metrics.log_scalar("loss", loss, weight=masked)
            metrics.log_scalar("wpb", tokens)
        speed.count()

    yield speed, now, log
    metrics.reset()


def test_loss_and_speed_are_those_since_the_last_look(speed):
    speed, now, log = speed
    log(8.0, 100, 15)
    speed.measure(1)
    assert (speed.loss, speed.updates_per_second) == (8.0, None)
    now[0] += 4
    log(4.0, 3000, 450)
    log(2.0, 5000, 750)
    speed.measure(3)
    assert (speed.loss, speed.updates_per_second, speed.tokens_per_second) == (2.75, 0.5, 2000.0)


@pytest.mark.parametrize("updates_before", [7, 1])
def test_the_loss_is_right_although_epochs_are_shorter_than_the_interval(speed, updates_before):
    """fairseq has reset its sums; those of the new epoch are smaller or larger than the old ones at the last look."""
    speed, now, log = speed
    for _ in range(updates_before):
        log(7.0, 100, 15)
    speed.measure(updates_before)
    now[0] += 10
    for _ in range(2):  # two whole epochs
        log(6.0, 100, 15)
        metrics.reset_meters("train")
    for _ in range(2):
        log(5.0, 200, 30)
    speed.measure(updates_before + 4)
    assert speed.loss == pytest.approx((2 * 6.0 * 100 + 2 * 5.0 * 200) / 600)
    assert speed.tokens_per_second == 60


def test_a_single_rank_agrees_with_itself():
    assert agree([True, False], device=torch.device("cpu")) == [True, False]
