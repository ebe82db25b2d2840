"""With --background-checkpoints updates go on while a checkpoint is written, and all else is as without it."""

import errno
import logging
import os
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.trainer import Trainer

from roberta_plugin.fairseq_workarounds import background_checkpoints, checkpoints
from roberta_plugin.fairseq_workarounds.background_checkpoints import writer


class TrainerStandIn:
    """A trainer whose state is one weight and the number of updates; saves by fairseq's own method."""

    save_checkpoint = Trainer.save_checkpoint
    is_fsdp = always_call_state_dict_during_save_checkpoint = False
    checkpoint_suffix = ""

    def __init__(self, *, is_on=True, dtype=torch.float32, rank=0):
        checkpoint = SimpleNamespace(write_checkpoints_asynchronously=False, best_checkpoint_metric="loss")
        sharding = SimpleNamespace(zero_sharding="none")
        task = SimpleNamespace(background_checkpoints=is_on)
        self.cfg = SimpleNamespace(task=task, checkpoint=checkpoint, distributed_training=sharding)
        checkpoint.maximize_best_checkpoint_metric = checkpoint.no_save = checkpoint.no_save_optimizer_state = False
        self.task = SimpleNamespace()
        self.weight, self.updates, self.meters = torch.full((1000,), 1.0, dtype=dtype), 0, {"loss": [0.0]}
        self.should_save_checkpoint_on_current_rank = rank == 0
        self.data_parallel_rank = rank
        self.threads = []

    def update(self):
        self.updates += 1
        self.weight.add_(1)
        self.meters["loss"][0] += 1

    def get_num_updates(self):
        return self.updates

    def consolidate_optimizer(self):
        self.threads.append(threading.current_thread())

    def state_dict(self):
        self.threads.append(threading.current_thread())
        extra = {"meters": self.meters}
        return {"model": {"w": self.weight}, "updates": self.updates, "extra_state": extra}


EPOCH = SimpleNamespace(epoch=1, end_of_epoch=lambda: False, state_dict=lambda: {"epoch": 1})


@pytest.fixture(autouse=True)
def as_new(monkeypatch):
    monkeypatch.setattr(checkpoints, "RETRY_AFTER", ())
    yield
    writer.abandon()
    for thread in threading.enumerate():
        if thread.name == "checkpoint":  # of an abandoned save, whose gate is open now
            thread.join()
    for name in list(vars(checkpoint_utils.save_checkpoint)):
        if name == "best":
            del checkpoint_utils.save_checkpoint.best


@pytest.fixture
def gate(monkeypatch):
    """Holds up every write, after its temporary file was opened, until it is opened."""
    held, may_go_on, real = threading.Event(), threading.Event(), torch.save

    def save(state, file):
        held.set()
        assert may_go_on.wait(60)
        real(state, file)

    monkeypatch.setattr(torch, "save", save)
    yield SimpleNamespace(held=held, open=may_go_on.set)
    may_go_on.set()


def config(folder, **options):
    values = {"save_dir": str(folder), "save_interval_updates": 1, "no_epoch_checkpoints": True, **options}
    return CheckpointConfig(**values)


def save(trainer, folder, loss=None, **options):
    trainer.update()
    return checkpoint_utils.save_checkpoint(config(folder, **options), trainer, EPOCH, loss)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_files_with_the_same_bytes(tmp_path, dtype):
    """Last, best, the best two and the last two of five, as fairseq has them."""
    found = []
    for is_on in (False, True):
        folder, trainer = tmp_path / str(is_on), TrainerStandIn(is_on=is_on, dtype=dtype)
        state = np.random.get_state()[1].tolist()
        for loss in (5.0, 3.0, 4.0, 3.5, 4.5):
            save(trainer, folder, loss, keep_interval_updates=2, keep_best_checkpoints=2)
        writer.wait()
        assert np.random.get_state()[1].tolist() == state
        found.append({path.name: path.read_bytes() for path in folder.iterdir()})
        assert vars(checkpoint_utils.save_checkpoint)["best"] == 3.0
        del checkpoint_utils.save_checkpoint.best
    assert sorted(found[0]) == sorted(found[1])
    assert {"checkpoint_1_4.pt", "checkpoint_1_5.pt", "checkpoint_best.pt", "checkpoint_last.pt"} < found[0].keys()
    assert len(found[0]) == 6
    assert found[0] == found[1]


