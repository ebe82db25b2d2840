"""Our model against fairseq's `roberta`: same weights, same batch, same outputs and gradients; each loads the other."""

import pytest
import torch
import torch.nn.functional as F
from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.model import base_architecture

from roberta_plugin.models.attention import BACKENDS
from roberta_plugin.models.roberta import FastRobertaModel
from tests.tiny_models import TinyTask, fairseq_model, gathered, make_batch, options, our_model

TOLERANCE = {"atol": 1e-5, "rtol": 1e-5}
LENGTHS = [(17, 9, 1, 13), (23,), (16, 16), (1, 1), (39, 40)]


# fairseq's options of where the norms are -> ours
AFTER: tuple[dict[str, bool], dict[str, bool]] = ({}, {})
BEFORE = ({"encoder_normalize_before": True}, {"encoder_normalize_before": True})
PRENORM = (  # its architecture roberta_prenorm
    {"encoder_normalize_before": True, "layernorm_embedding": False},
    {"encoder_normalize_before": True, "no_layernorm_embedding": True},
)


def pair(norms=AFTER, **changes):
    theirs, ours = fairseq_model(**norms[0], **changes), our_model(seed=1, **norms[1], **changes)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def test_parameters_have_fairseqs_names_and_shapes():
    theirs, ours = fairseq_model().state_dict(), our_model().state_dict()
    assert {name: value.shape for name, value in ours.items()} == {name: value.shape for name, value in theirs.items()}


@pytest.mark.parametrize("backend", [name for name, backend in BACKENDS.items() if backend.serves_padded])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_outputs_and_gradients_are_fairseqs(lengths, backend):
    check_outputs_and_gradients(*pair(attention_backend=backend), lengths)


@pytest.mark.parametrize("norms", [BEFORE, PRENORM], ids=["before", "roberta_prenorm"])
def test_norms_before_the_sublayers_are_fairseqs(norms):
    theirs, ours = pair(norms)
    assert theirs.state_dict().keys() == ours.state_dict().keys()
    check_outputs_and_gradients(theirs, ours, LENGTHS[0])


def check_outputs_and_gradients(theirs, ours, lengths):
    tokens, masked, targets = make_batch(lengths)
    with torch.no_grad():
        expected, found = theirs(tokens)[0], ours(tokens)[0]
        hidden = theirs(tokens, features_only=True, return_all_hiddens=True)[1]["inner_states"]
        our_hidden = ours(tokens, features_only=True, return_all_hiddens=True)[1]["inner_states"]
    torch.testing.assert_close(found, expected, **TOLERANCE)
    assert len(our_hidden) == len(hidden) == 4
    for one, other in zip(our_hidden, hidden, strict=True):
        torch.testing.assert_close(one, other, **TOLERANCE)
    if not len(targets):
        return

    loss = F.cross_entropy(theirs(tokens, masked_tokens=masked)[0], targets, reduction="sum")
    our_loss, _ = ours(tokens, predicted=gathered(masked, targets))
    torch.testing.assert_close(our_loss, loss, **TOLERANCE)
    loss.backward()
    our_loss.backward()
    gradients = dict(ours.named_parameters())
    for name, parameter in theirs.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(gradients[name].grad, parameter.grad, msg=lambda m, n=name: f"{n}: {m}", **TOLERANCE)
    assert any(float(parameter.grad.abs().max()) > 0.1 for parameter in theirs.parameters())


