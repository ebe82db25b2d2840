"""Rotary positions and local windows in all that knows a model: options, checkpoints, answers, formats and counts."""

import logging

import pytest
import torch

from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.hub import RobertaHub
from roberta_plugin.models.adapters import TARGETS, add_adapters
from roberta_plugin.models.attention_kernels import AttentionMask, attend
from roberta_plugin.models.checkpoints import model_options
from roberta_plugin.models.compiling import compile_layers
from roberta_plugin.models.flops import training_flops
from roberta_plugin.models.positions import PositionScheme, Rotation, _Turn
from roberta_plugin.models.precision import available, set_precision
from roberta_plugin.models.roberta import FastRobertaModel
from tests.fake_cuda import Watch, fake_cuda
from tests.refusals import refused
from tests.tiny_checkpoints import change_options
from tests.tiny_conversions import batch, write_checkpoint
from tests.tiny_models import TinyTask, gathered, make_batch, options, our_model, sequence_model

ROTARY = {"position_encoding": "rotary"}
ALL_ON = {**ROTARY, "rotary_base_local": 100.0, "attention_window": 4, "global_attention_every": 2}
CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position_encoding": "none"}, "--position-encoding must be learned or rotary, got 'none'"),
        ({"attention_window": 5}, "--attention-window must be even, half of it on either side of a position, got 5"),
        ({**ROTARY, "encoder_embed_dim": 20}, r"heads of 5 have no whole number of them: change --encoder-attention"),
        (
            {**ROTARY, "init_attention": "neighbors"},
            "embeddings of positions, .*: give --init-attention counts or random",
        ),
        (
            {**ROTARY, "init_attention": "counts", "no_linear_bias": True},
            "biases of queries and keys .*--no-linear-bias",
        ),
        ({"init_attention": "counts", "share_layers": "all"}, "--share-layers all the same: leave one of them out"),
        (
            {**ROTARY, "init_attention": "counts", "encoder_embed_dim": 4, "encoder_attention_heads": 2},
            "heads of 2 have fewer: lower --encoder-attention-heads",
        ),
        (
            {"init_attention": "counts", "no_layernorm_embedding": True},
            "a norm in front of the first attention: leave out --no-layernorm-embedding",
        ),
    ],
    ids=str,
)
def test_options_that_exclude_each_other_are_refused(changes, message):
    refused(message, FastRobertaModel.build_model, options(**changes), TinyTask())


def test_a_window_over_whole_blocks_is_told(caplog):
    """And computed as global attention, since blocks may grow, and texts at answers are shorter."""
    tokens, *_ = make_batch()
    outputs = [our_model(**changes).eval()(tokens)[0] for changes in ({}, {"attention_window": 78})]
    assert "--attention-window 78 reaches over whole blocks of 40 positions: all layers attend to all" in caplog.text
    assert torch.equal(*outputs)


