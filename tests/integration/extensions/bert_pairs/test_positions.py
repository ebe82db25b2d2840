"""Rotary positions and local windows with pairs."""

import pytest

from roberta_plugin.checkpoint_files import load_state
from tests.tiny_corpus import run, train_command

pytestmark = pytest.mark.integration


ALL_ON = (
    *("--position-encoding", "rotary", "--rotary-base", "160000", "--rotary-base-local", "10000"),
    *("--attention-window", "8", "--global-attention-every", "2", "--encoder-layers", "3"),
    *("--no-epoch-checkpoints", "--total-num-update", "20"),
)


def trained(data, save_dir, *options):
    done = run(train_command(data, save_dir, *ALL_ON, *options))
    assert done.returncode == 0, done.stderr[-3000:]
    return load_state(save_dir / "checkpoint_last.pt")


def test_pairs_of_texts_train_with_all_on(tiny_data_bin, tmp_path):
    pairs = ("--input-format", "segment-pair", "--next-sentence-prediction", "--max-update", "2")
    assert (
        "encoder.sentence_encoder.segment_embeddings.weight"
        in trained(tiny_data_bin, tmp_path / "run", *pairs)["model"]
    )
