"""Parameters and FLOPs of a shape, against models that are built and products that are counted."""

import dataclasses

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from roberta_plugin.models.roberta import FastRobertaModel
from roberta_plugin.planner.flops import Shape, flops_per_token
from tests.tiny_models import TinyTask, options
from tests.tiny_pairs import pair_model

BASE = Shape()
LARGE = Shape(num_layers=24, dim=1024, ffn_dim=4096, num_heads=16)


def shape_of(model, **changes):
    cfg = model.cfg
    return Shape(
        num_layers=cfg.encoder_layers,
        dim=cfg.encoder_embed_dim,
        ffn_dim=cfg.encoder_ffn_embed_dim,
        num_heads=cfg.encoder_attention_heads,
        vocab_size=model.encoder.sentence_encoder.embed_tokens.num_embeddings,
        max_positions=cfg.max_positions,
        **changes,
    )


@pytest.mark.parametrize(
    ("norms", "num_outer_norms"),
    [
        ({}, 1),
        ({"encoder_normalize_before": True}, 2),
        ({"encoder_normalize_before": True, "no_layernorm_embedding": True}, 1),
    ],
    ids=["after", "before", "roberta_prenorm"],
)
def test_parameters_are_those_of_the_model(norms, num_outer_norms):
    model = FastRobertaModel.build_model(options(**norms), TinyTask())
    shape = shape_of(model, num_outer_norms=num_outer_norms)
    assert shape.num_parameters == sum(parameter.numel() for parameter in model.parameters())


def test_parameters_of_pairs_are_those_of_the_model():
    model = pair_model()
    shape = shape_of(model, predicts_next_sentence=True, num_segments=2)
    assert shape.num_parameters == sum(parameter.numel() for parameter in model.parameters())
    shorter = dataclasses.replace(shape, predicts_next_sentence=False)
    head = 6 * (24**2 + 2 * 24) / shape.tokens_per_sample
    assert flops_per_token(shape) - flops_per_token(shorter) == pytest.approx(head)


def test_parameters_of_the_released_models():
    """125 M and 355 M in the table of fairseq's examples/roberta/README.md."""
    assert round(BASE.num_parameters / 1e6) == 125
    assert round(LARGE.num_parameters / 1e6) == 355


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_flops_are_those_of_the_products(share):
    """Counted in a forward and backward pass of the model itself, the head on a share of the positions."""
    blocks, length = 2, 16
    model = FastRobertaModel.build_model(options(attention_backend="eager"), TinyTask()).double()
    tokens = torch.randint(4, 70, (blocks, length))
    masked = torch.arange(length).remainder(round(1 / share)).eq(0).expand(blocks, -1)
    with FlopCounterMode(display=False) as counter:
        scores, _ = model(tokens, masked_tokens=masked)
        scores.sum().backward()
    assert scores.shape[0] == masked.sum() == share * tokens.numel()
    shape = shape_of(model, tokens_per_sample=length, predicted_share=share)
    assert counter.get_total_flops() == pytest.approx(flops_per_token(shape) * tokens.numel(), rel=1e-9)


def test_base_and_large():
    """0.60 and 2.01 GFLOPs, worked out by hand from the formula's terms."""
    by_hand = 6 * 12 * (4 * 768**2 + 2 * 768 * 3072) + 12 * 12 * 768 * 512 + 0.9 * (768**2 + 768 * 50_265)
    assert flops_per_token(BASE) == pytest.approx(by_hand)
    assert flops_per_token(LARGE) / 1e9 == pytest.approx(2.01, abs=0.005)
