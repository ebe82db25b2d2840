"""Initial weights from counts of neighboring tokens: the factors, the heads, and what the model then predicts."""

import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import sparse

from roberta_plugin.models.initial_counts import (
    PSEUDO_COUNT,
    begin_with_counts,
    distance_of_head,
    distances,
    factorize,
    information,
)
from roberta_plugin.models.roberta import FastRobertaModel
from tests.refusals import refused
from tests.tiny_models import TinyTask, options
from tests.unit.models.test_encoder import attention_of

SYMBOLS, FIRST = 60, 4  # and the special symbols before
SIZES = {
    "encoder_layers": 2,
    "encoder_embed_dim": 96,
    "encoder_attention_heads": 4,
    "encoder_ffn_embed_dim": 96,
    "max_positions": 32,
    "encoder_normalize_before": True,
    "init_std": "width",
    "zero_init_residual": True,
    "init_attention": "counts",
    "dropout": 0.0,
    "attention_dropout": 0.0,
}
ROTARY = {"position_encoding": "rotary", "qk_norm": True}


@pytest.fixture(scope="module", name="chain")
def made_up_text():
    """Ids of a text in which each symbol is followed by one of three."""
    random = np.random.default_rng(0)
    follows = random.integers(0, SYMBOLS, (SYMBOLS, 3))
    ids = [0]
    for choice in random.choice(3, 20_000, p=[0.7, 0.2, 0.1]):
        ids.append(follows[ids[-1], choice])
    return np.array(ids) + FIRST


def pairs_of(ids, *apart, size=SYMBOLS + FIRST + 1):
    ones = np.ones(len(ids))
    return {d: sparse.csr_matrix((ones[d:], (ids[:-d], ids[d:])), shape=(size, size)) for d in apart}


def begun(chain, **changes):
    torch.manual_seed(1)
    model = FastRobertaModel.build_model(options(**SIZES | changes), TinyTask(SYMBOLS + FIRST + 1))
    num_heads = model.encoder.sentence_encoder.layers[0].self_attn.num_heads
    size = len(model.encoder.sentence_encoder.embed_tokens.weight)
    begin_with_counts(model, pairs_of(chain, *distances(num_heads), size=size))
    return model.eval()


def test_half_of_the_heads_attend_to_the_tokens_beside_theirs():
    assert [distance_of_head(head, 4) for head in range(4)] == [-1, 1, -2, 2]
    assert [distance_of_head(head, 6) for head in range(6)] == [-1, 1, -1, 1, -2, 2]
    assert [distance_of_head(head, 12) for head in range(12)] == 3 * [-1, 1] + 3 * [-2, 2]
    assert [distances(number) for number in (1, 2, 3, 12)] == [[1], [1], [1, 2], [1, 2]]


def test_information_is_that_of_a_plain_loop(chain):
    counts = pairs_of(chain[:300], 1)[1]
    shares = np.asarray(counts.sum(axis=0)).ravel() / counts.sum()
    found, number = information(counts, shares).toarray(), 0
    dense = counts.toarray()
    for v, w in np.ndindex(*dense.shape):
        if dense[v, w] == 0:
            assert found[v, w] == 0
            continue
        ratio = (dense[v, w] + PSEUDO_COUNT * shares[w]) / ((dense[v].sum() + PSEUDO_COUNT) * shares[w])
        assert found[v, w] == pytest.approx(max(0.0, math.log(ratio)))
        number += found[v, w] > 0
    assert number > 50


def test_with_enough_dimensions_the_factors_give_the_information_back(chain):
    pairs = pairs_of(chain, 1, 2)
    size = pairs[1].shape[0] - 1  # four symbols do not occur
    factors = factorize(pairs, size=size, std=0.1)
    for distance, count in pairs.items():
        expected = information(count, factors.shares).toarray()
        found = factors.embeddings @ factors.cores[distance] @ factors.embeddings.T
        assert np.abs(found - expected).max() < 0.01 < expected.max()
    lengths = np.linalg.norm(factors.embeddings, axis=1)
    assert not lengths[:FIRST].any()
    assert np.median(lengths[FIRST:-1]) == pytest.approx(0.1 * math.sqrt(size), rel=0.05)


