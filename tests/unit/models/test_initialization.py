"""BERT's initial weights."""

import torch
from torch import nn

from roberta_plugin.models.initialization import initialize


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
