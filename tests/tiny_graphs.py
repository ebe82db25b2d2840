"""Small models with --cuda-graphs, by the stand-in on a CPU, and what tests compare of them."""

import torch

from roberta_plugin.models.cuda_graphs import LayerGraphs
from tests.graph_stand_in import CpuRecorder
from tests.tiny_models import gathered, make_batch, our_model

SIZES = {"encoder_embed_dim": 64, "encoder_attention_heads": 4}
SHORT, LONG, FULL = (9, 5, 1), (17, 9, 1, 13), (15, 15, 15)


def make_model(device, *, graphs, dropout=0.1, **changes):
    changes = {**SIZES, "dropout": dropout, "attention_dropout": dropout, **changes}
    model = our_model(cuda_graphs=graphs, **changes).to(device).train()
    if graphs and device == "cpu":
        encoder = model.encoder.sentence_encoder
        encoder.graphs = LayerGraphs(encoder.layers, CpuRecorder)
    model._has_begun = True
    return model


def inputs(lengths, device, seed=0):
    tokens, masked, targets = make_batch(lengths, seed=seed)
    predicted = gathered(masked, targets)
    predicted = {name: value.to(device) if torch.is_tensor(value) else value for name, value in predicted.items()}
    return {"src_tokens": tokens.to(device), "predicted": predicted, "has_padding": len(set(lengths)) > 1}


def loss_of(model, lengths, device, seed=0):
    return model(**inputs(lengths, device, seed))[0]


def features_of(model, lengths, device, seed=0):
    tokens = make_batch(lengths, seed=seed)[0].to(device)
    return model(tokens, has_padding=True, features_only=True)[0]


def graphs_of(model):
    return model.encoder.sentence_encoder.graphs


def gradients(model):
    return [None if parameter.grad is None else parameter.grad.clone() for parameter in model.parameters()]


def assert_same(found, expected, device):
    for one, other in zip(found, expected, strict=True):
        if one is None or other is None or device == "cpu":
            assert one is other or torch.equal(one, other)
        else:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