def test_factors_are_the_same_in_each_process(chain):
    first, second = (factorize(pairs_of(chain, 1), size=20, std=0.1) for _ in range(2))
    assert np.array_equal(first.embeddings, second.embeddings)


@pytest.mark.parametrize("heads", [4, 6])
@pytest.mark.parametrize(
    "changes",
    [{}, {"qk_norm": True}, ROTARY, {**ROTARY, "qk_norm": False}],
    ids=["learned", "qk", "rotary-qk", "rotary"],
)
def test_heads_of_both_layers_attend_to_their_offsets(chain, changes, heads):
    """The second layer less, where it sees learned positions beneath what the first has added."""
    model = begun(chain, encoder_attention_heads=heads, encoder_embed_dim=192, **changes)
    tokens = torch.from_numpy(chain[:128]).view(4, 32)
    for number, least in ((0, 0.5), (1, 0.15)):
        weights = attend(model, number, tokens)
        inside = torch.arange(2, 30)
        for head in range(heads):
            there = inside + distance_of_head(head, heads)
            assert weights[:, head, inside].argmax(dim=-1).eq(there).float().mean() > 0.9, (number, head)
            assert weights[:, head, inside, there].mean() > least, (number, head)


@pytest.mark.parametrize("changes", [{}, ROTARY, {**ROTARY, "rotary_base": 1.6e5}], ids=["learned", "rotary", "large"])
def test_heads_find_their_offsets_in_long_blocks_too(chain, changes):
    """Where few rotary pairs would see the same angle again after some dozens of tokens."""
    model = begun(chain, encoder_embed_dim=128, encoder_attention_heads=2, max_positions=512, **changes)
    weights = attend(model, 0, torch.from_numpy(chain[:512])[None])
    inside = torch.arange(2, 510)
    for head, offset in enumerate((-1, 1)):
        assert weights[0, head, inside, inside + offset].mean() > 0.8


def attend(model, number, tokens):
    """Weights (B, H, T, T), with rotary positions too."""
    if model.cfg.position_encoding != "rotary":
        return attention_of(model, number, tokens)
    encoder = model.encoder.sentence_encoder
    _, hidden = encoder(tokens, has_padding=False, keep_hidden=True)
    layer = encoder.layers[number]
    attn, x = layer.self_attn, layer.self_attn_layer_norm(hidden[number])
    q, k = (
        projection(x).float().unflatten(-1, (attn.num_heads, -1)).transpose(1, 2)
        for projection in (attn.q_proj, attn.k_proj)
    )
    if attn.q_norm is not None:
        q, k = attn.q_norm(q), attn.k_norm(k)
    half = q.size(-1) // 2
    angles = torch.arange(tokens.size(1))[:, None] * 1e4 ** (-torch.arange(half) / half)
    turned = [
        torch.cat([y[..., :half] * angles.cos() - y[..., half:] * angles.sin(),
                   y[..., half:] * angles.cos() + y[..., :half] * angles.sin()], dim=-1)
        for y in (q, k)
    ]  # fmt: skip
    return (turned[0] @ turned[1].transpose(2, 3) * q.size(-1) ** -0.5).softmax(dim=-1)


