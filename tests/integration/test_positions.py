"""Rotary positions and local windows by the real command: long blocks, and pairs. A resume: test_encoder_switches."""

import pytest

from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.models.checkpoints import model_options
from tests.tiny_corpus import logged, run, train_command, write_data_bin

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


def test_blocks_of_8192_tokens_train(tmp_path):
    data = write_data_bin(tmp_path / "data", num_documents=260)
    long = ("--tokens-per-sample", "8192", "--batch-size", "1", "--attention-dropout", "0", "--max-update", "2")
    found = trained(data, tmp_path / "run", *long)
    assert model_options(found)["max-positions"] == "8192"
    assert float(logged(tmp_path / "run", "train_inner")[0]["wpb"]) > 8000
