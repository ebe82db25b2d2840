"""Rotary positions and local windows against a plain model in float64, and against Hugging Face's ModernBERT."""

import math

import pytest
import torch
import torch.nn.functional as F
from transformers import ModernBertConfig
from transformers.models.modernbert import modeling_modernbert as theirs

from roberta_plugin.models import attention_kernels
from roberta_plugin.models.attention import BACKENDS, SelfAttention
from roberta_plugin.models.positions import Places, PositionScheme, Rotation
from tests.parity.test_attention_backends import LargestTensor
from tests.tiny_models import gathered, make_batch, our_model

ROTARY = {"position_encoding": "rotary", "rotary_base": 1000.0}
WINDOWS = {"attention_window": 4, "global_attention_every": 2}
TOGETHER = {**ROTARY, **WINDOWS, "rotary_base_local": 50.0}
SWITCHES = {
    "rotary": ROTARY,
    "windows": WINDOWS,
    "together": TOGETHER,
    "shared": {**TOGETHER, "share_layers": "all"},
    "normalized before": {**TOGETHER, "encoder_normalize_before": True},
}
CHOICES = pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES)


def plain_features(model, tokens):
    """The features of one sequence (T,), every step written out."""
    encoder, cfg = model.encoder.sentence_encoder, model.cfg
    length = len(tokens)
    x = encoder.embed_tokens.weight[tokens]
    if cfg.position_encoding == "learned":
        x = x + encoder.embed_positions.weight[2 : 2 + length]
    x = encoder.layernorm_embedding(x)
    for number, layer in enumerate(encoder.layers):
        is_local = cfg.attention_window is not None and number % cfg.global_attention_every != 0
        own, before = layer.self_attn, cfg.encoder_normalize_before
        inputs = layer.self_attn_layer_norm(x) if before else x
        heads = []
        for head in range(own.num_heads):
            at = slice(head * 6, head * 6 + 6)
            q, k, v = (F.linear(inputs, p.weight[at], p.bias[at]) for p in (own.q_proj, own.k_proj, own.v_proj))
            if cfg.position_encoding == "rotary":
                base = (cfg.rotary_base_local or cfg.rotary_base) if is_local else cfg.rotary_base
                q, k = (torch.stack([turned(row, t, base) for t, row in enumerate(rows)]) for rows in (q, k))
            scores = q @ k.T / math.sqrt(6)
            if is_local:
                distances = torch.arange(length)[:, None] - torch.arange(length)
                scores = scores.masked_fill(distances.abs() > cfg.attention_window // 2, -math.inf)
            heads.append(torch.softmax(scores, dim=-1) @ v)
        x = x + own.out_proj(torch.cat(heads, dim=-1))
        if before:
            x = x + layer.fc2(F.gelu(layer.fc1(layer.final_layer_norm(x))))
        else:
            x = layer.self_attn_layer_norm(x)
            x = layer.final_layer_norm(x + layer.fc2(F.gelu(layer.fc1(x))))
    return x if encoder.layer_norm is None else encoder.layer_norm(x)


def turned(vector, position, base):
    """Complex numbers of dimensions i and i + K / 2, times exp(i t theta)."""
    half = len(vector) // 2
    angles = position * base ** -(torch.arange(half, dtype=vector.dtype) * 2 / len(vector))
    product = torch.complex(vector[:half], vector[half:]) * torch.complex(angles.cos(), angles.sin())
    return torch.cat((product.real, product.imag))


def gradients(model, outcome):
    model.zero_grad()
    outcome.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@CHOICES
def test_features_and_gradients_are_those_of_a_plain_model(switches):
    model = our_model(**switches).double()
    lengths = (17, 9, 1, 13)
    tokens, masked, targets = make_batch(lengths)
    has_table = any("embed_positions" in name for name in model.state_dict())
    assert has_table == (switches.get("position_encoding") != "rotary")
    expected = [plain_features(model, row[:length]) for row, length in zip(tokens, lengths, strict=True)]
    found = model(tokens, features_only=True)[0]
    for row, reference in zip(found, expected, strict=True):
        torch.testing.assert_close(row[: len(reference)], reference, atol=1e-9, rtol=1e-9)

    # as in training, where the last layer computes predicted positions alone
    chosen = torch.cat([row[keep[: len(row)]] for row, keep in zip(expected, masked, strict=True)])
    predicted = gathered(masked, targets)
    some = model.encoder.sentence_encoder(tokens, predicted=predicted)[0][predicted["labels"].ne(1)]
    own, wanted = (
        gradients(model, F.cross_entropy(model.encoder.lm_head(features), targets)) for features in (some, chosen)
    )
    assert own.keys() == wanted.keys(), own.keys() ^ wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(own[name], gradient, atol=1e-9, rtol=1e-8)


@CHOICES
@pytest.mark.parametrize("backend", BACKENDS)
def test_packed_rows_padded_batches_and_single_sequences_agree(switches, backend):
    if not BACKENDS[backend].serves_padded:
        pytest.skip(f"{backend} needs a GPU")
    model = our_model(**switches, attention_backend=backend).eval()
    lengths = (17, 9, 1, 13)
    tokens, *_ = make_batch(lengths)
    single = [model(row[None, :length], features_only=True)[0][0] for row, length in zip(tokens, lengths, strict=True)]
    padded = model(tokens, features_only=True)[0]
    row = torch.cat([row[:length] for row, length in zip(tokens, lengths, strict=True)])[None]
    bounds = torch.tensor([0, *lengths]).cumsum(0).int()
    packing = {"positions": torch.cat([torch.arange(n) for n in lengths])[None]}
    packing |= {"cu_seqlens": bounds, "max_seqlen": 17}
    packed = model(row, features_only=True, packing=packing)[0][0].split(lengths)
    for number, length in enumerate(lengths):
        torch.testing.assert_close(padded[number, :length], single[number], atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(packed[number], single[number], atol=2e-5, rtol=1e-4)
    wanted = torch.tensor([[0, 3, 5, 16, 17, 25, 26, 38, 0]])  # of the row; the last belongs to no sequence
    predicted = {"positions": wanted, "cu_seqlens": torch.tensor([0, 4, 6, 7, 8]).int(), "max_seqlen": 4}
    some = model.encoder.sentence_encoder(row, packing=packing, predicted=predicted)[0][0]
    torch.testing.assert_close(some[:-1], torch.cat(packed)[wanted[0, :-1]], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_step_with_8192_tokens_keeps_no_square_of_the_length(layout, dropout, monkeypatch):
    """Neither as a result of an operation nor for the backward pass, in global layers and in local ones."""
    monkeypatch.setattr(attention_kernels, "MOST_WEIGHTS", 2**22)  # as with 64 times as many heads
    length, kept = 8192, []
    sizes = {"encoder_embed_dim": 16, "encoder_attention_heads": 1, "encoder_layers": 3, "max_positions": length}
    windows = {"attention_window": 128, "global_attention_every": 3, "attention_dropout": dropout}
    model = our_model(**sizes, **ROTARY, **windows)
    tokens = torch.randint(4, 74, (1, length))
    positions = torch.arange(0, length, 7)[None]
    predicted, options = {"positions": positions, "labels": tokens.gather(1, positions)}, {"has_padding": False}
    if layout == "packed":
        bounds = torch.tensor([0, length]).int()
        packing = {"positions": torch.arange(length)[None], "cu_seqlens": bounds, "max_seqlen": length}
        options = {"packing": packing}
        predicted |= {"cu_seqlens": torch.tensor([0, positions.size(1)]).int(), "max_seqlen": positions.size(1)}
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x)
    with LargestTensor() as largest:
        with hooks:
            loss = model(tokens, predicted=predicted, **options)[0]
        loss.backward()
    assert loss.isfinite()
    assert largest.numel <= length**2 // 4 and sum(kept) < length**2 // 4


def test_rotated_queries_and_keys_are_hugging_faces():
    """Its ModernBERT makes the angles in fp32 for any type."""
    positions = torch.cat((torch.arange(9), torch.arange(5), torch.tensor([8191])))[None]
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 4, 15, 16, generator=generator) for _ in range(2))
    config = modern_config()
    embedding = theirs.ModernBertRotaryEmbedding(config)
    for kind, base in (("full_attention", 160_000.0), ("sliding_attention", 10_000.0)):
        expected = theirs.apply_rotary_pos_emb(q, k, *embedding(q, positions, kind))
        rotation = Rotation.at(positions, head_dim=16, base=base, dtype=q.dtype)
        for one, other in zip(Places(q=rotation, k=rotation).rotated(q, k), expected, strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def modern_config():
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4, "intermediate_size": 96}
    return ModernBertConfig(**sizes, local_attention=8, vocab_size=50, pad_token_id=0, attn_implementation="eager")


