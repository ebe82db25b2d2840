"""The effective batch is the same on any number of GPUs that can share it."""

import re

import numpy as np
import pytest

from roberta_plugin.launch.arguments import parse, to_config
from roberta_plugin.launch.batch_size import measured_size, nominal_size, plan_batch, sequences_in_tokens, task_of
from tests.tiny_corpus import write_data_bin


@pytest.mark.parametrize(
    ("num_gpus", "most", "expected"),
    [
        (1, 32, (32, 256)),
        (8, 32, (32, 32)),
        (1024, 32, (8, 1)),
        (8, 24, (16, 64)),
        (256, 32, (32, 1)),
        (8192, 32, (1, 1)),
    ],
)
def test_the_papers_batch_is_shared_out_exactly(num_gpus, most, expected):
    plan = plan_batch(8192, num_gpus=num_gpus, most_per_gpu=most)
    assert plan == expected
    assert plan.per_gpu * plan.update_freq * num_gpus == 8192


def test_no_other_share_needs_fewer_steps():
    for effective in range(6, 300, 6):
        for most in range(1, 20):
            plan = plan_batch(effective, num_gpus=6, most_per_gpu=most)
            assert plan.per_gpu <= most
            assert plan.per_gpu * plan.update_freq * 6 == effective
            better = [size for size in range(plan.per_gpu + 1, most + 1) if (effective // 6) % size == 0]
            assert not better


def test_a_batch_that_cannot_be_shared_names_the_ways_out():
    with pytest.raises(
        ValueError, match=re.escape("8,192 sequences cannot be shared out evenly among 3 GPUs")
    ) as caught:
        plan_batch(8192, num_gpus=3, most_per_gpu=32)
    assert "take 2 GPUs" in str(caught.value)
    assert "8,190 or 8,193 sequences" in str(caught.value)


def test_the_pretraining_task_shares_out_any_batch_in_the_fewest_steps():
    """The blocks of its updates: tests/unit/data/test_block_batches.py."""
    assert plan_batch(8192, num_gpus=1016, most_per_gpu=32, may_differ=True) == (9, 1)
    assert plan_batch(8192, num_gpus=127, most_per_gpu=32, may_differ=True) == (22, 3)
    assert plan_batch(8192, num_gpus=8, most_per_gpu=24, may_differ=True) == (16, 64)  # as before, where it divides
    for effective in range(6, 200, 7):
        for num_gpus in range(1, effective + 1):
            for most in range(2, 12):
                plan = plan_batch(effective, num_gpus=num_gpus, most_per_gpu=most, may_differ=True)
                assert plan.per_gpu <= most
                if effective % num_gpus:
                    assert num_gpus * plan.update_freq <= effective, "an empty batch"
                    assert num_gpus * (plan.update_freq - 1) * most < effective, "fewer steps would do"
    with pytest.raises(ValueError, match="leaves some of 9 GPUs without any: take 8 GPUs at most"):
        plan_batch(8, num_gpus=9, most_per_gpu=4, may_differ=True)
    with pytest.raises(ValueError, match="one sequence at a time: raise --batch-size to 2"):
        plan_batch(16, num_gpus=3, most_per_gpu=1, may_differ=True)


@pytest.mark.parametrize("values", [{"num_gpus": 0, "most_per_gpu": 4}, {"num_gpus": 2, "most_per_gpu": 0}])
def test_numbers_below_one_are_refused(values):
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        plan_batch(8, **values)


def test_tokens_are_whole_sequences():
    assert sequences_in_tokens(2**20, tokens_per_sample=512) == 2048
    with pytest.raises(ValueError, match=re.escape("take 999,936 or 1,000,448 tokens")):
        sequences_in_tokens(1_000_000, tokens_per_sample=512)


OPTIONS = ("--task", "roberta_masked_lm", "--criterion", "roberta_masked_lm", "--arch", "fast_roberta_tiny", "--cpu")
OPTIONS += ("--optimizer", "roberta_adamw", "--tokens-per-sample", "64")


@pytest.mark.parametrize(
    "further",
    [
        ("--batch-size", "4", "--sample-break-mode", "complete"),
        ("--batch-size", "4", "--sample-break-mode", "complete_doc", "--update-freq", "3"),
        ("--max-tokens", "200", "--sample-break-mode", "complete_doc"),
        ("--max-tokens", "200", "--input-format", "segment-pair"),
        ("--max-tokens", "200", "--input-format", "sentence-pair"),
    ],
    ids=lambda further: " ".join(further[1::2]),
)
def test_it_is_the_mean_of_the_batches_of_an_epoch(tmp_path, further):
    from fairseq import tasks

    data = write_data_bin(tmp_path / "data")
    parsed = parse([str(data), *OPTIONS, *further])
    size = measured_size(*task_of(parsed), parsed.train_subset, num_ranks=2)

    config = to_config(parsed)
    task = tasks.setup_task(config.task)
    task.load_dataset("train", combine=True)
    dataset = task.dataset("train")
    limits = {"max_tokens": config.dataset.max_tokens, "max_sentences": config.dataset.batch_size}
    batches = [
        dataset.make_batch(batch.passes, batch.indices)
        for batch in dataset.batches(1, required_batch_size_multiple=8, **limits)
    ]
    assert len(batches) > 5
    scale = len(batches) / -(-len(batches) // (2 * parsed.update_freq[0]))  # the last update takes what is left
    for name, found in (("nsentences", size.sequences), ("ntokens", size.tokens), ("npairs", size.pairs)):
        assert found == pytest.approx(scale * np.mean([batch[name] for batch in batches])), name
    assert size.tokens_in_epoch == sum(batch["ntokens"] for batch in batches)
    predicted = scale * np.mean([batch["predicted"]["number"] for batch in batches])
    assert size.predicted == pytest.approx(predicted, rel=0.15)


def test_without_data_blocks_are_taken_to_be_full(tmp_path):
    data = write_data_bin(tmp_path / "data")
    size = nominal_size(parse([str(data), *OPTIONS, "--batch-size", "32", "--update-freq", "8"]), num_ranks=8)
    assert size[:4] == (2048, 2048 * 64, 2048 * 64 * 64, pytest.approx(0.15 * 2048 * 64))
    assert nominal_size(parse([str(data), *OPTIONS, "--max-tokens", "512"]), num_ranks=1).sequences == 8
    with pytest.raises(ValueError, match="batch size is missing"):
        nominal_size(parse([str(data), *OPTIONS]), num_ranks=1)
