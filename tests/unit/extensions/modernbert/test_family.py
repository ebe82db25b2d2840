"""ModernBERT's fields and names: what they are here, without its program."""

from pathlib import Path

import pytest
import torch

from roberta_plugin.extensions.modernbert.family import as_roberta, from_config

CONFIG = {"num_hidden_layers": 6, "max_position_embeddings": 64}


def test_the_joined_projection_is_queries_keys_and_values_in_this_order():
    joined = torch.arange(3.0)[:, None].expand(3, 4).repeat_interleave(4, dim=0)
    found = as_roberta({"model.layers.2.attn.Wqkv.weight": joined}, {"no_linear_bias": True})
    for number, name in enumerate(("query", "key", "value")):
        assert found.pop(f"roberta.encoder.layer.2.attention.self.{name}.weight").eq(number).all(), name
    assert not found


@pytest.mark.parametrize(("written", "window"), [(2, 2), (3, 2), (5, 4), (128, 128), (129, 128)])
def test_half_of_local_attention_without_its_rest_lies_on_either_side(written, window):
    found = from_config({**CONFIG, "local_attention": written}, Path("config.json"))
    assert found["attention_window"] == window, "transformers looks local_attention // 2 positions to either side"