def test_updates_go_on_while_the_state_of_the_save_is_written(tmp_path, gate, caplog):
    trainer = TrainerStandIn()
    with caplog.at_level(logging.INFO):
        assert save(trainer, tmp_path) is None
        assert gate.held.wait(60)
        for _ in range(3):
            trainer.update()
        assert [name for name in names(tmp_path) if name.endswith(".pt")] == []
        assert "Finished saving" not in caplog.text
        assert "checkpoint of update 1 is written in the background" in caplog.text
        writer.check()
        gate.open()
        writer.wait()
    assert f"Finished saving checkpoint to {tmp_path}/checkpoint_1_1.pt" in caplog.text
    assert names(tmp_path) == ["checkpoint_1_1.pt", "checkpoint_last.pt"]
    for name in names(tmp_path):
        state = torch.load(tmp_path / name)
        assert (state["updates"], state["extra_state"]["meters"], state["model"]["w"].unique().tolist()) == (
            *(1, {"loss": [1.0]}),
            [2.0],
        )
    assert set(trainer.threads) == {threading.main_thread()}, "collectives and copies belong to the training's thread"


def test_a_save_waits_for_the_one_before_and_old_files_are_deleted_last(tmp_path, gate, caplog):
    trainer = TrainerStandIn()
    save(trainer, tmp_path, keep_interval_updates=1)
    assert gate.held.wait(60)
    threading.Timer(0.3, gate.open).start()
    with caplog.at_level(logging.INFO):
        save(trainer, tmp_path, keep_interval_updates=1)  # does not begin before the first one is written
    assert "s of them for the previous checkpoint" in caplog.text
    assert caplog.text.index("checkpoint_1_1.pt (epoch 1") < caplog.text.index(
        f"Saving checkpoint to {tmp_path}/checkpoint_1_2.pt"
    )
    writer.wait()
    assert names(tmp_path) == ["checkpoint_1_2.pt", "checkpoint_last.pt"]
    assert torch.load(tmp_path / "checkpoint_last.pt")["updates"] == 2


def test_a_full_disk_ends_the_training_at_the_next_update_and_deletes_nothing(tmp_path, monkeypatch):
    trainer = TrainerStandIn()
    save(trainer, tmp_path, keep_interval_updates=1)
    writer.wait()

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    save(trainer, tmp_path, keep_interval_updates=1)
    writer._save._thread.join()
    with pytest.raises(OSError, match=r"checkpoint_1_2\.pt cannot be written for 0 s: No space left"):
        background_checkpoints.validate_and_save(lambda *_: pytest.fail("an update was made"), trainer.cfg, trainer)
    assert names(tmp_path) == ["checkpoint_1_1.pt", "checkpoint_last.pt"]
    assert torch.load(tmp_path / "checkpoint_last.pt")["updates"] == 1
    writer.check()  # an error is raised once


@pytest.mark.parametrize("when", ["the next save", "the end"])
def test_no_other_checkpoint_and_no_end_pass_over_a_failure(tmp_path, monkeypatch, when):
    trainer = TrainerStandIn()
    monkeypatch.setattr(torch, "save", lambda *_: pytest.fail("no"))
    save(trainer, tmp_path)
    end = SimpleNamespace(optimization=SimpleNamespace(max_epoch=1))
    with pytest.raises(BaseException, match="no"):
        if when == "the next save":
            save(trainer, tmp_path)
        else:
            epoch_itr = SimpleNamespace(next_epoch_idx=2)
            background_checkpoints.train(lambda *_: ([None], False), end, trainer, None, epoch_itr)
    assert names(tmp_path) == []


def test_an_error_before_the_copy_is_raised_at_once(tmp_path):
    trainer = TrainerStandIn()
    trainer.state_dict = lambda: {}["missing"]
    with pytest.raises(KeyError, match="missing"):
        save(trainer, tmp_path)
    assert writer._save is None


def test_a_save_that_writes_nothing_waits_for_nothing(tmp_path):
    trainer = TrainerStandIn()
    save(trainer, tmp_path, save_interval_updates=0, no_last_checkpoints=True)
    assert names(tmp_path) == []
    assert trainer.threads == [threading.main_thread()]


def test_other_ranks_and_runs_without_the_option_save_as_fairseq_does(tmp_path):
    for trainer in (TrainerStandIn(rank=1), TrainerStandIn(is_on=False)):
        saved = save(trainer, tmp_path)
        assert saved == (str(tmp_path / "checkpoint_1_1.pt") if trainer.data_parallel_rank == 0 else None)
        assert writer._save is None


def test_saves_share_their_memory(tmp_path):
    trainer = TrainerStandIn()
    trainer.weight = torch.randn(500_000)
    writer.memory = background_checkpoints.HostMemory()
    save(trainer, tmp_path)
    address = writer.memory._bytes.data_ptr()
    assert writer.memory.size >= 2_000_000
    save(trainer, tmp_path)
    writer.wait()
    assert writer.memory._bytes.data_ptr() == address


def test_ctrl_c_during_a_write_does_not_wait(tmp_path, gate):
    save(TrainerStandIn(), tmp_path)
    assert gate.held.wait(60)

    def interrupted(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        background_checkpoints.train(interrupted, None, None, None, None)
    writer.wait()  # returns though the gate is closed
    assert [name for name in names(tmp_path) if name.endswith(".pt")] == []