def test_layerdrop_leaves_out_fairseqs_layers_in_training_and_none_otherwise():
    theirs, ours = pair(encoder_layerdrop=0.5)
    tokens, masked, targets = make_batch()
    losses = set()
    for seed in range(20):
        for model in (theirs, ours):
            model.zero_grad()
            model.train()
        torch.manual_seed(seed)
        loss = F.cross_entropy(theirs(tokens, masked_tokens=masked)[0], targets, reduction="sum")
        torch.manual_seed(seed)
        our_loss, _ = ours(tokens, predicted=gathered(masked, targets))
        torch.testing.assert_close(our_loss, loss, **TOLERANCE)
        loss.backward()
        our_loss.backward()
        gradients = dict(ours.named_parameters())
        for name, parameter in theirs.named_parameters():
            assert (parameter.grad is None) == (gradients[name].grad is None)
            if parameter.grad is not None:
                torch.testing.assert_close(gradients[name].grad, parameter.grad, **TOLERANCE)
        losses.add(round(loss.item(), 3))
    assert len(losses) == 8, "each subset of the three layers, none and all of them included"
    with torch.no_grad():
        torch.testing.assert_close(ours.eval()(tokens)[0], theirs.eval()(tokens)[0], **TOLERANCE)


@pytest.mark.parametrize("changes", [{"activation_fn": "relu"}, {"untie_weights_roberta": True}], ids=str)
def test_other_options_mean_the_same(changes):
    theirs, ours = pair(**changes)
    tokens, masked, _ = make_batch()
    expected = theirs(tokens, masked_tokens=masked)[0]
    torch.testing.assert_close(ours(tokens, masked_tokens=masked)[0], expected, **TOLERANCE)


def test_fairseq_loads_our_weights():
    ours, theirs = our_model(), fairseq_model(seed=1)
    theirs.load_state_dict(ours.state_dict())
    tokens, _, _ = make_batch()
    torch.testing.assert_close(theirs(tokens)[0], ours(tokens)[0], **TOLERANCE)


def test_the_layout_of_the_released_models_loads():
    """decoder., emb_layer_norm, query, key and value in one, no version: as roberta.base was released in 2019."""
    theirs, ours = fairseq_model(), our_model(seed=1)
    released = {}
    for name, value in theirs.state_dict().items():
        name = name.replace("encoder.", "decoder.", 1).replace("layernorm_embedding", "emb_layer_norm")
        if name.endswith(".version"):
            continue
        if ".q_proj." in name:
            state = theirs.state_dict()
            parts = [state[name.replace("decoder.", "encoder.", 1).replace("q_proj", f"{x}_proj")] for x in "qkv"]
            released[name.replace("q_proj.", "in_proj_")] = torch.cat(parts)
        elif ".k_proj." not in name and ".v_proj." not in name:
            released[name] = value
    assert "decoder.sentence_encoder.layers.0.self_attn.in_proj_weight" in released
    ours.load_state_dict(released)
    tokens, _, _ = make_batch()
    torch.testing.assert_close(ours(tokens)[0], theirs(tokens)[0], **TOLERANCE)


def test_classification_heads_go_both_ways():
    theirs = fairseq_model()
    theirs.register_classification_head("mnli", num_classes=3, inner_dim=10)
    ours = our_model(seed=1, load_checkpoint_heads=True)
    ours.load_state_dict(theirs.state_dict())
    tokens, _, _ = make_batch()
    asked = {"features_only": True, "classification_head_name": "mnli"}
    expected = theirs(tokens, **asked)[0]
    torch.testing.assert_close(ours(tokens, classification_head_name="mnli")[0], expected, **TOLERANCE)

    back = fairseq_model(seed=2, load_checkpoint_heads=True)
    back.load_state_dict(ours.state_dict())
    torch.testing.assert_close(back(tokens, **asked)[0], expected, **TOLERANCE)


def test_initial_weights_have_fairseqs_distribution():
    """Standard deviations of every kind of parameter agree before anything is learned."""

    sizes = {"encoder_embed_dim": 128, "encoder_ffn_embed_dim": 256}
    args = options(**sizes)
    base_architecture(args)
    theirs = RobertaModel.build_model(args, TinyTask(500)).state_dict()
    ours = FastRobertaModel.build_model(options(**sizes), TinyTask(500)).state_dict()
    for name, value in theirs.items():
        std, mean = float(value.std(correction=0)), float(value.mean())
        assert float(ours[name].std(correction=0)) == pytest.approx(std, rel=0.06, abs=1e-9), name
        assert float(ours[name].mean()) == pytest.approx(mean, abs=2e-3), name
