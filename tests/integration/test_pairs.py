"""Pairs with next-sentence prediction through the real fairseq-train: ranks, validation, kills, mixtures."""

import re
import shutil

import pytest

from tests.tiny_corpus import kill_at_update, logged, run, run_ranks, train_command, write_data_bin

pytestmark = pytest.mark.integration

PAIRS = ("--input-format", "segment-pair", "--next-sentence-prediction", "--short-seq-prob", "0.1")


def test_two_ranks_go_on_with_the_same_pairs_and_losses_as_one(tiny_data_bin, tmp_path):
    """Stopped in mid-epoch on one rank, finished on two with three batches an update; both validate."""
    save_dir = tmp_path / "stopped"
    calm = ("--dropout", "0", "--attention-dropout", "0", "--activation-dropout", "0", "--no-epoch-checkpoints")
    done = run(
        train_command(
            tiny_data_bin,
            save_dir,
            *PAIRS,
            *calm,
            "--batch-size",
            "12",
            "--max-update",
            "1",
            "--total-num-update",
            "100",
        )
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = []
    for ranks, batch_size, update_freq in ((1, 9, 4), (2, 6, 3)):
        copy = tmp_path / f"ranks{ranks}"
        shutil.copytree(save_dir, copy)
        shape = ("--batch-size", str(batch_size), "--update-freq", str(update_freq), "--max-epoch", "1")
        arguments = train_command(tiny_data_bin, copy, *PAIRS, *calm, *shape, "--total-num-update", "100")
        if ranks == 1:
            done = run(arguments)
            assert done.returncode == 0, done.stderr[-3000:]
        else:
            run_ranks(arguments, ranks)
        results.append((logged(copy, "train_inner"), logged(copy, "valid")))
    (one, valid_one), (two, valid_two) = results
    assert len(one) == len(two) >= 3
    for key in ("num_updates", "bsz", "wpb"):
        assert [record[key] for record in two] == [record[key] for record in one]
    assert [float(record["bsz"]) for record in one][:2] == [36, 36]
    for key, tolerance in (("loss", 5e-3), ("nsp_loss", 2e-2)):
        expected = [float(record[key]) for record in one]
        assert [float(record[key]) for record in two] == pytest.approx(expected, abs=tolerance) and min(expected) > 0.1
    for key in ("valid_loss", "valid_accuracy", "valid_nsp_loss", "valid_nsp_accuracy"):
        assert float(valid_two[-1][key]) == pytest.approx(float(valid_one[-1][key]), rel=2e-2)


def test_a_killed_mixture_of_pairs_goes_on_with_the_same_blocks(tmp_path):
    """Packed rows of two corpora; the log of the killed and resumed run is that of an undisturbed one."""
    corpora = [
        write_data_bin(tmp_path / name, num_documents=12, valid_documents=4, seed=i) for i, name in enumerate("ab")
    ]
    data = f"{corpora[0]}@3,{corpora[1]}@1"
    options = (*PAIRS, "--pack-sequences", "--pad-to-multiple", "8", "--batch-size", "3", "--max-update", "14")
    saving = ("--save-interval-updates", "2", "--keep-interval-updates", "1", "--no-epoch-checkpoints")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = run(train_command(data, whole, *options, *saving, "--total-num-update", "20"))
    assert done.returncode == 0, done.stderr[-3000:]
    arguments = train_command(data, killed, *options, *saving, "--total-num-update", "20")
    kill_at_update(arguments, killed, 5)
    done = run(arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"@ [2-9] updates", done.stdout + done.stderr)

    def by_update(save_dir):
        keys = ("loss", "nsp_loss", "nsp_accuracy", "bsz", "wpb")
        return {record["num_updates"]: [record[key] for key in keys] for record in logged(save_dir, "train_inner")}

    assert by_update(killed) == by_update(whole) and len(by_update(whole)) == 14
    assert float(logged(whole, "valid")[-1]["valid_nsp_accuracy"]) > 0

    # The model goes on without pairs.
    on = ("--finetune-from-model", str(whole / "checkpoint_last.pt"), "--max-update", "2", "--total-num-update", "9")
    done = run(train_command(data, tmp_path / "plain", *on, "--sample-break-mode", "complete"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "is left out: this model goes on without it" in done.stdout + done.stderr