def test_attention_of_global_and_local_layers_is_that_of_modernbert():
    """Forward and gradients of its attention, with its own masks: which keys lie within a window is its word, too."""
    config = modern_config()
    torch.manual_seed(0)
    model = theirs.ModernBertModel(config).eval()
    scheme = PositionScheme(16, 160_000.0, 10_000.0, config.local_attention, 3)
    assert [scheme.is_local(number) for number in range(4)] == [False, True, True, False]
    x = torch.randn(2, 23, 64)
    is_padding = torch.arange(23) >= torch.tensor([[23], [15]])
    seen = {}
    for number, layer in enumerate(model.layers):
        layer.attn.register_forward_pre_hook(
            lambda _module, _args, named, number=number: seen.update({number: named}), with_kwargs=True
        )
    with torch.no_grad():
        model(inputs_embeds=x, attention_mask=(~is_padding).long())
    for number, layer in enumerate(model.layers):
        ours = SelfAttention(64, num_heads=4, dropout_prob=0.0)
        projections = (ours.q_proj, ours.k_proj, ours.v_proj)
        for projection, weight in zip(projections, layer.attn.Wqkv.weight.chunk(3), strict=True):
            projection.weight.data, projection.bias.data = weight.detach().clone(), torch.zeros(64)
        ours.out_proj.weight.data, ours.out_proj.bias.data = layer.attn.Wo.weight.detach().clone(), torch.zeros(64)
        inputs = [x.clone().requires_grad_() for _ in range(2)]
        options = {name: seen[number][name] for name in ("position_embeddings", "attention_mask")}
        expected = layer.attn(inputs[0], **options)[0]
        places = scheme.places(x, None)[scheme.is_local(number)]
        found = ours(inputs[1], is_padding=is_padding, places=places)
        torch.testing.assert_close(found[~is_padding], expected[~is_padding], atol=1e-5, rtol=1e-4)
        for output in (found, expected):
            (output[~is_padding] ** 2).sum().backward()
        torch.testing.assert_close(inputs[1].grad, inputs[0].grad, atol=1e-5, rtol=1e-4)
