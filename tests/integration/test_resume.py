"""The real fairseq-train, stopped in mid-epoch and started again: on other ranks, with other batches, after its end."""

import shutil

import pytest
import torch

from roberta_plugin.launch.batch_size import plan_batch
from tests.tiny_corpus import logged, run, run_ranks, train_command

pytestmark = pytest.mark.integration

NO_DROPOUT = ("--dropout", "0", "--attention-dropout", "0", "--activation-dropout", "0")


PAIRS = ("--input-format", "segment-pair", "--next-sentence-prediction", "--short-seq-prob", "0.1")


def stop_at(update):
    return ("--max-update", str(update), "--total-num-update", "100", "--no-epoch-checkpoints")


def go_on(stopped, data, save_dir, *options, ranks, batch_size, update_freq):
    """Finish the epoch from a copy of the checkpoint, and return the log's records of the updates and the validation."""
    shutil.copytree(stopped, save_dir)
    shape = ("--batch-size", str(batch_size), "--update-freq", str(update_freq))
    end = ("--max-epoch", "1", "--total-num-update", "100", "--no-epoch-checkpoints")
    output = run_ranks(train_command(data, save_dir, *NO_DROPOUT, *shape, *end, *options), ranks)
    assert output.count("begin training epoch") == 1
    return logged(save_dir, "train_inner"), logged(save_dir, "valid")[-1]


@pytest.mark.parametrize(("options", "blocks"), [((), 101), pytest.param(PAIRS, 0, marks=pytest.mark.slow)])
def test_the_rest_of_an_epoch_is_the_same_for_other_ranks_batches_and_update_freq(
    tiny_data_bin, tmp_path, options, blocks
):
    """From two ranks with update-freq 3, stopped after an update of 12 blocks, to 36 blocks an update on one and on two.

    These share 3 batches at last, and validate alike.
    """
    stopped = tmp_path / "stopped"
    shape = ("--batch-size", "2", "--update-freq", "3", *stop_at(1))
    run_ranks(train_command(tiny_data_bin, stopped, *NO_DROPOUT, *shape, *options), 2)
    assert [float(record["bsz"]) for record in logged(stopped, "train_inner")] == [12]
    one, valid = go_on(stopped, tiny_data_bin, tmp_path / "one", *options, ranks=1, batch_size=9, update_freq=4)
    two, other = go_on(stopped, tiny_data_bin, tmp_path / "two", *options, ranks=2, batch_size=6, update_freq=3)
    sizes = [float(record["bsz"]) for record in one]
    assert len(sizes) >= 3 and set(sizes[:-1]) == {36}
    if blocks:
        assert 12 + sum(sizes) == blocks
        message = "the last update does not leave one rank with a batch less: the test shows less than it says"
        assert 12 < sizes[-1] <= 18, message
    for key in ("num_updates", "bsz", "wpb", "lr"):
        assert [record[key] for record in two] == [record[key] for record in one]
    for key, tolerance in {"loss": 2e-3, "gnorm": 2e-3, **({"nsp_loss": 2e-2} if options else {})}.items():
        expected = [float(record[key]) for record in one]
        assert [float(record[key]) for record in two] == pytest.approx(expected, abs=tolerance)
        assert min(expected) > 0.1
    for key in ("valid_loss", "valid_accuracy", *(("valid_nsp_loss", "valid_nsp_accuracy") if options else ())):
        assert float(other[key]) == pytest.approx(float(valid[key]), rel=2e-2)


def of_16_blocks(ranks):
    """Options for updates of 16 blocks on any number of ranks, as `roberta train` gives them."""
    plan = plan_batch(16, num_gpus=ranks, most_per_gpu=4, may_differ=True)
    shape = ("--batch-size", str(plan.per_gpu), "--update-freq", str(plan.update_freq))
    return shape if 16 % ranks == 0 else (*shape, "--update-sequences", "16")


def test_three_ranks_make_the_updates_of_two_and_going_on_alone_changes_nothing(tiny_data_bin, tmp_path):
    """Over an end of an epoch: 6 updates of 16 blocks and one of 5; 3 ranks share 16 as 3 3 3 | 3 2 2."""
    whole, moved = tmp_path / "whole", tmp_path / "moved"
    run_ranks(train_command(tiny_data_bin, whole, *NO_DROPOUT, *of_16_blocks(2), *stop_at(12)), 2)
    run_ranks(train_command(tiny_data_bin, moved, *NO_DROPOUT, *of_16_blocks(3), *stop_at(9)), 3)
    done = run(train_command(tiny_data_bin, moved, *NO_DROPOUT, *of_16_blocks(1), *stop_at(12)))
    assert done.returncode == 0, done.stderr[-3000:]
    one, two = (logged(save_dir, "train_inner") for save_dir in (whole, moved))
    assert [float(record["bsz"]) for record in one] == [*[16] * 6, 5, *[16] * 5]
    for key in ("num_updates", "bsz", "wpb", "lr"):
        assert [record[key] for record in two] == [record[key] for record in one]
    assert [float(record["loss"]) for record in two] == pytest.approx(
        [float(record["loss"]) for record in one], abs=2e-3
    )
    expected, found = (
        torch.load(save_dir / "checkpoint_last.pt", weights_only=True)["model"] for save_dir in (whole, moved)
    )
    largest = max(float((expected[name] - found[name]).abs().max()) for name in expected)
    assert 0 < largest < 1e-4, "more than the order of summation changes in 12 updates of up to 3e-3"