def test_layers_that_are_recomputed_compiled_or_dropped_stay_what_they_are():
    tokens, masked, targets = make_batch()
    losses = []
    for changes in ({}, {"checkpoint_activations": True}, {"compiled": True}):
        is_compiled = changes.pop("compiled", False)
        model = our_model(**ALL_ON, **changes)
        if is_compiled:
            compile_layers(model.encoder.sentence_encoder.layers, backend="eager")
        loss = model(tokens, predicted=gathered(masked, targets))[0]
        loss.backward()
        losses.append([loss, *(p.grad for _, p in model.named_parameters() if p.grad is not None)])
    for others in losses[1:]:
        for one, other in zip(losses[0], others, strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    model, adapted = our_model(**ALL_ON).eval(), our_model(**ALL_ON).eval()
    add_adapters(adapted, rank=2, alpha=4.0, targets=TARGETS)  # which add nothing at first
    torch.testing.assert_close(adapted(tokens)[0], model(tokens)[0])
    model = our_model(**ALL_ON, encoder_layerdrop=0.5)
    torch.manual_seed(2)
    kept = [number for number, _ in model.encoder.sentence_encoder._kept_layers()]
    assert 0 < len(kept) < 3 and kept != list(range(len(kept))), "the numbers, by which layers are local, are lost"


def test_global_layers_turn_by_their_own_base_and_local_ones_by_theirs():
    x = torch.zeros(1, 9, 16)
    places = PositionScheme(head_dim=8, base=1000.0, base_local=10.0, window=4, global_every=2).places(x, None)
    for of_layers, base in zip(places, (1000.0, 10.0), strict=True):
        expected = Rotation.at(torch.arange(9)[None], head_dim=8, base=base, dtype=x.dtype)
        assert torch.equal(of_layers.q.cosines, expected.cosines) and torch.equal(of_layers.k.sines, expected.sines)
    assert not torch.equal(places[0].q.cosines, places[1].q.cosines)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_heads_turned_as_on_a_gpu_are_the_same_and_so_are_their_gradients(dtype):
    """Of queries that are a part of a larger product in memory, with an even gradient and without."""
    torch.manual_seed(0)
    rotation = Rotation.at(torch.arange(11)[None], head_dim=8, base=100.0, dtype=dtype)
    x = torch.randn(2, 11, 3, 4, 8).to(dtype)[:, :, 1].transpose(1, 2).requires_grad_()  # -> (B, H, T, K)
    upstream = torch.randn(2, 4, 11, 8).to(dtype)
    found = _Turn.apply(x.transpose(1, 2), *rotation).transpose(1, 2)
    wide = x.detach().double().requires_grad_()
    expected = Rotation(*(each.double() for each in rotation)).rotate(wide)
    close = {torch.bfloat16: 2**-8, torch.float32: 1e-6, torch.float64: 1e-14}[dtype]  # one rounding
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=close)
    assert found.stride() == rotation.rotate(x).stride()
    for gradient in (upstream, upstream.transpose(1, 2).contiguous().transpose(1, 2)):
        (ours,) = torch.autograd.grad(found, x, gradient, retain_graph=True)
        (theirs,) = torch.autograd.grad(expected, wide, gradient.double(), retain_graph=True)
        torch.testing.assert_close(ours.double(), theirs, atol=1e-6, rtol=close)


def test_on_a_gpu_three_kernels_turn_queries_in_their_own_type():
    with fake_cuda(), Watch() as watch:
        positions = torch.arange(11, device="cuda")[None]
        rotation = Rotation.at(positions, head_dim=8, base=100.0, dtype=torch.bfloat16)
        watch.counts.clear()
        x = torch.empty(1, 4, 11, 8, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        turned = rotation.rotate(x)
        assert turned.dtype == torch.bfloat16 and turned.stride() == (352, 8, 32, 1)
        turned.backward(torch.empty_like(turned))
    assert x.grad.dtype == torch.bfloat16
    assert (watch.counts["mul"], watch.counts["addcmul"]) == (2, 4)
    assert not {"cat", "_to_copy", "sub", "slice_backward"} & watch.counts.keys()


def test_a_window_never_shows_padding():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 1, 12, 4) for _ in range(3))
    is_padding = torch.zeros(2, 12, dtype=torch.bool)
    is_padding[0, 7:] = True
    mask = AttentionMask(is_padding=is_padding, reach=2)
    found = attend(q, k, v, mask, 0.0)
    other_k, other_v = (torch.where(is_padding[:, None, :, None], torch.randn_like(each), each) for each in (k, v))
    again = attend(q, other_k, other_v, mask, 0.0)
    assert torch.equal(found[0, :, :7], again[0, :, :7]), "texts depend on what stands in their padding"
    alone = attend(*(each[:1, :, :7] for each in (q, k, v)), AttentionMask(reach=2), 0.0)
    torch.testing.assert_close(found[:1, :, :7], alone)


@pytest.mark.parametrize("precision", [name for name in available(CPU) if name != "fp32"])
def test_answers_in_lower_precision_are_close(precision):
    tokens, *_ = make_batch((40, 9, 1, 33))
    is_token = tokens.ne(1)
    model = our_model(**ALL_ON).eval()
    with torch.no_grad():
        expected = model(tokens, features_only=True)[0][is_token]
        set_precision(model, precision, CPU)
        found = model(tokens, features_only=True)[0][is_token]
    assert float((found - expected).norm() / expected.norm()) < 0.05


