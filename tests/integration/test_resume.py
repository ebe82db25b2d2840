"""The real fairseq-train, stopped in mid-epoch and started again: on other ranks, with other batches, after its end."""

import shutil

import pytest

from tests.tiny_corpus import logged, run, run_ranks, train_command

pytestmark = pytest.mark.integration

NO_DROPOUT = ("--dropout", "0", "--attention-dropout", "0", "--activation-dropout", "0")


@pytest.fixture(scope="module")
def stopped(tiny_data_bin, tmp_path_factory):
    """The save folder of a run on two ranks that was stopped in mid-epoch, after one update of 2 x 3 x 2 = 12 blocks."""
    save_dir = tmp_path_factory.mktemp("stopped") / "checkpoints"
    shape = ("--batch-size", "2", "--update-freq", "3")
    run_ranks(train_command(tiny_data_bin, save_dir, *NO_DROPOUT, *shape, *stop_at(1)), 2)
    assert [float(record["bsz"]) for record in logged(save_dir, "train_inner")] == [12]
    return save_dir


def stop_at(update):
    return ("--max-update", str(update), "--total-num-update", "100", "--no-epoch-checkpoints")


def go_on(stopped, data, save_dir, *, ranks, batch_size, update_freq):
    """Finish the epoch from a copy of the checkpoint, and return the log's records of the updates."""
    shutil.copytree(stopped, save_dir)
    shape = ("--batch-size", str(batch_size), "--update-freq", str(update_freq))
    end = ("--max-epoch", "1", "--total-num-update", "100", "--no-epoch-checkpoints")
    arguments = train_command(data, save_dir, *NO_DROPOUT, *shape, *end)
    if ranks == 1:
        done = run(arguments)
        assert done.returncode == 0, done.stderr[-3000:]
        output = done.stdout
    else:
        output = run_ranks(arguments, ranks)
    assert output.count("begin training epoch") == 1
    return logged(save_dir, "train_inner")


def test_the_rest_of_an_epoch_is_the_same_for_other_ranks_batches_and_update_freq(stopped, tiny_data_bin, tmp_path):
    """From two ranks with update-freq 3 to 36 blocks an update on one rank and on two, which share 3 batches at last."""
    one = go_on(stopped, tiny_data_bin, tmp_path / "one", ranks=1, batch_size=9, update_freq=4)
    two = go_on(stopped, tiny_data_bin, tmp_path / "two", ranks=2, batch_size=6, update_freq=3)
    last = 101 - 12 - 2 * 36
    assert [float(record["bsz"]) for record in one] == [36, 36, last]
    assert 12 < last <= 18, (
        "the last update does not leave one rank with a batch less: the test shows less than it says"
    )
    for key in ("num_updates", "bsz", "wpb", "lr"):
        assert [record[key] for record in two] == [record[key] for record in one]
    for key in ("loss", "gnorm"):
        expected = [float(record[key]) for record in one]
        assert [float(record[key]) for record in two] == pytest.approx(expected, abs=2e-3)
        assert min(expected) > 0.1
