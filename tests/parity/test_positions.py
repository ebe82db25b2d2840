"""Rotary positions and local windows against a plain model in float64, and against Hugging Face's ModernBERT."""

import pytest
import torch
from transformers import ModernBertConfig
from transformers.models.modernbert import modeling_modernbert as theirs

from roberta_plugin.models import attention_kernels
from roberta_plugin.models.attention import BACKENDS, SelfAttention
from roberta_plugin.models.positions import Places, PositionScheme, Rotation
from tests.parity.test_attention_backends import LargestTensor
from tests.tiny_models import make_batch, our_model

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
