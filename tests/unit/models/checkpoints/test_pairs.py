"""Checkpoints with and without segment embeddings and next-sentence prediction load into models of the other kind."""

import logging

import pytest
import torch

from tests.tiny_models import TinyTask, make_batch
from tests.tiny_pairs import PairTask, pair_model


class PlainTask(TinyTask):
    def __init__(self):
        super().__init__(num_symbols=120)


def test_a_model_without_segments_gives_what_the_first_segment_gave(caplog):
    theirs, ours = pair_model().eval(), pair_model(PlainTask(), seed=4).eval()
    state = theirs.state_dict()
    with caplog.at_level(logging.INFO):
        ours.load_state_dict(state)
    assert "added to the positions" in caplog.text and "this model has none" in caplog.text
    assert set(theirs.state_dict()) - set(ours.state_dict()) == {
        "encoder.sentence_encoder.segment_embeddings.weight",
        *(f"encoder.next_sentence_head.{name}" for name in ("dense.weight", "dense.bias")),
        *(f"encoder.next_sentence_head.{name}" for name in ("out_proj.weight", "out_proj.bias")),
    }
    tokens, _, _ = make_batch()
    is_token = tokens.ne(1)
    torch.testing.assert_close(ours(tokens)[0][is_token], theirs(tokens)[0][is_token], atol=1e-5, rtol=1e-5)
    assert ours.encoder.sentence_encoder.embed_positions.weight[1].abs().max() == 0  # padding stays


def test_a_model_with_them_begins_with_the_checkpoint_s_function(caplog):
    theirs, ours = pair_model(PlainTask(), seed=4).eval(), pair_model().eval()
    head = ours.encoder.next_sentence_head.dense.weight.clone()
    with caplog.at_level(logging.INFO):
        ours.load_state_dict(theirs.state_dict())
    assert "begin at zero" in caplog.text and "begins untrained" in caplog.text
    tokens, _, _ = make_batch()
    segments = torch.ones_like(tokens)
    torch.testing.assert_close(ours(tokens, segments=segments)[0], theirs(tokens)[0], atol=1e-6, rtol=1e-6)
    assert torch.equal(ours.encoder.next_sentence_head.dense.weight, head)


def test_models_of_one_kind_exchange_everything(caplog):
    theirs, ours = pair_model(seed=2), pair_model()
    with caplog.at_level(logging.INFO):
        ours.load_state_dict(theirs.state_dict())
    assert not caplog.text
    assert all(torch.equal(value, theirs.state_dict()[name]) for name, value in ours.state_dict().items())


@pytest.mark.parametrize("segments", [0, 2])
def test_parameters_follow_from_the_task(segments):
    class Task(PairTask):
        num_segments = segments
        predicts_next_sentence = segments == 0

    names = set(pair_model(Task()).state_dict())
    assert ("encoder.sentence_encoder.segment_embeddings.weight" in names) == (segments == 2)
    assert ("encoder.next_sentence_head.dense.weight" in names) == (segments == 0)
