"""The encoder: features, its initial weights, shared layers, and heads that begin by attending to neighbors."""

import io
from functools import partial
from itertools import chain

import pytest
import torch
from fairseq.utils import make_positions
from torch import nn

from roberta_plugin.data.batches import pack
from roberta_plugin.data.dynamic_masking import MaskedBatch
from roberta_plugin.launch.estimate import Shape
from roberta_plugin.models.attention import BACKENDS
from roberta_plugin.models.checkpoints import build_model
from roberta_plugin.models.config import init_std
from roberta_plugin.models.encoder import LearnedPositions, segments_of_pairs
from roberta_plugin.models.initial_weights import (
    initialize,
    neighbor_projections,
    offset_of_head,
    sinusoids,
    spread_frequencies,
)
from roberta_plugin.models.roberta import FastRobertaModel, RobertaEncoder
from roberta_plugin.models.sharing import joined, num_groups
from roberta_plugin.optim.adamw import set_layer_depths
from tests.refusals import refused
from tests.tiny_models import TinyTask, gathered, make_batch, on_device, options, our_model


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
        MaskedBatch(*(x.numpy() for x in arrays), len(targets)),
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
        pytest.skip("torch watches CUDA devices alone; test_gpu_steps has the same for any machine")
    tokens, masked, targets = make_batch((17, 17))
    model = our_model(attention_backend="auto").to(gpu)
    batch = on_device(gathered(masked, targets), gpu)
    tokens = tokens.to(gpu)
    for attempt in range(2):  # the first one may set up libraries
        torch.cuda.set_sync_debug_mode("error" if attempt else "default")
        try:
            loss, _ = model(tokens, predicted=batch, has_padding=False)
            loss.backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert loss.isfinite()


def test_segments_are_read_off_the_tokens_of_pairs():
    pair, single, without_a = [0, 5, 6, 2, 2, 7, 2], [0, 5, 2], [0, 2, 2, 7, 2]
    documents = [0, 5, 2, 0, 6, 2, 0, 2]
    assert segments_of_pairs(torch.tensor([[*pair, 1], [*single, 2, 7, 2, 1, 1], documents]))[:, :7].tolist() == [
        [0, 0, 0, 0, 1, 1, 1],
        [0, 0, 0, 1, 1, 1, 1],
        [0] * 7,
    ]
    assert segments_of_pairs(torch.tensor([[0]])).tolist() == [[0]]
    row = [pair, single, documents, without_a, single, pair, [1], [1]]
    positions = torch.tensor([[at for each in row for at in range(len(each))]])
    expected = [[0, 0, 0, 0, 1, 1, 1], [0] * 11, [0, 0, 1, 1, 1], [0, 0, 0], [0, 0, 0, 0, 1, 1, 1], [0, 0]]
    assert segments_of_pairs(torch.tensor([[*chain(*row)]]), positions).tolist() == [[*chain(*expected)]]


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


SHARED = {"encoder_layers": 4}
CHOICES = [("all", "all"), ("groups:2", "all"), ("all", "attention"), ("groups:2", "ffn"), ("groups:4", "all")]


def unrolled(model):
    """A model without shared layers, with the same weights."""
    copy = our_model(seed=5, **SHARED).double()
    copy.load_state_dict(model.state_dict())
    return copy