def loss_between_neighbors(model, chain):
    """Mean cross-entropy of one masked token of each block, in nats."""
    blocks = torch.from_numpy(chain[: 32 * 100]).view(100, 32).clone()
    places = torch.arange(100) % 20 + 5
    rows = torch.arange(100)
    targets = blocks[rows, places].clone()
    blocks[rows, places] = model.encoder.sentence_encoder.embed_tokens.weight.size(0) - 1  # <mask>
    with torch.no_grad():
        logits = model(blocks)[0][rows, places]
    return float(torch.nn.functional.cross_entropy(logits, targets))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        ROTARY,
        {"untie_weights_roberta": True},
        {"encoder_normalize_before": False},
        {"norm": "rms"},
        {"norm": "rms", **ROTARY},
        {"encoder_attention_heads": 12, **ROTARY},
        {"no_linear_bias": True},
        {"no_layernorm_embedding": True},
        {"activation_fn": "tanh"},
    ],
    ids=[
        "learned",
        "rotary",
        "untied",
        "norms-after",
        "rms",
        "rms-rotary",
        "heads-of-8",
        "no-bias",
        "no-embedding-norm",
        "tanh",
    ],
)
def test_without_training_the_model_predicts_from_both_neighbors(chain, changes):
    shares = np.bincount(chain) / len(chain)
    unigram = -float((shares[shares > 0] * np.log(shares[shares > 0])).sum())
    model = begun(chain, **changes)
    loss = loss_between_neighbors(model, chain)
    assert loss < 0.4 * unigram, (loss, unigram)
    random = FastRobertaModel.build_model(options(**SIZES | changes), TinyTask(SYMBOLS + FIRST + 1)).eval()
    assert loss_between_neighbors(random, chain) > 0.95 * unigram
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_symbols_that_do_not_occur_keep_their_random_embeddings(chain):
    model = begun(chain)
    table = model.encoder.sentence_encoder.embed_tokens.weight.detach()
    torch.manual_seed(1)
    before = FastRobertaModel.build_model(options(**SIZES), TinyTask(SYMBOLS + FIRST + 1))
    same = table.eq(before.encoder.sentence_encoder.embed_tokens.weight).all(dim=1)
    occurs = torch.from_numpy(np.bincount(chain, minlength=len(table)) > 0)
    assert torch.equal(same, ~occurs) and occurs.sum() > 40
    assert not table[occurs][:, :24].any(), "the first dimensions are for positions"


def test_a_text_of_three_words_gives_finite_weights_and_an_empty_one_is_refused():
    model = FastRobertaModel.build_model(options(**SIZES), TinyTask(SYMBOLS + FIRST + 1))
    size = len(model.encoder.sentence_encoder.embed_tokens.weight)
    begin_with_counts(model, pairs_of(np.array([5, 6, 7, 5]), 1, 2, size=size))
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    empty = pairs_of(np.array([5]), 1, 2, size=size)
    refused("has no tokens to count for --init-attention counts", begin_with_counts, model, empty)
    same = pairs_of(np.array([5] * 100), 1, 2, size=size)
    refused("one token again and again, .*: give --init-attention random", begin_with_counts, model, same)


@pytest.mark.parametrize("changes", [{}, {"encoder_layers": 1}, ROTARY], ids=["learned", "one-layer", "rotary"])
def test_a_model_of_one_head_attends_to_the_token_before(chain, changes):
    """Learned positions have half of its dimensions."""
    model = begun(chain, encoder_attention_heads=1, **changes)
    weights = attend(model, 0, torch.from_numpy(chain[:64]).view(2, 32))
    inside = torch.arange(2, 30)
    assert weights[:, 0, inside].argmax(dim=-1).eq(inside - 1).all()


@pytest.mark.parametrize("sizes", [(96, 96), (3, 1)], ids=["one-dimension", "none-for-tokens"])
def test_heads_without_room_for_positions_are_refused(sizes):
    dim, heads = sizes
    changes = {"encoder_embed_dim": dim, "encoder_attention_heads": heads}
    refused("heads of 1 of 96 are too few" if dim == 96 else "heads of 3 of 3", new_model_of, changes)


def new_model_of(changes):
    return FastRobertaModel.build_model(options(**SIZES | changes), TinyTask(SYMBOLS))


def test_a_training_of_another_task_is_refused_unless_it_starts_with_weights():
    """As random weights are what it would begin with."""
    chosen, counting = options(**SIZES), SimpleNamespace(begins_with_counts=True)
    check = partial(FastRobertaModel.check_start, chosen)
    refused("--init-attention counts needs --task roberta_masked_lm, ", check, TinyTask, has_start=False)
    check(TinyTask, has_start=True)
    check(counting, has_start=False)
    FastRobertaModel.check_start(options(**SIZES | {"init_attention": "random"}), TinyTask, has_start=False)
