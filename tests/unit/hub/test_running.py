"""Batches of similar length: every sequence once, within the limit, and results in order, on the device of the model."""

import numpy as np
import pytest
import torch

from roberta_plugin.data.batches import cut_by_length
from roberta_plugin.hub import running
from roberta_plugin.hub.running import Batch, map_batches, pad
from tests.fake_cuda import Watch, fake_cuda, moved
from tests.tiny_models import make_batch, our_model

LENGTHS = (17, 9, 1, 13)
READERS = {
    "features": running.features,
    "first": running.first_features,
    "classes": lambda model, batch: running.head_outputs(model, batch, "task"),
    "spans": lambda model, batch: running.head_outputs(model, batch, "span"),
    "tags": lambda model, batch: running.head_outputs(model, batch, "tags"),
}


def sequences(lengths):
    return [np.full(length, number + 5) for number, length in enumerate(lengths)]


@pytest.mark.parametrize("max_tokens", [1, 18, 64, 10_000])
def test_every_sequence_is_in_one_batch_within_the_limit(max_tokens):
    lengths = np.random.default_rng(0).integers(1, 40, 100).tolist()
    batches = list(cut_by_length(lengths, max_tokens=max_tokens, enough=max_tokens))
    assert sorted(number for batch in batches for number in batch) == list(range(100))
    for batch in batches:
        assert len(batch) * max(lengths[number] for number in batch) <= max_tokens or len(batch) == 1
    longest = [lengths[batch[0]] for batch in batches]
    assert longest == sorted(longest, reverse=True)
    assert (len(batches) == 1) == (max_tokens == 10_000)


def test_the_example_of_the_docstring():
    assert list(cut_by_length([3, 9, 2, 8], max_tokens=18, enough=18)) == [[1, 3], [0, 2]]
    assert list(cut_by_length([3, 9, 2, 8], max_tokens=18, enough=9)) == [[1], [3, 0], [2]]
    assert pad([np.array([0, 7, 2]), np.array([0, 2])], pad_id=1).tolist() == [[0, 7, 2], [0, 2, 1]]


def test_batches_that_are_large_enough_have_little_padding():
    """Lengths as of sentences: few long ones."""
    lengths = np.minimum(120, 5 + np.random.default_rng(1).geometric(1 / 30, 400)).tolist()
    batches = list(cut_by_length(lengths, max_tokens=2048, enough=512))
    positions = sum(len(batch) * lengths[batch[0]] for batch in batches)
    assert positions < 1.15 * sum(lengths)
    for batch in batches[:-1]:
        assert len(batch) * lengths[batch[0]] >= 512
    assert sum(len(b) * lengths[b[0]] for b in cut_by_length(lengths, max_tokens=2048, enough=2048)) > positions


def test_results_are_in_the_order_of_the_sequences():
    lengths = [3, 9, 2, 8, 9, 1]
    seen = []

    def run(batch):
        seen.append((batch.lengths, batch.has_padding))
        return batch.tokens[:, 0].tolist()

    found = map_batches(
        torch.nn.Identity(), sequences(lengths), run, pad_id=1, device=torch.device("cpu"), max_tokens=18
    )
    assert found == [5, 6, 7, 8, 9, 10]
    assert seen == [([9, 9], False), ([8, 3], True), ([2, 1], True)]


def test_no_sequences_have_no_results_and_a_limit_below_one_is_refused():
    assert map_batches(torch.nn.Identity(), [], lambda batch: [], pad_id=1, device=torch.device("cpu")) == []
    with pytest.raises(ValueError, match="max_tokens must be 1 or more, got 0"):
        map_batches(
            torch.nn.Identity(), sequences([2]), lambda batch: [0], pad_id=1, device=torch.device("cpu"), max_tokens=0
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("what", READERS)
def test_what_is_read_is_on_the_device_of_the_model(what, dtype):
    model, tokens = our_model(), make_batch(LENGTHS)[0]
    model.register_classification_head("task", num_classes=3)
    model.register_head("span", "span")
    model.register_head("tags", "token", num_classes=2)
    with fake_cuda() as mode, Watch(may_wait=True), torch.inference_mode():
        batch = Batch(moved(tokens, mode), list(LENGTHS), list(range(4)))
        found = READERS[what](moved(model, mode, dtype).eval(), batch)
    for tensor in found if isinstance(found, tuple | list) else [found]:
        assert tensor.device.type == "cuda"
