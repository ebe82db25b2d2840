"""`fairseq-train --cuda-graphs` of a fine-tuning, with a stand-in for the graphs, ends in the bits that it has without."""

import pytest
import torch

from tests.conftest import REPOSITORY
from tests.integration.test_finetune_ranks import prepared_of, stop_in_mid_epoch, train_command
from tests.tiny_corpus import logged, run_ranks

pytestmark = pytest.mark.integration

SHAPE = ("--batch-size", "2", "--update-freq", "3", "--max-epoch", "2", "--pad-to-multiple", "8")


def with_graphs(arguments):
    at = arguments.index("--user-dir") + 1
    return [*arguments[:at], str(REPOSITORY / "tests" / "graphs_on_cpu"), *arguments[at + 1 :], "--cuda-graphs"]


def test_a_fine_tuning_on_two_ranks_that_is_stopped_in_mid_epoch_has_the_bits_of_one_without_graphs(tmp_path):
    """In bf16: shapes are recorded at other updates after the stop, and gradients of three batches are added up."""
    prepared = prepared_of("custom", tmp_path)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run_ranks(train_command(prepared, whole, *SHAPE), 2)
    num_updates = int(logged(whole, "train_inner")[-1]["num_updates"])
    saved = stop_in_mid_epoch(with_graphs(train_command(prepared, cut, *SHAPE)), cut, num_updates // 4)
    assert saved % (num_updates // 2) > 0
    output = run_ranks(with_graphs(train_command(prepared, cut, *SHAPE)), 2)
    assert "stand-in for CUDA graphs: the first replay" in output
    expected, found = (torch.load(each / "checkpoint_last.pt", weights_only=False)["model"] for each in (whole, cut))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
