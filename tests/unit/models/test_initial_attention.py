"""Initial heads attend to the tokens beside, in models of any size, with norms before or after the sublayers."""

from functools import partial

import pytest
import torch

from roberta_plugin.models.config import init_std
from roberta_plugin.models.encoder import initialize
from roberta_plugin.models.initial_attention import neighbor_projections, offset_of_head, sinusoids, spread_frequencies
from roberta_plugin.models.roberta import FastRobertaModel
from roberta_plugin.models.roberta_encoder import RobertaEncoder
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
    assert [offset_of_head(head) for head in range(6)][:heads] == [-1, 1, -2, 2, -3, 3][:heads]
    check_that_heads_attend_to_their_offsets(model, 0, positions)


@pytest.mark.parametrize("normalize_before", [True, False])
def test_with_silent_sublayers_so_do_those_of_the_second_layer(normalize_before):
    sizes = {"encoder_layers": 3, "encoder_embed_dim": 256, "encoder_attention_heads": 4, "max_positions": 64}
    given = {"encoder_normalize_before": normalize_before, "init_std": "width", "zero_init_residual": True}
    model = new_model(**sizes, **given, init_attention="neighbors").eval()
    for number in (0, 1):
        check_that_heads_attend_to_their_offsets(model, number, 64)
    for layer in model.encoder.sentence_encoder.layers:
        assert not layer.self_attn.out_proj.weight.any() and not layer.fc2.weight.any()


def check_that_heads_attend_to_their_offsets(model, number, positions):
    with torch.no_grad():
        weights = attention_of(model, number, torch.randint(4, 600, (4, positions)))
    heads = weights.size(1)
    inside = torch.arange(heads, positions - heads)
    for head in range(heads):
        chosen = weights[:, head, inside].argmax(dim=-1)
        share = chosen.eq(inside + offset_of_head(head)).float().mean()
        attended = weights[:, head, inside, inside + offset_of_head(head)].mean()
        assert share > 0.6 and attended > 0.5, (number, head, float(share), float(attended))


def test_random_is_the_default_and_changes_nothing_and_neighbors_change_what_they_say():
    sizes = {
        "encoder_layers": 3,
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
        f"encoder.sentence_encoder.layers.{number}.self_attn.{part}_proj.weight" for number in range(2) for part in "qk"
    }
    assert differ == expected | {"encoder.sentence_encoder.embed_positions.weight"}
    assert not changed["encoder.sentence_encoder.embed_positions.weight"][1].any()  # padding


def test_without_the_options_only_bert_s_numbers_are_drawn():
    """After those that the modules' own constructors draw."""
    model = new_model(encoder_layers=2, encoder_embed_dim=64, encoder_attention_heads=4, max_positions=40)
    state = torch.get_rng_state()
    torch.manual_seed(3)
    encoder = RobertaEncoder(model.cfg, TinyTask(600).source_dictionary)
    encoder.apply(partial(initialize, std=0.02))
    assert torch.equal(torch.get_rng_state(), state), "other random numbers are drawn than those of BERT's weights"
    found = model.encoder.state_dict()
    assert all(torch.equal(found[name], value) for name, value in encoder.state_dict().items())


def test_the_first_two_layers_begin_alike_but_for_random_numbers_as_bert_draws_them():
    model = new_model(
        encoder_layers=2, encoder_embed_dim=256, encoder_attention_heads=4, init_std="width", init_attention="neighbors"
    )
    queries, keys = neighbor_projections(spread_frequencies(4, 32), dim=256)
    attentions = [layer.self_attn for layer in model.encoder.sentence_encoder.layers]
    rests = [part.q_proj.weight.detach() - queries for part in attentions]
    rests += [part.k_proj.weight.detach() - keys for part in attentions]
    for rest in rests:
        assert float(rest.std()) == pytest.approx(0.02, rel=0.02)
    assert float(torch.corrcoef(torch.stack([rest.flatten() for rest in rests])).fill_diagonal_(0).abs().max()) < 0.02


@pytest.mark.parametrize(("dim", "heads"), [(256, 4), (192, 6), (768, 12)])
def test_the_score_at_the_offset_is_12_and_lower_elsewhere(dim, heads):
    frequencies = spread_frequencies(heads, dim // heads // 2)
    queries, keys = neighbor_projections(frequencies, dim=dim)
    table = sinusoids(100, frequencies.flatten())
    for head in range(heads):
        rows = slice(head * dim // heads, (head + 1) * dim // heads)
        scores = (table @ queries[rows].T) @ (table @ keys[rows].T).T / (dim // heads) ** 0.5
        own = scores.diagonal(offset_of_head(head))
        assert own.allclose(torch.full_like(own, 12.0))
        elsewhere = scores - torch.diag_embed(own, offset_of_head(head))
        assert float(elsewhere.max()) < 0.65 * 12


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
