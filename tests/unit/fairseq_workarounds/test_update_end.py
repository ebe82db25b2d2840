"""What a stop leaves of an update is done before the first update of the next start."""

from types import SimpleNamespace

import pytest

from roberta_plugin.fairseq_workarounds import update_end

CONFIG = SimpleNamespace(dataset=SimpleNamespace(valid_subset="valid,valid1"))
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
def trainer():
    calls.clear()
    return SimpleNamespace(
        begin_epoch=lambda epoch: calls.append(f"begin {epoch}"),
        lr_step=lambda epoch, loss: calls.append(f"lr {epoch} {loss}"),
        is_done=False,
    )


def epoch(number):
    return SimpleNamespace(epoch=number, end_of_epoch=lambda: False, state_dict=lambda: {"epoch": number})


def test_without_a_note_nothing_changes(trainer):
    begin = trainer.begin_epoch
    assert update_end.train(fairseqs, CONFIG, trainer, None, epoch(1)) == ([2.5], False)
    assert (calls, trainer.begin_epoch) == (["begin 1", "updates"], begin)


def test_an_update_within_an_epoch_is_finished_first_and_once(trainer):
    trainer.unfinished_update = {"epoch": 1, "end_of_epoch": False}
    for _ in range(2):
        assert update_end.train(fairseqs, CONFIG, trainer, None, epoch(1)) == ([2.5], False)
    finished = (1, False, {"epoch": 1}, ["valid", "valid1"], False)
    assert calls == ["begin 1", finished, "updates", "begin 1", "updates"]


def test_the_end_of_an_epoch_has_its_own_number_and_the_learning_rate_its_loss(trainer):
    trainer.unfinished_update = {"epoch": 1, "end_of_epoch": True}
    update_end.train(fairseqs, CONFIG, trainer, None, epoch(2))
    assert calls == ["begin 2", (1, True, {"epoch": 2}, ["valid", "valid1"], True), "lr 1 1.5", "updates"]


def test_a_training_that_ends_by_it_makes_no_update(trainer):
    trainer.unfinished_update, trainer.is_done = {"epoch": 1, "end_of_epoch": False}, True
    assert update_end.train(fairseqs, CONFIG, trainer, None, epoch(1)) == ([1.5], True)
    assert "updates" not in calls


def test_the_note_is_saved_and_loaded_where_the_training_is_resumed(trainer):
    def save(trainer, filename, extra_state):
        return extra_state

    def load(trainer, filename, reset_optimizer, **options):
        return saved

    assert update_end.save_checkpoint(save, trainer, "a.pt", {"best": 2}) == {"best": 2}
    trainer.unfinished_update = note = {"epoch": 1, "end_of_epoch": False}
    saved = update_end.save_checkpoint(save, trainer, "a.pt", {"best": 2})
    assert saved == {"best": 2, "unfinished_update": note}
    for options, expected in [({}, note), ({"reset_optimizer": True}, None), ({"reset_meters": True}, None)]:
        assert update_end.load_checkpoint(load, trainer, "a.pt", **options) == saved
        assert trainer.unfinished_update == expected
    saved = None
    update_end.load_checkpoint(load, trainer, "a.pt")
    assert trainer.unfinished_update is None


@pytest.mark.parametrize(
    ("updates", "number", "end_of_epoch", "expected"),
    [(9, 2, False, False), (9, 2, True, True), (9, 1, True, False), (10, 1, False, True)],
)
def test_the_last_update_is_that_of_max_update_or_max_epoch(updates, number, end_of_epoch, expected):
    cfg = SimpleNamespace(optimization=SimpleNamespace(max_update=10, max_epoch=2))
    trainer = SimpleNamespace(get_num_updates=lambda: updates)
    assert update_end.is_last(cfg, trainer, epoch(number), end_of_epoch=end_of_epoch) == expected
