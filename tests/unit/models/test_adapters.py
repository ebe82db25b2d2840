"""Frozen layers keep their bits and cost no backward pass; adapters train, are merged, and come back as they were."""

import copy

import pytest
import torch

from roberta_plugin.models.adapters import TARGETS, add_adapters, check_layers, freeze_layers, merge
from roberta_plugin.optim.adamw import set_layer_depths
from tests.refusals import refused
from tests.tiny_models import fairseq_model, make_batch, our_model

LOWER = ("embed", "layers.0.", "layers.1.")


def with_head(model):
    torch.manual_seed(1)
    model.register_classification_head("topic", num_classes=3)
    return model


def adapted(*, rank=4, alpha=6.0, targets=TARGETS, is_new=False, **more):
    """A model with adapters; those that are not new add something."""
    model = with_head(our_model())
    torch.manual_seed(2)
    add_adapters(model, rank=rank, alpha=alpha, targets=targets, **more)
    for name, parameter in model.named_parameters():
        if name.endswith("lora_B") and not is_new:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def logits_of(model):
    return model(make_batch()[0], head="topic")[0]


def loss_of(model):
    return torch.nn.functional.cross_entropy(logits_of(model), torch.tensor([0, 2, 1, 1]))


def train(model, steps=3):
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.01, weight_decay=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("make", [our_model, fairseq_model])
def test_frozen_layers_keep_their_bits_and_the_others_have_the_same_gradients(make):
    plain, frozen = with_head(make()), with_head(make())
    freeze_layers(frozen, 2)
    outputs = []
    encoder = frozen.encoder.sentence_encoder
    encoder.layers[1].register_forward_hook(lambda module, inputs, output: outputs.append(output))
    for model in (plain, frozen):
        loss = model(make_batch()[0], features_only=True, classification_head_name="topic")[0].square().sum()
        loss.backward()
    found = outputs[0][0] if isinstance(outputs[0], tuple) else outputs[0]
    assert not found.requires_grad, "no backward pass below"
    theirs = dict(plain.named_parameters())
    upper = 0
    for name, parameter in frozen.named_parameters():
        if any(part in name for part in LOWER):
            assert parameter.grad is None and theirs[name].grad is not None, name
        elif parameter.grad is not None:
            assert torch.equal(parameter.grad, theirs[name].grad), name
            upper += 1
    assert upper >= 16 + 4


def test_training_moves_all_but_the_frozen_layers():
    model = with_head(our_model())
    freeze_layers(model, 2)
    before = copy.deepcopy(model.state_dict())
    after = train(model).state_dict()
    for name, value in before.items():
        is_lower = any(part in name for part in LOWER)
        is_trained = "layers.2." in name or name.startswith("classification_heads")
        if is_lower or is_trained:
            assert torch.equal(value, after[name]) == is_lower, name


def test_more_layers_than_there_are_and_shared_ones_are_refused():
    refused("--freeze-layers 4: the model has 3 layers", freeze_layers, our_model(), 4)
    refused("layer 1 shares weights with a frozen one", freeze_layers, our_model(share_layers="all"), 1)
    freeze_layers(our_model(share_layers="all"), 3)
    message = "--freeze-layers 3 leaves no layer for the adapters of --lora-rank 4"
    refused(message, check_layers, 3, total=3, rank=4)


def test_the_last_norm_of_an_encoder_that_normalizes_before_is_trained():
    model = our_model(encoder_normalize_before=True)
    freeze_layers(model, 3)
    trained = {name for name, value in model.encoder.sentence_encoder.named_parameters() if value.requires_grad}
    assert trained == {"layer_norm.weight", "layer_norm.bias"}


def test_an_adapter_adds_its_product_and_begins_without_effect():
    plain, new, model = with_head(our_model()), adapted(is_new=True), adapted()
    assert torch.equal(logits_of(new), logits_of(adapted(is_new=True, rank=7)))
    torch.testing.assert_close(logits_of(new), logits_of(plain), atol=1e-6, rtol=1e-5)
    layer, theirs = model.encoder.sentence_encoder.layers[1].fc1, plain.encoder.sentence_encoder.layers[1].fc1
    x = torch.randn(5, 24)
    expected = theirs(x) + 6.0 / 4 * (x @ layer.adapter.lora_A.T) @ layer.adapter.lora_B.T
    torch.testing.assert_close(layer(x), expected)
    assert not torch.allclose(logits_of(model), logits_of(plain), atol=1e-3)


@pytest.mark.parametrize("targets", [("q_proj", "v_proj"), TARGETS])
def test_only_adapters_and_heads_are_trained(targets):
    model = adapted(targets=targets, first_layer=1)
    before = copy.deepcopy(model.state_dict())
    after = train(model).state_dict()
    moved = {name for name, value in before.items() if not torch.equal(value, after[name])}
    adapters = {name for name in before if "lora_" in name}
    assert len(adapters) == 2 * len(targets) * 2, "two matrices each, in two layers"
    assert adapters <= moved
    assert all(name.startswith("classification_heads") for name in moved - adapters)
    set_layer_depths(model)
    assert model.encoder.sentence_encoder.layers[1].fc1.weight.optim_overrides == {"layers_above": 2}


def test_the_weights_with_the_adapters_added_compute_the_same():
    model = adapted()
    state = model.state_dict()
    taken = merge(state)
    assert len(taken) == 3 * 3 * len(TARGETS) and state.keys() == with_head(our_model()).state_dict().keys()
    merged = with_head(our_model(seed=5))
    merged.load_state_dict(model.state_dict())  # merges as well
    assert all(torch.equal(value, state[name]) for name, value in merged.state_dict().items())
    torch.testing.assert_close(logits_of(merged), logits_of(model))


def test_checkpoints_with_and_without_adapters_load():
    model = adapted()
    again = adapted(is_new=True)
    again.load_state_dict(model.state_dict())
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    from_plain = adapted(is_new=True)
    from_plain.load_state_dict(with_head(our_model(seed=5)).state_dict())
    torch.testing.assert_close(logits_of(from_plain), logits_of(with_head(our_model(seed=5))), atol=1e-6, rtol=1e-5)
    for changes in ({"rank": 2}, {"alpha": 1.0}, {"targets": ("fc1",)}):
        other = adapted(**changes, is_new=True)
        other.load_state_dict(model.state_dict())
        torch.testing.assert_close(logits_of(other), logits_of(model), msg="they go on from what was learned")
