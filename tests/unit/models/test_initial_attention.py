"""Initial heads attend to the tokens beside, in models of any size, with norms before or after the sublayers."""

import pytest
import torch

from roberta_plugin.models.config import init_std
from roberta_plugin.models.initial_attention import (
    NUM_LAYERS,
    neighbor_projections,
    offset_of_head,
    sinusoids,
    spread_frequencies,
)
from roberta_plugin.models.roberta import FastRobertaModel
from tests.tiny_models import TinyTask, options


def new_model(**given):
    torch.manual_seed(3)
    return FastRobertaModel.build_model(options(**given), TinyTask(600))


def attention_of(model, number, tokens):
    """Weights (B, H, T, T) of a layer, computed plainly from its input."""
    _, hidden = model.encoder.sentence_encoder(tokens, has_padding=False, keep_hidden=True)
    layer = model.encoder.sentence_encoder.layers[number]
    x = layer.self_attn_layer_norm(hidden[number]) if layer.normalize_before else hidden[number]
    heads = layer.self_attn.num_heads
    q, k = (
        projection(x).float().unflatten(-1, (heads, -1)).transpose(1, 2)
        for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj)
    )
    return (q @ k.transpose(2, 3) * q.size(-1) ** -0.5).softmax(dim=-1)


@pytest.mark.parametrize(
    ("dim", "heads", "positions"), [(256, 4, 128), (192, 6, 64), (768, 12, 128)], ids=["small", "demo", "base"]
)
@pytest.mark.parametrize(
    "given", [{"encoder_normalize_before": True, "init_std": "width"}, {}], ids=["before", "after"]
)
def test_heads_of_the_first_layer_attend_to_their_offsets(dim, heads, positions, given):
    sizes = {"encoder_layers": 3, "encoder_embed_dim": dim, "encoder_ffn_embed_dim": dim}
    model = new_model(
        **sizes, encoder_attention_heads=heads, max_positions=positions, init_attention="neighbors", **given
    ).eval()
    tokens = torch.randint(4, 600, (4, positions))
    with torch.no_grad():
        weights = attention_of(model, 0, tokens)
    assert [offset_of_head(head) for head in range(6)][:heads] == [-1, 1, -2, 2, -3, 3][:heads]
    inside = torch.arange(heads, positions - heads)
    for head in range(heads):
        chosen = weights[:, head, inside].argmax(dim=-1)
        share = chosen.eq(inside + offset_of_head(head)).float().mean()
        attended = weights[:, head, inside, inside + offset_of_head(head)].mean()
        assert share > 0.6 and attended > 0.5, (head, float(share), float(attended))


def test_random_is_the_default_and_changes_nothing_and_neighbors_change_what_they_say():
    sizes = {
        "encoder_layers": NUM_LAYERS + 1,
        "encoder_embed_dim": 64,
        "encoder_attention_heads": 4,
        "max_positions": 40,
    }
    plain, same = new_model(**sizes).state_dict(), new_model(**sizes, init_attention="random").state_dict()
    assert all(torch.equal(plain[name], same[name]) for name in plain)
    changed = new_model(**sizes, init_attention="neighbors").state_dict()
    assert changed.keys() == plain.keys()
    differ = {name for name in plain if not torch.equal(plain[name], changed[name])}
    expected = {
        f"encoder.sentence_encoder.layers.{number}.self_attn.{part}_proj.weight"
        for number in range(NUM_LAYERS)
        for part in "qk"
    }
    assert differ == expected | {"encoder.sentence_encoder.embed_positions.weight"}
    assert not changed["encoder.sentence_encoder.embed_positions.weight"][1].any()  # padding


@pytest.mark.parametrize("std", ["0.02", "width"])
def test_positions_are_as_large_as_tokens(std):
    model = new_model(encoder_embed_dim=256, max_positions=64, init_std=std, init_attention="neighbors")
    table = model.encoder.sentence_encoder.embed_positions.weight.detach()[2:]
    assert float(table.square().mean().sqrt()) == pytest.approx(init_std(model.cfg), rel=1e-5)


@pytest.mark.parametrize(("dim", "heads"), [(6, 3), (10, 5), (9, 3), (7, 7)])
def test_sizes_that_do_not_divide_into_pairs_leave_the_rest_at_zero(dim, heads):
    queries, keys = neighbor_projections(spread_frequencies(heads, dim // heads // 2), dim=dim)
    assert queries.shape == keys.shape == (dim, dim)
    assert queries.isfinite().all() and keys.isfinite().all()
    new_model(encoder_layers=1, encoder_embed_dim=dim, encoder_attention_heads=heads, init_attention="neighbors")


@pytest.mark.parametrize(("heads", "number"), [(4, 32), (6, 16), (12, 32), (16, 32)])
def test_no_other_position_looks_like_the_neighbor_to_a_head(heads, number):
    frequencies = spread_frequencies(heads, number)
    assert frequencies.min() >= 0.05 and frequencies.max() <= 3.0
    for head in range(heads):
        table = sinusoids(512, frequencies[head])
        products = table @ table.T / number
        assert products.diagonal().allclose(torch.ones(512, dtype=torch.float64))
        products.fill_diagonal_(0.0)
        assert products.max() < 0.65