def test_segments_go_to_the_tokens_where_there_is_no_table(caplog):
    """Without segments in the data all tokens are of the first one: the same probabilities, as with learned positions."""
    caplog.set_level(logging.INFO)
    paired = sequence_model(**ROTARY).eval()
    plain = FastRobertaModel.build_model(options(**ROTARY), TinyTask()).eval()
    plain.load_state_dict(paired.state_dict())
    assert "the first segment's is added to the tokens" in caplog.text
    tokens, *_ = make_batch()
    is_token = tokens.ne(1)
    expected, found = (model(tokens)[0][is_token].softmax(dim=-1) for model in (paired, plain))
    torch.testing.assert_close(found, expected)


def test_a_checkpoint_of_other_positions_is_refused_by_its_option():
    learned, rotary = our_model(), our_model(**ROTARY)
    message = "has {} positions, and this model {} ones: give --position-encoding"
    refused(message.format("learned", "rotary"), rotary.load_state_dict, learned.state_dict())
    refused(message.format("rotary", "learned"), learned.load_state_dict, rotary.state_dict())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("rotary"), **ALL_ON)


def test_a_checkpoint_says_its_positions_and_windows(folder):
    state = load_state(folder / "model.pt")
    found = model_options(state)
    wanted = {"position-encoding": "rotary", "rotary-base-local": "100.0", "max-positions": "40"}
    wanted |= {"attention-window": "4", "global-attention-every": "2"}
    assert {name: found[name] for name in wanted} == wanted
    assert "rotary-base" not in found  # the default
    del state["cfg"]["model"]["max_positions"]
    change_options(state, "task", tokens_per_sample=24)  # as fairseq-train leaves it without --max-positions
    assert model_options(state)["max-positions"] == "24"
    assert not {"position-encoding", "attention-window"} & model_options({**state, **old_state(folder)}).keys()
    for option, value in (("rotary_base", "10; x"), ("position_encoding", "x")):
        changed = load_state(folder / "model.pt")
        change_options(changed, "model", **{option: value})
        if option == "position_encoding":
            changed["model"]["encoder.sentence_encoder.embed_positions.weight"] = torch.zeros(42, 24)
        refused(f"the option {option} of the model must be", model_options, changed)


def old_state(folder):
    """A checkpoint of a version without these options."""
    state = load_state(write_checkpoint(folder / "old") / "model.pt")
    for name in ALL_ON:
        state["cfg"]["model"].pop(name, None)
    return state


def test_answers_go_on_beyond_the_training_with_a_warning(folder, caplog):
    hub = RobertaHub.from_pretrained(folder)
    ids, _ = batch(folder)
    hub.extract_features(ids)
    assert "rotary" not in caplog.text
    longer = torch.randint(4, 20, (2, 90))
    features = hub.extract_features(longer)
    assert features.shape == (2, 90, 24)
    hub.extract_features(longer)
    assert caplog.text.count("A text has 90 tokens, and the model was trained with at most 40") == 1
    learned = RobertaHub.from_pretrained(write_checkpoint(folder / "learned"))
    refused("this model reads at most 40: shorten it", learned.extract_features, longer)


def test_pairs_of_positions_are_counted_by_windows():
    sizes = {"num_layers": 3, "dim": 16, "ffn_dim": 0, "vocab_size": 0, "num_predicted": 0}
    counts = {"num_tokens": 8192, "num_pairs": 8192**2}
    layers = training_flops(**sizes, num_tokens=8192, num_pairs=0)
    local = training_flops(**sizes, **counts, num_local_layers=2, window=128) - layers
    assert local == 12 * 16 * (8192**2 + 2 * 129 * 8192)
    short = training_flops(**sizes, num_tokens=100, num_pairs=1000)
    assert training_flops(**sizes, num_tokens=100, num_pairs=1000, num_local_layers=2, window=128) == short
    model = our_model(**ALL_ON)
    local = {"num_local_layers": 1, "window": 4}
    assert model.training_flops(num_tokens=80, num_pairs=3200, num_predicted=8) == training_flops(
        num_layers=3, dim=24, ffn_dim=40, vocab_size=75, num_tokens=80, num_pairs=3200, num_predicted=8, **local
    )
