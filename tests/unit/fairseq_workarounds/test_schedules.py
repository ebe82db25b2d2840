"""A training that is killed after an epoch's checkpoint, or within an epoch, goes on with the rates of the whole one."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.optim import FairseqOptimizer
from fairseq.optim.lr_scheduler.polynomial_decay_schedule import (
    PolynomialDecayLRSchedule,
    PolynomialDecayLRScheduleConfig,
)
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import (
    ReduceLROnPlateauLRSchedule,
    ReduceLROnPlateauLRScheduleConfig,
)
from fairseq.trainer import Trainer

from roberta_plugin.fairseq_workarounds import schedules
from roberta_plugin.fairseq_workarounds.resuming import forget_other_metric
from tests.refusals import refused

LOSSES = [3.0, 2.0, 1.9, 1.95, 1.0, 0.99, 1.0, 0.98]  # one at the end of each epoch of three updates
UPDATES = 3


class Training:
    """fairseq's calls of the scheduler in a training, whose checkpoint is all that a resumed one gets."""

    get_lr = Trainer.get_lr
    lr_step = Trainer.lr_step
    lr_step_update = Trainer.lr_step_update

    def __init__(self, make):
        inner = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        self.optimizer = FairseqOptimizer(SimpleNamespace())
        self.optimizer._optimizer = inner
        self.lr_scheduler = make(self.optimizer)
        self.updates, self.rates = 0, []
        self.lr_scheduler.step_update(0)

    def get_num_updates(self):
        return self.updates

    def train(self, *, begin, first=0, stop=None):
        """Train from update `first` of an epoch on; the checkpoint at the update `stop`, or at the end of the epochs."""
        for epoch in range(begin, len(LOSSES) + 1):
            self.lr_scheduler.step_begin_epoch(epoch)
            self.lr_step_update()
            for number in range(first, UPDATES):
                self.rates.append(self.optimizer.get_lr())
                self.updates += 1
                self.lr_step_update()
                if self.updates == stop:
                    return self.checkpoint(epoch, number + 1)
            first = 0
            self.lr_step(epoch, LOSSES[epoch - 1])
        return self.checkpoint(epoch, UPDATES)

    def checkpoint(self, epoch, iterations):
        is_end = iterations == UPDATES
        position = {"version": 2, "epoch": epoch + is_end, "iterations_in_epoch": 0 if is_end else iterations}
        return {
            "updates": self.updates,
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.lr_scheduler.state_dict(),
            "extra_state": {"train_iterator": position, "val_loss": LOSSES[epoch - 1] if is_end else 7.0},
        }

    def load(self, checkpoint):
        """As `Trainer.load_checkpoint` and `checkpoint_utils.load_checkpoint` do."""

        def fairseqs(*_):
            self.lr_scheduler.load_state_dict(checkpoint["scheduler"])
            self.optimizer.load_state_dict(checkpoint["optimizer"])
            self.updates = checkpoint["updates"]
            self.lr_step_update()
            self.lr_step(checkpoint["extra_state"]["train_iterator"]["epoch"])
            return checkpoint["extra_state"]

        position = schedules.load_trainer(fairseqs, self, "checkpoint_last.pt")["train_iterator"]
        self.lr_step(position["epoch"])
        return {"begin": position["epoch"], "first": position["iterations_in_epoch"]}


def plateau(**options):
    config = ReduceLROnPlateauLRScheduleConfig(lr_shrink=0.5, lr_threshold=0.1, lr=[0.1], **options)
    config.maximize_best_checkpoint_metric = False
    return lambda optimizer: ReduceLROnPlateauLRSchedule(config, optimizer)


def polynomial(**options):
    config = PolynomialDecayLRScheduleConfig(total_num_update=30, lr=[0.1], **options)
    return lambda optimizer: PolynomialDecayLRSchedule(config, optimizer)


SCHEDULES = {
    "plateau": plateau(),
    "plateau, patience": plateau(lr_patience=1),
    "plateau, warm-up": plateau(lr_patience=1, warmup_updates=4),
    "polynomial": polynomial(warmup_updates=2),
    "polynomial, annealed": polynomial(warmup_updates=2, force_anneal=3),
}


@pytest.mark.parametrize("make", SCHEDULES.values(), ids=SCHEDULES)
def test_a_resumed_training_has_the_rates_of_the_whole_one_wherever_it_was_killed(make):
    whole = Training(make)
    whole.train(begin=1)
    assert len(set(whole.rates)) > 2
    for stop in range(1, len(LOSSES) * UPDATES):
        killed, resumed = Training(make), Training(make)
        checkpoint = killed.train(begin=1, stop=stop)
        resumed.train(**resumed.load(checkpoint))
        assert killed.rates + resumed.rates == whole.rates, f"killed after update {stop}"
        assert resumed.lr_scheduler.state_dict() == whole.lr_scheduler.state_dict()


def test_a_checkpoint_without_the_count_of_epochs_says_so_where_it_matters(caplog):
    for patience, is_said in ((0, False), (2, True)):
        scheduler = Training(plateau(lr_patience=patience)).lr_scheduler
        scheduler.load_state_dict({"best": 2.0, "last_epoch": 3})
        assert ("no count of epochs without improvement" in caplog.text) is is_said


def trainer_of(metric, scheduler="fixed", *, is_reset=False):
    checkpoint = SimpleNamespace(
        best_checkpoint_metric=metric, maximize_best_checkpoint_metric=False, reset_lr_scheduler=is_reset
    )
    return SimpleNamespace(cfg=SimpleNamespace(checkpoint=checkpoint, lr_scheduler=SimpleNamespace(_name=scheduler)))


def test_the_best_value_of_another_metric_is_forgotten_and_a_rate_that_follows_it_refused(caplog):
    saved = {"best_checkpoint_metric": "loss", "maximize_best_checkpoint_metric": False}
    state = {"cfg": {"checkpoint": saved}, "extra_state": {"best": 2.0, "val_loss": 2.5}}
    forget_other_metric(trainer_of("loss"), state, "a.pt")
    assert state["extra_state"] == {"best": 2.0, "val_loss": 2.5}
    follows = trainer_of("ppl", "reduce_lr_on_plateau")
    refused(
        "follows another metric .loss, smallest first.*--reset-lr-scheduler", forget_other_metric, follows, state, "a"
    )
    forget_other_metric(trainer_of("ppl", "reduce_lr_on_plateau", is_reset=True), state, "a.pt")
    assert state["extra_state"] == {"val_loss": None}
    assert "the best by ppl" in caplog.text
