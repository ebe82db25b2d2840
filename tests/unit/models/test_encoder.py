"""Recomputed activations, told and looked-up padding, and what padding may not change."""

import pytest
import torch
from fairseq.utils import make_positions
from torch import nn

from roberta_plugin.data.batches import pack
from roberta_plugin.data.dynamic_masking import Masked
from roberta_plugin.models.attention.registry import BACKENDS
from roberta_plugin.models.encoder import LearnedPositions, initialize
from roberta_plugin.models.roberta import FastRobertaModel
from tests.tiny_models import TinyTask, gathered, make_batch, options, our_model


def test_checkpointed_activations_give_the_same_gradients():
    tokens, masked, targets = make_batch()
    results = []
    for checkpoint_activations in (False, True):
        model = our_model(checkpoint_activations=checkpoint_activations, dropout=0.2, attention_dropout=0.2)
        torch.manual_seed(3)
        loss, _ = model(tokens, predicted=gathered(masked, targets))
        loss.backward()
        results.append([loss, *(parameter.grad for parameter in model.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("backend", [name for name, backend in BACKENDS.items() if backend.serves_padded])
def test_padding_changes_nothing_for_the_tokens(backend):
    model = our_model(attention_backend=backend).eval()
    tokens, _, _ = make_batch((9,))
    wider = torch.nn.functional.pad(tokens, (0, 6), value=1)
    torch.testing.assert_close(model(wider)[0][:, :9], model(tokens)[0], atol=1e-5, rtol=1e-5)
    assert torch.equal(model(wider, has_padding=True)[0], model(wider)[0])
    assert torch.equal(model(tokens, has_padding=False)[0], model(tokens)[0])


def test_bf16_stays_close_to_fp32():
    model = our_model().eval()
    tokens, masked, targets = make_batch()
    expected, _ = model(tokens, predicted=gathered(masked, targets))
    found, _ = model.bfloat16()(tokens, predicted=gathered(masked, targets))
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(expected.item(), rel=0.02)


@pytest.mark.parametrize("backend", [name for name, backend in BACKENDS.items() if backend.serves_padded])
@pytest.mark.parametrize("lengths", [(17, 9, 1, 13), (5, 5)])
def test_features_of_some_positions_are_those_of_all(backend, lengths):
    """The last layer leaves out what nothing is made of; no feature and no gradient may change by that."""
    tokens, masked, targets = make_batch(lengths)
    factors = torch.randn(len(targets), 24)
    predicted = gathered(masked, targets)
    results = []
    for chosen in (None, predicted):
        model = our_model(attention_backend=backend)
        features, _ = model.encoder.sentence_encoder(tokens, predicted=chosen)
        features = features[masked] if chosen is None else features[predicted["labels"].ne(1)]
        (features * factors).sum().backward()
        gradients = [p.grad for name, p in model.named_parameters() if "lm_head" not in name or p.grad is not None]
        results.append([features, *gradients])
    assert len(results[0]) > 40
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def packed_batch(tokens, masked, targets, *, multiple):
    """The same batch as one row, by the loader's own packing."""
    labels = torch.ones_like(tokens)
    labels[masked] = targets
    form = gathered(masked, targets)
    arrays = (tokens, labels, form["positions"], form["labels"])
    row = pack(
        Masked(*(x.numpy() for x in arrays), len(targets)),
        tokens.ne(1).sum(1).numpy(),
        pad_id=1,
        multiple=multiple,
        max_seqlen=tokens.size(1),
    )
    tensors = {name: torch.from_numpy(value) for name, value in row._asdict().items()}
    packing = {"positions": tensors["positions"], "cu_seqlens": tensors["cu_seqlens"], "max_seqlen": tokens.size(1)}
    predicted = {"positions": tensors["predicted"], "labels": tensors["labels"], "cu_seqlens": tensors["cu_seqlens_q"]}
    return tensors["tokens"], packing, {**predicted, "max_seqlen": tokens.size(1) + 128}


@pytest.mark.parametrize("backend", ["eager", "sdpa", "onednn"])
@pytest.mark.parametrize("multiple", [1, 64])
def test_packed_rows_give_the_loss_and_gradients_of_padded_batches(backend, multiple):
    tokens, masked, targets = make_batch((17, 9, 1, 13))
    row, packing, predicted = packed_batch(tokens, masked, targets, multiple=multiple)
    results = []
    for is_packed in (False, True):
        model = our_model(attention_backend=backend if is_packed else "eager")
        if is_packed:
            loss, _ = model(row, packing=packing, predicted=predicted)
            features = model(row, packing=packing, features_only=True)[0][0, : int(tokens.ne(1).sum())]
        else:
            loss, _ = model(tokens, predicted=gathered(masked, targets))
            features = model(tokens, features_only=True)[0][tokens.ne(1)]
        loss.backward()
        results.append([loss, features, *(parameter.grad for parameter in model.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-5)


@pytest.mark.slow
def test_compiled_layers_give_the_same_loss_and_count_their_graphs():
    """Compiling takes about a minute on a CPU."""
    results = []
    for compile_layers in (False, True):
        model = our_model(compile_layers=compile_layers)
        graphs = []
        for lengths in ((17, 9, 1, 13), (12, 12, 5), (30, 7), (21, 14, 3, 3, 2), (33, 8)):
            tokens, masked, targets = make_batch(lengths)
            loss, _ = model(tokens, predicted=gathered(masked, targets))
            loss.backward()
            graphs.append(model.num_compiled_graphs())
        results.append([loss, *(parameter.grad for parameter in model.parameters())])
    assert 0 < graphs[0] < graphs[-1] == graphs[-3], "new lengths go on being compiled"
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.gpu
def test_a_training_step_never_waits_for_the_gpu(gpu):
    """torch raises at every operation of the step that waits, once the loader has told what it knows."""
    if not gpu.startswith("cuda"):
        pytest.skip("torch watches CUDA devices alone; test_host_syncs has the same for any machine")
    tokens, masked, targets = make_batch((17, 17))
    model = our_model(attention_backend="auto").to(gpu)
    batch = {
        name: value.to(gpu) if torch.is_tensor(value) else value for name, value in gathered(masked, targets).items()
    }
    tokens = tokens.to(gpu)
    for attempt in range(2):  # the first one may set up libraries
        torch.cuda.set_sync_debug_mode("error" if attempt else "default")
        try:
            loss, _ = model(tokens, predicted=batch, has_padding=False)
            loss.backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert loss.isfinite()


def test_positions_are_fairseqs_with_padding_on_either_side_and_without():
    positions = LearnedPositions(10, 4, pad_id=1)
    assert positions.weight.shape == (12, 4)
    tokens = torch.tensor([[0, 5, 6, 2], [0, 2, 1, 1], [1, 0, 5, 2]])
    expected = positions.weight[make_positions(tokens, 1)]
    assert torch.equal(positions(tokens, is_padding=tokens.eq(1)), expected)
    told = torch.tensor([[0, 1, 2, 3], [0, 1, -1, -1], [-1, 0, 1, 2]])
    assert torch.equal(positions(tokens, positions=told), expected)
    assert torch.equal(positions(tokens[:1]).expand(1, -1, -1), expected[:1])


@pytest.mark.parametrize(
    ("given", "expected"), [({}, 0.02), ({"init_std": "0.1"}, 0.1), ({"init_std": "width"}, 0.0625)]
)
def test_the_initial_spread_is_that_of_the_option_in_all_matrices_and_later_heads(given, expected):
    torch.manual_seed(0)
    sizes = {"encoder_layers": 1, "encoder_embed_dim": 256, "encoder_ffn_embed_dim": 512}
    cfg = options(**sizes, untie_weights_roberta=True, **given)
    model = FastRobertaModel.build_model(cfg, TinyTask(600))
    model.register_head("mnli", "classification", num_classes=30)
    matrices = {name: value for name, value in model.named_parameters() if value.dim() > 1}
    assert {name.split(".")[0] for name in matrices} == {"encoder", "heads"} and len(matrices) == 12
    for name, value in matrices.items():
        assert float(value.detach().std()) == pytest.approx(expected, rel=0.04), name
    assert not any(value.any() for name, value in model.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize("normalize_before", [False, True], ids=["after", "before"])
@pytest.mark.parametrize("share_layers", ["none", "all"])
def test_silent_sublayers_add_nothing_at_first_and_learn_from_the_first_update(normalize_before, share_layers):
    # a large spread, beside which the norms' epsilon is nothing
    given = {"encoder_normalize_before": normalize_before, "share_layers": share_layers, "init_std": "0.5"}
    model = FastRobertaModel.build_model(options(zero_init_residual=True, **given), TinyTask())
    plain = FastRobertaModel.build_model(options(), TinyTask()).state_dict()
    silent = {
        name for name, value in model.state_dict().items() if plain.get(name, value).any() and not bool(value.any())
    }
    assert silent == {
        f"encoder.sentence_encoder.layers.{layer}.{name}.weight"
        for layer in range(3)
        for name in ("self_attn.out_proj", "fc2")
    }
    tokens, masked, targets = make_batch()
    hidden = model(tokens, return_all_hiddens=True)[1]["inner_states"]
    for state in hidden[1:]:
        torch.testing.assert_close(state, hidden[0], atol=1e-3, rtol=1e-3)  # norms of what is normal already
    model(tokens, predicted=gathered(masked, targets))[0].backward()
    assert all(layer.fc2.weight.grad.any() for layer in model.encoder.sentence_encoder.layers)


def test_matrices_are_normal_biases_and_padding_zero_and_norms_stay():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 200), nn.LayerNorm(200), nn.Embedding(100, 200, padding_idx=1))
    model.apply(initialize)
    linear, norm, embedding = model
    assert abs(float(linear.weight.std()) - 0.02) < 0.001
    assert not linear.bias.any()
    assert norm.weight.eq(1).all()
    assert not embedding.weight[1].any()
    assert abs(float(embedding.weight[2:].std()) - 0.02) < 0.001
