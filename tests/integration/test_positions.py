"""Rotary positions and local windows by the real command: growing and packed blocks, a resume, and pairs."""

import pytest
import torch

from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.models.checkpoints import model_options
from tests.tiny_corpus import logged, run, train_command, write_data_bin

pytestmark = pytest.mark.integration

ALL_ON = (
    *("--position-encoding", "rotary", "--rotary-base", "160000", "--rotary-base-local", "10000"),
    *("--attention-window", "8", "--global-attention-every", "2", "--encoder-layers", "3"),
    *("--no-epoch-checkpoints", "--total-num-update", "20"),
)
PACKED = ("--pack-sequences", "--max-tokens", "256", "--grow-tokens-per-sample", "0:32 4:64")


def trained(data, save_dir, *options):
    done = run(train_command(data, save_dir, *ALL_ON, *options))
    assert done.returncode == 0, done.stderr[-3000:]
    return load_state(save_dir / "checkpoint_last.pt")


def test_a_run_with_all_on_resumes_with_the_same_bits(tiny_data_bin, tmp_path):
    """Across the growth of its blocks."""
    expected = trained(tiny_data_bin, tmp_path / "whole", *PACKED, "--max-update", "6")
    trained(tiny_data_bin, tmp_path / "parts", *PACKED, "--max-update", "3")
    found = trained(tiny_data_bin, tmp_path / "parts", *PACKED, "--max-update", "6")
    assert not any("embed_positions" in name for name in found["model"])
    assert all(torch.equal(found["model"][name], expected["model"][name]) for name in expected["model"])
    options = model_options(found)
    assert (options["position-encoding"], options["max-positions"], options["attention-window"]) == (
        "rotary",
        "64",
        "8",
    )
    changed = (*ALL_ON, *PACKED, "--max-update", "8", "--attention-window", "16")
    done = run(train_command(tiny_data_bin, tmp_path / "parts", *changed))
    assert done.returncode != 0
    assert "of a training with another model: --attention-window was 8 and is 16 now" in done.stderr + done.stdout


def test_blocks_of_8192_tokens_train(tmp_path):
    data = write_data_bin(tmp_path / "data", num_documents=260)
    long = ("--tokens-per-sample", "8192", "--batch-size", "1", "--attention-dropout", "0", "--max-update", "2")
    found = trained(data, tmp_path / "run", *long)
    assert model_options(found)["max-positions"] == "8192"
    assert float(logged(tmp_path / "run", "train_inner")[0]["wpb"]) > 8000


def test_pairs_of_texts_train_with_all_on(tiny_data_bin, tmp_path):
    pairs = ("--input-format", "segment-pair", "--next-sentence-prediction", "--max-update", "2")
    assert (
        "encoder.sentence_encoder.segment_embeddings.weight"
        in trained(tiny_data_bin, tmp_path / "run", *pairs)["model"]
    )