@pytest.mark.parametrize(("layers", "parts"), CHOICES)
def test_gradients_are_the_sum_over_the_unrolled_model(layers, parts):
    tokens, masked, targets = make_batch()
    model = our_model(**SHARED, share_layers=layers, share_parts=parts).double()
    plain = unrolled(model)
    for each in (model, plain):
        loss, _ = each(tokens, predicted=gathered(masked, targets))
        loss.backward()
    gradients = {name: parameter.grad for name, parameter in plain.named_parameters(remove_duplicate=False)}
    sums = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if not name.endswith("lm_head.weight"):  # that of the embeddings
            sums[parameter] = sums.get(parameter, 0) + gradients[name]
    for parameter, expected in sums.items():
        torch.testing.assert_close(parameter.grad, expected, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize(("layers", "parts"), CHOICES)
def test_shared_parameters_count_once_in_optimizer_checkpoint_and_estimate(layers, parts):
    model, plain = our_model(**SHARED, share_layers=layers, share_parts=parts), our_model(**SHARED)
    count = sum(parameter.numel() for parameter in model.parameters())
    groups = num_groups(layers, 4)
    shape = Shape(
        num_layers=4, dim=24, ffn_dim=40, num_heads=4, vocab_size=75, max_positions=40,
        options={"share_layers": layers, "share_parts": parts},
    )  # fmt: skip
    assert shape.num_parameters == count
    sizes = []
    for each in (model, plain):
        file = io.BytesIO()
        torch.save({name: value for name, value in each.state_dict().items() if ".layers." in name}, file)
        sizes.append(file.tell())
    assert list(model.state_dict()) == list(plain.state_dict())  # the names of an ordinary model
    assert groups == 4 or sizes[0] < 0.85 * sizes[1]


def test_copies_of_a_shared_layer_become_one_again_for_the_file():
    """As fairseq makes them on the way from a GPU; layers that differ stay as they are."""
    state = {name: value.clone() for name, value in our_model(**SHARED, share_layers="groups:2").state_dict().items()}
    result = joined(state, share_layers="groups:2")
    names = [f"encoder.sentence_encoder.layers.{number}.fc1.weight" for number in range(4)]
    pointers = [result[name].data_ptr() for name in names]
    assert pointers[0] == pointers[1] != pointers[2] == pointers[3]
    assert all(torch.equal(result[name], state[name]) for name in state)


def test_flops_are_those_of_all_layers():
    counts = {"num_tokens": 100, "num_pairs": 1000, "num_predicted": 15}
    shared, plain = our_model(**SHARED, share_layers="all"), our_model(**SHARED)
    assert shared.training_flops(**counts) == plain.training_flops(**counts)


def test_a_checkpoint_with_other_layers_is_refused():
    plain, model = our_model(**SHARED), our_model(**SHARED, share_layers="groups:2")
    message = r"layers\.0\..* and .*layers\.1\..*differ.*groups:2.*leave --share-layers"
    refused(message, model.upgrade_state_dict, dict(plain.state_dict()))
    shared = {name: value.clone() for name, value in model.state_dict().items()}  # as from safetensors
    model.upgrade_state_dict(shared)
    model.load_state_dict(shared)


def test_options_that_do_not_fit_are_refused():
    for layers, named in (
        ("groups:3", r"groups:3 does not divide the 4 layers.*1, 2, 4 groups"),
        ("groups:0", r"--share-layers must be none, all or groups:N.*'groups:0'"),
        ("some", r"--share-layers must be .*'some'"),
    ):
        refused(named, our_model, **SHARED, share_layers=layers)


def test_a_model_of_a_checkpoint_shares_its_layers_again(tmp_path):
    model = our_model(**SHARED, share_layers="groups:2").eval()
    saved = {**vars(options(**SHARED, share_layers="groups:2")), "_name": "fast_roberta"}
    state = {"model": model.state_dict(), "args": None, "cfg": {"task": {"_name": "roberta_masked_lm"}, "model": saved}}
    built = build_model(state, tmp_path / "a.pt", dictionary=TinyTask().source_dictionary)
    tokens, _, _ = make_batch()
    assert torch.equal(built(tokens)[0], model(tokens)[0])
    assert sum(p.numel() for p in built.parameters()) == sum(p.numel() for p in model.parameters())


def test_layer_wise_rates_go_by_the_highest_layer_that_uses_a_parameter():
    model = our_model(**SHARED, share_layers="groups:2", share_parts="ffn")
    set_layer_depths(model)
    layers = model.encoder.sentence_encoder.layers
    above = [(layer.self_attn.q_proj.weight, layer.fc1.weight) for layer in layers]
    assert [(a.optim_overrides["layers_above"], f.optim_overrides["layers_above"]) for a, f in above] == [
        (4, 3), (3, 3), (2, 1), (1, 1),
    ]  # fmt: skip
    assert model.encoder.lm_head.weight.optim_overrides["layers_above"] == 5  # that of the embeddings


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
    if layer.self_attn.q_norm is not None:
        q, k = layer.self_attn.q_norm(q), layer.self_attn.k_norm(k)
    return (q @ k.transpose(2, 3) * q.size(-1) ** -0.5).softmax(dim=-1)


@pytest.mark.parametrize(
    ("dim", "heads", "positions"), [(256, 4, 128), (192, 6, 64), (768, 12, 128)], ids=["small", "demo", "base"]
)
@pytest.mark.parametrize(
    "given",
    [
        {"encoder_normalize_before": True, "init_std": "width"},
        {},
        {"encoder_normalize_before": True, "qk_norm": True, "norm": "rms", "init_std": "width", "no_linear_bias": True},
    ],
    ids=["before", "after", "qk-norm"],
)
def test_heads_of_the_first_layer_attend_to_their_offsets(dim, heads, positions, given):
    sizes = {"encoder_layers": 3, "encoder_embed_dim": dim, "encoder_ffn_embed_dim": dim, "max_positions": positions}
    model = new_model(**sizes, encoder_attention_heads=heads, init_attention="neighbors", **given).eval()
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
    sizes = {"encoder_layers": 3, "encoder_embed_dim": 64, "encoder_attention_heads": 4, "max_positions": 40}
    plain, same = new_model(**sizes).state_dict(), new_model(**sizes, init_attention="random").state_dict()
    assert all(torch.equal(plain[name], same[name]) for name in plain)
    changed = new_model(**sizes, init_attention="neighbors").state_dict()
    assert changed.keys() == plain.keys()
    differ = {name for name in plain if not torch.equal(plain[name], changed[name])}
    projections = [f"{number}.self_attn.{part}_proj.weight" for number in range(2) for part in "qk"]
    expected = {f"encoder.sentence_encoder.layers.{name}" for name in projections}
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
    sizes = {"encoder_layers": 2, "encoder_embed_dim": 256, "encoder_attention_heads": 4}
    model = new_model(**sizes, init_std="width", init_attention="neighbors")
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
