"""Rotary positions and local windows: packed as padded, in linear memory, and turned as in Hugging Face's ModernBERT."""

import pytest
import torch
from transformers.models.modernbert import modeling_modernbert as theirs

from roberta_plugin.models import attention_kernels
from roberta_plugin.models.attention import BACKENDS
from roberta_plugin.models.positions import Places, Rotation
from tests.parity.test_attention_backends import LargestTensor
from tests.tiny_models import SWITCHED, make_batch, our_model

ROTARY = {"position_encoding": "rotary", "rotary_base": 1000.0}
WINDOWS = {"attention_window": 4, "global_attention_every": 2}
TOGETHER = {**ROTARY, **WINDOWS, "rotary_base_local": 50.0}
SWITCHES = {
    "rotary": ROTARY,
    "windows": WINDOWS,
    "together": TOGETHER,
    "shared": {**TOGETHER, "share_layers": "all"},
    "all switches": SWITCHED,
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
    config = theirs.ModernBertConfig(hidden_size=64, num_attention_heads=4, num_hidden_layers=4)
    embedding = theirs.ModernBertRotaryEmbedding(config)
    for kind, base in (("full_attention", 160_000.0), ("sliding_attention", 10_000.0)):
        expected = theirs.apply_rotary_pos_emb(q, k, *embedding(q, positions, kind))
        rotation = Rotation.at(positions, head_dim=16, base=base, dtype=q.dtype)
        for one, other in zip(Places(q=rotation, k=rotation).rotated(q, k), expected, strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
