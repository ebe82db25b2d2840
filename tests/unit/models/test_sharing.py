"""Shared layers: counted once, gradients of the unrolled model, and what loads into what."""

import io

import pytest
import torch

from roberta_plugin.models.checkpoints.building import build_model
from roberta_plugin.models.sharing import joined, num_groups
from roberta_plugin.optim.adamw import set_layer_depths
from roberta_plugin.planner.flops import Shape
from tests.tiny_models import TinyTask, gathered, make_batch, options, our_model

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
def test_shared_parameters_count_once_in_optimizer_checkpoint_and_plan(layers, parts):
    model, plain = our_model(**SHARED, share_layers=layers, share_parts=parts), our_model(**SHARED)
    count = sum(parameter.numel() for parameter in model.parameters())
    groups = num_groups(layers, 4)
    shape = Shape(
        num_layers=4, dim=24, ffn_dim=40, num_heads=4, vocab_size=75, max_positions=40,
        num_attentions=groups if parts in ("all", "attention") else None,
        num_ffns=groups if parts in ("all", "ffn") else None,
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
    assert our_model(**SHARED, share_layers="all").training_flops(**counts) == our_model(**SHARED).training_flops(
        **counts
    )


def test_a_checkpoint_with_other_layers_is_refused():
    plain, model = our_model(**SHARED), our_model(**SHARED, share_layers="groups:2")
    with pytest.raises(ValueError, match=r"layers\.0\..* and .*layers\.1\..*differ.*groups:2.*leave --share-layers"):
        model.upgrade_state_dict(dict(plain.state_dict()))
    shared = {name: value.clone() for name, value in model.state_dict().items()}  # as from safetensors
    model.upgrade_state_dict(shared)
    model.load_state_dict(shared)


@pytest.mark.parametrize(
    ("layers", "named"),
    [
        ("groups:3", r"groups:3 does not divide the 4 layers.*1, 2, 4 groups"),
        ("groups:0", r"--share-layers must be none, all or groups:N.*'groups:0'"),
        ("some", r"--share-layers must be .*'some'"),
    ],
)
def test_options_that_do_not_fit_are_refused(layers, named):
    with pytest.raises(ValueError, match=named):
        our_model(**SHARED, share_layers=layers)


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
