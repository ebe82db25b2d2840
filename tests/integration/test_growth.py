"""The real fairseq-train with blocks, batches and rates that change in the course of the training."""

import pytest

from tests.tiny_corpus import logged, run, run_ranks, same_weights, train_command

pytestmark = pytest.mark.integration

# Blocks of 32 tokens until update 20, of 64 from then on; batches of 128, 256 and 512 tokens.
GROWTH = ("--grow-tokens-per-sample", "0:32 20:64", "--grow-max-tokens", "0:128 10:256 20:512", "--max-tokens", "512")
END = 30


def grown(data, save_dir, *options):
    given = train_command(data, save_dir, *GROWTH, "--no-epoch-checkpoints", "--max-update", str(END), *options)
    for name in ("--batch-size", "--lr-scheduler", "--warmup-updates"):
        place = given.index(name)
        del given[place : place + 2]
    return [*given, "--lr-scheduler", "linear_stages", "--lr-stages", "5:0.5 10:0.5 10:1 30:0"]


@pytest.fixture(scope="module")
def whole(tiny_data_bin, tmp_path_factory):
    """The save folder of a training that was never stopped."""
    save_dir = tmp_path_factory.mktemp("growth") / "whole"
    done = run(grown(tiny_data_bin, save_dir, "--save-interval-updates", "10", "--keep-interval-updates", "9"))
    assert done.returncode == 0, done.stderr[-3000:]
    return save_dir


def test_blocks_batches_and_rates_change_at_their_updates(whole):
    records = logged(whole, "train_inner")
    assert [int(record["num_updates"]) for record in records] == list(range(1, END + 1))
    words = [float(record["wpb"]) for record in records]
    blocks = [float(record["wpb"]) / float(record["bsz"]) for record in records]
    for first, last, most, length in ((0, 10, 128, 32), (10, 20, 256, 32), (20, 30, 512, 64)):
        assert max(words[first:last]) <= most
        assert max(words[first:last]) > most / 2
        assert max(blocks[first:last]) <= length
    assert max(blocks[20:]) > 32
    rates = [float(record["lr"]) for record in records]  # of the next update
    assert rates[1] == pytest.approx(0.2 * 3e-3)
    assert rates[8:10] == pytest.approx([0.5 * 3e-3, 3e-3])
    assert rates[-1] == 0
    valid = logged(whole, "valid")
    assert {record["valid_bsz"] for record in valid[:1]} == {record["valid_bsz"] for record in valid[-1:]}


def test_a_training_stopped_before_at_and_after_changes_ends_with_the_same_weights(whole, tiny_data_bin, tmp_path):
    save_dir = tmp_path / "stopped"
    for stop in (17, 20, END):
        done = run(grown(tiny_data_bin, save_dir, "--max-update", str(stop)))
        assert done.returncode == 0, done.stderr[-3000:]
        assert "another order" not in done.stdout + done.stderr
    same_weights(save_dir, whole)


FULL = pytest.param("full-sentences", 4, marks=pytest.mark.slow)  # of which doc-sentences are the harder case


@pytest.mark.parametrize(("name", "stop"), [("doc-sentences", 3), FULL])
def test_blocks_of_sentences_grow_as_well_and_resume_across_a_change(name, stop, tiny_data_bin, tmp_path):
    short = ("--input-format", name, "--grow-tokens-per-sample", "0:32 4:64", "--grow-max-tokens", "0:128 4:512")
    for folder, last in (("whole", 8), ("stopped", stop), ("stopped", 8)):
        done = run(grown(tiny_data_bin, tmp_path / folder, *short, "--max-update", str(last)))
        assert done.returncode == 0, done.stderr[-3000:]
    same_weights(tmp_path / "stopped", tmp_path / "whole")
    blocks = [float(record["wpb"]) / float(record["bsz"]) for record in logged(tmp_path / "whole", "train_inner")]
    assert max(blocks[:4]) <= 32 < max(blocks[4:])


def test_two_ranks_stopped_between_changes_end_with_the_same_weights(tiny_data_bin, tmp_path):
    short = ("--grow-tokens-per-sample", "0:32 4:64", "--grow-max-tokens", "0:128 4:512", "--update-freq", "3")
    short += ("--skip-remainder-batch",)  # the epochs that end early are whole all the same
    for name, stop in (("whole", 6), ("stopped", 3), ("stopped", 6)):
        run_ranks(grown(tiny_data_bin, tmp_path / name, *short, "--max-update", str(stop)), 2)
    same_weights(tmp_path / "stopped", tmp_path / "whole")
