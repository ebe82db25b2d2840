"""The cost of a step, against the weights of a real model and against published figures."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from roberta_plugin.models.flops import training_flops
from tests.tiny_models import make_batch, our_model
from tests.tiny_pairs import pair_model


def test_six_flops_a_weight_and_token():
    model = our_model()
    layers = model.encoder.sentence_encoder.layers
    weights = sum(parameter.numel() for parameter in layers.parameters() if parameter.dim() == 2)
    assert model.training_flops(num_tokens=7, num_pairs=0, num_predicted=0) == 6 * weights * 7
    head = model.encoder.lm_head
    weights = head.dense.weight.numel() + head.weight.numel()
    assert model.training_flops(num_tokens=0, num_pairs=0, num_predicted=5) == 6 * weights * 5


def test_attention_costs_two_products_forward_and_four_backward():
    """q k^T of one layer: T^2 pairs, h multiply-adds each, 2 FLOPs a multiply-add."""
    sizes = {"num_layers": 2, "dim": 16, "ffn_dim": 0, "vocab_size": 0, "num_tokens": 0, "num_predicted": 0}
    assert training_flops(**sizes, num_pairs=10**2) == 2 * (2 + 4) * (2 * 16 * 10**2)


@pytest.mark.parametrize(("sizes", "gigaflops"), [((12, 768, 3072), 0.60), ((24, 1024, 4096), 2.01)])
def test_base_and_large_cost_what_is_known(sizes, gigaflops):
    layers, dim, ffn_dim = sizes
    flops = training_flops(
        num_layers=layers,
        dim=dim,
        ffn_dim=ffn_dim,
        vocab_size=50265,
        num_tokens=512,
        num_pairs=512**2,
        num_predicted=0.15 * 512,
    )
    assert flops / 512 / 1e9 == pytest.approx(gigaflops, abs=0.006)


@pytest.mark.parametrize("checkpoint_activations", [False, True])
def test_what_is_executed_is_what_torch_counts(checkpoint_activations):
    """torch's counter sees every matrix product of a step, forward and backward."""
    model = our_model(attention_backend="eager", checkpoint_activations=checkpoint_activations).bfloat16()
    tokens, _, _ = make_batch((12, 12, 12))
    positions = torch.tensor([[1, 4, 7]] * 3)
    predicted = {"positions": positions, "labels": tokens.gather(1, positions)}
    with FlopCounterMode(display=False) as counter:
        model(tokens, predicted=predicted, has_padding=False)[0].backward()
    counts = {"num_tokens": 36, "num_pairs": 3 * 12**2, "num_predicted": 9}
    assert counter.get_total_flops() == pytest.approx(model.executed_flops(**counts), rel=0.01)
    assert model.training_flops(**counts) > 1.05 * model.executed_flops(**counts) or checkpoint_activations


def test_the_head_of_next_sentence_prediction_is_counted_as_torch_counts_it():
    model, (tokens, _, _) = pair_model(attention_backend="eager").bfloat16(), make_batch((12, 12, 12))
    positions = torch.tensor([[0, 4, 7]] * 3)  # <s> predicts the next sentence, and no token
    labels = tokens.gather(1, positions).masked_fill(positions.eq(0), 1)
    counts = {"num_tokens": 36, "num_pairs": 3 * 12**2, "num_predicted": 6}

    def counted():
        with FlopCounterMode(display=False) as counter:
            loss, extra = model(tokens, predicted={"positions": positions, "labels": labels}, has_padding=False)
            sum([loss, *(logits.sum() for logits in extra.values())]).backward()
        return counter.get_total_flops()

    with_head = counted()
    expected = model.executed_flops(**counts, num_next_sentences=3)
    assert with_head == pytest.approx(expected, rel=0.01)
    model.encoder.next_sentence_head = None
    head = with_head - counted()
    assert head == 3 * 6 * (24**2 + 2 * 24)
    assert head == model.training_flops(**counts, num_next_sentences=3) - model.training_flops(**counts)
