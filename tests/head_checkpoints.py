"""Heads in checkpoints: what becomes of one that the model has, lacks, or has with other sizes."""

import copy
import logging
import pickle

import torch

from tests.tiny_models import our_model

# As checkpoints have named them since the first version; fairseq's roberta has those of classes.
IN_LAYER = [*(f"self_attn.{part}_proj" for part in "kvq"), "self_attn.out_proj", "self_attn_layer_norm"]
IN_LAYER += ["fc1", "fc2", "final_layer_norm"]


def linears(*names):
    """Names of the parameters of linear layers."""
    return [f"{name}.{part}" for name in names for part in ("weight", "bias")]


def check_head(kind, sizes, others, names, caplog):
    """Check that a checkpoint's head of a kind is loaded, dropped or kept, by the `names` of parameters that files have.

    `others` are sizes that do not fit; None: it has none. `load_checkpoint_heads` builds a head that is in the file alone.
    """
    saved, same, built, other = our_model(), our_model(seed=1), our_model(load_checkpoint_heads=True), our_model(seed=2)
    bare = saved.state_dict()
    for model in (saved, same):
        model.register_head("mine", kind, **sizes)
    state = saved.state_dict()
    assert sorted(state.keys() - bare.keys()) == sorted(f"{kind}_heads.mine.{name}" for name in names)
    same.register_head("other", kind, **sizes)
    kept = copy.deepcopy(same.heads["other"].state_dict())
    with caplog.at_level(logging.WARNING):
        same.load_state_dict(state)
        built.load_state_dict(state)
    assert caplog.text == ""
    for model in (same, built, pickle.loads(pickle.dumps(built))):
        assert model.head_kinds["mine"] == kind
        assert len(list(model.heads["mine"].parameters())) == len(names)
        for name, value in model.heads["mine"].state_dict().items():
            assert torch.equal(value, state[f"{kind}_heads.mine.{name}"])
    for name, value in same.heads["other"].state_dict().items():
        assert torch.equal(value, kept[name])
    other.register_head("mine", kind if others else "made_token", **(others or {"num_classes": 2}))
    other.load_state_dict(state)
    assert f"{kind}_heads.mine of the checkpoint does not fit this model and is left out" in caplog.text
    assert torch.equal(other.encoder.lm_head.dense.weight, saved.encoder.lm_head.dense.weight)
