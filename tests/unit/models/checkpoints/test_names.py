"""Key maps: older layouts of fairseq come to today's names; unknown names pass through."""

import torch

from roberta_plugin.models.checkpoints.names import VERSION, from_older_fairseq

LAYER = "encoder.sentence_encoder.layers.0."


def test_older_names_become_todays():
    old = {
        "decoder.sentence_encoder.emb_layer_norm.weight": torch.zeros(4),
        "decoder.sentence_encoder.layers.0.layer_norms.0.bias": torch.ones(4),
        "decoder.sentence_encoder.layers.0.layer_norms.1.bias": torch.ones(4),
        "decoder.sentence_encoder.layers.0.self_attn.in_proj_weight": torch.arange(48.0).view(12, 4),
        "decoder.sentence_encoder.layers.0.self_attn.in_proj_bias": torch.arange(12.0),
        "classification_heads.mnli.dense.weight": torch.zeros(4, 4),
    }
    new = from_older_fairseq(old)
    assert set(new) == {
        "encoder.sentence_encoder.layernorm_embedding.weight",
        LAYER + "self_attn_layer_norm.bias",
        LAYER + "final_layer_norm.bias",
        *(f"{LAYER}self_attn.{x}_proj.{kind}" for x in "qkv" for kind in ("weight", "bias")),
        "classification_heads.mnli.dense.weight",
        VERSION,
    }
    assert new[LAYER + "self_attn.k_proj.bias"].tolist() == [4, 5, 6, 7]
    assert new[LAYER + "self_attn.v_proj.weight"].tolist() == torch.arange(32.0, 48.0).view(4, 4).tolist()


def test_todays_names_stay():
    state = {LAYER + "fc1.weight": torch.zeros(2, 2), VERSION: torch.tensor([3.0])}
    assert from_older_fairseq(state).keys() == state.keys()
