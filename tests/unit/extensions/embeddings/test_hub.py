"""Vectors of texts by `RobertaHub`."""

import copy

import numpy as np
import pytest
import torch

from tests.refusals import refused
from tests.tiny_hub import PIECES, check_refusals, write_hub


@pytest.fixture(scope="module", name="hub")
def hub_with_a_head(tmp_path_factory):
    hub = write_hub(tmp_path_factory.mktemp("hub"))
    return hub


def test_embeddings_are_means_first_features_or_maxima(hub):
    features = hub.extract_features(PIECES)
    torch.testing.assert_close(hub.embed(PIECES), torch.stack([each.mean(dim=0) for each in features]))
    pooled = {"first": lambda each: each[0], "max": lambda each: each.amax(dim=0)}
    for pooling, pool in pooled.items():
        expected = torch.stack([pool(each) for each in features])
        torch.testing.assert_close(hub.embed(PIECES, pooling=pooling), expected, atol=1e-5, rtol=1e-4)
    lengths = hub.embed(PIECES, normalize=True).norm(dim=1)
    torch.testing.assert_close(lengths, torch.ones(len(PIECES)))
    assert hub.embed("good").shape == (1, 24)
    assert hub.embed([]).shape == (0, 24)
    refused("pooling must be 'mean', 'first' or 'max', got 'last'", hub.embed, PIECES, pooling="last")


def test_of_a_text_that_only_rotary_positions_reach_all_is_read_where_it_is_asked_for(hub, tmp_path):
    refused(
        "max_length must be a whole number from 6 to the 40 positions of the model", hub.embed, ["a"], max_length=41
    )
    hub, text = write_hub(tmp_path, position_encoding="rotary"), "good bad " * 60
    ids = hub.encode(text.strip())
    assert len(ids) > 60
    whole = hub.embed(text, max_length=len(ids))
    torch.testing.assert_close(whole, hub.extract_features(ids).mean(dim=1))
    assert not torch.equal(whole, hub.embed(text)), "which is cut to the length of its training"


def test_vectors_can_be_trained_on_and_have_full_precision(hub):
    probe = torch.nn.Linear(24, 1)
    probe(hub.embed(PIECES)).sum().backward()
    assert probe.weight.grad is not None
    assert copy.deepcopy(hub).bfloat16().embed(PIECES).dtype == torch.float32


def test_any_ordered_iterable_is_a_list_of_texts(hub):
    expected = hub.embed(PIECES)
    for texts in (tuple(PIECES), (text for text in PIECES), np.array(PIECES), np.array(PIECES, dtype=object)):
        assert torch.equal(hub.embed(texts), expected)
    assert torch.equal(hub.embed(np.str_("good")), hub.embed("good"))


CALLS = {
    "embed": lambda hub, value: hub.embed(value),
    "max_tokens": lambda hub, value: hub.embed(["good"], max_tokens=value),
    "pooling": lambda hub, value: hub.embed(["good"], value),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_arguments_of_other_types_are_refused_in_a_sentence(hub, call):
    check_refusals(hub, call)
