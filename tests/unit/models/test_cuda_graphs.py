"""Layers by graphs give what they give without, to the bit on a CPU, whatever comes between a forward and a backward.

On a CPU a stand-in records and replays: it runs the recorded function again, on the same static tensors as a CUDA graph
and, as graphs do that share their memory, it loses what another recording has kept for its backward pass.
"""

import copy
import logging

import pytest
import torch

from roberta_plugin.models import cuda_graphs
from roberta_plugin.models.cuda_graphs import CudaRecorder, LayerGraphs
from roberta_plugin.models.roberta import FastRobertaModel
from tests.tiny_models import TinyTask, gathered, make_batch, options, our_model
from tests.unit.models.test_encoder import packed_batch

SIZES = {"encoder_embed_dim": 64, "encoder_attention_heads": 4}
SHORT, LONG, FULL = (9, 5, 1), (17, 9, 1, 13), (15, 15, 15)


class CpuRecorder:
    """Records on a CPU; `replays` counts what all of them have replayed."""

    device_type = "cpu"
    replays = 0

    def __init__(self) -> None:
        self.recordings: list = []

    def warm_up(self, function):
        for _ in range(3):
            function()

    def record(self, function):
        self.recordings.append(function.__self__)
        function()

        def replay():
            CpuRecorder.replays += 1
            for other in self.recordings:
                if other is not function.__self__:
                    other._result = None
            function()

        return replay


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def device(request):
    return "cpu" if request.param == "cpu" else request.getfixturevalue("gpu")


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


def test_updates_of_two_batches_each_are_those_without_graphs(device):
    """With dropout: the same random numbers, although recordings draw some on the way."""
    results = []
    for graphs in (False, True):
        model, found = make_model(device, graphs=graphs), []
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        torch.manual_seed(7)
        for pair in [(SHORT, SHORT), (SHORT, LONG), (LONG, SHORT), (FULL, LONG), (FULL, FULL)] * 2:
            optimizer.zero_grad()
            for lengths in pair:
                loss = loss_of(model, lengths, device)
                loss.backward()
                found.append(loss.detach())
            found += gradients(model)
            optimizer.step()
        results.append(found)
    assert len(graphs_of(model)) == 3
    assert_same(*results, device)


def test_every_head_runs_by_graphs(device):
    results = []
    for graphs in (False, True):
        model, found = make_model(device, graphs=graphs), []
        torch.manual_seed(5)
        model.register_classification_head("kind", num_classes=3)
        model.register_token_head("names", num_classes=4)
        model.register_span_head("answer")
        model.to(device).train()
        tokens = make_batch(LONG)[0].to(device)
        for _ in range(4):
            for head in ({"classification_head_name": "kind"}, {"token_head_name": "names"}, {"features_only": True}):
                features = model(tokens, has_padding=True, **head)[0]
                features.float().square().sum().backward()
                found.append(features.detach())
        found += gradients(model)
        results.append(found)
    assert len(graphs_of(model)) == 2  # of all positions, and of the first ones
    assert_same(*results, device)


def test_nothing_that_is_held_changes_at_the_next_replay(device):
    model = make_model(device, graphs=True)
    for _ in range(2):
        features_of(model, LONG, device).sum().backward()
    model.zero_grad()
    features = features_of(model, LONG, device)
    features.sum().backward()
    held = [features.detach(), *(parameter.grad for parameter in model.encoder.sentence_encoder.layers.parameters())]
    before = [tensor.clone() for tensor in held]
    for parameter in model.parameters():
        parameter.grad = None
    for seed in range(3):
        features_of(model, LONG, device, seed).sum().backward()
    assert_same(held, before, "cpu")


@pytest.mark.parametrize("second", [LONG, SHORT], ids=["the same shape", "another shape"])
def test_a_second_forward_before_the_backward_runs_without_a_graph(second, device):
    results = []
    for graphs in (False, True):
        model = make_model(device, graphs=graphs, dropout=0.0)
        for lengths in (LONG, LONG, second, second):
            features_of(model, lengths, device).sum().backward()
        model.zero_grad()
        first, other = features_of(model, LONG, device, 1), features_of(model, second, device, 2)
        (first.square().sum() + 3 * other.square().sum()).backward()
        results.append([first.detach(), other.detach(), *gradients(model)])
    assert len(graphs_of(model)) == (1 if second == LONG else 2)
    assert_same(*results, device)


def test_a_forward_whose_result_is_dropped_holds_up_nothing():
    model = make_model("cpu", graphs=True)
    loss_of(model, LONG, "cpu").backward()
    loss_of(model, LONG, "cpu")
    before = CpuRecorder.replays
    loss_of(model, LONG, "cpu").backward()
    assert CpuRecorder.replays == before + 2


def test_a_second_backward_is_refused(device):
    model = make_model(device, graphs=True)
    loss_of(model, LONG, device).backward()
    loss = loss_of(model, LONG, device)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="a second backward pass through the same forward pass"):
        loss.backward()


def test_frozen_and_moved_parameters_get_graphs_of_their_own(device):
    """Otherwise graphs would read where the parameters no longer are."""
    results = []
    for graphs in (False, True):
        model, found = make_model(device, graphs=graphs, dropout=0.0), []
        layers = model.encoder.sentence_encoder.layers
        for change in ("none", "moved", "frozen", "embeddings frozen"):
            if change == "moved":
                for parameter in layers.parameters():
                    parameter.data = 1.5 * parameter.data
            if change == "frozen":
                layers[0].requires_grad_(False)
            if change == "embeddings frozen":
                model.encoder.sentence_encoder.embed_tokens.requires_grad_(False)
                model.encoder.sentence_encoder.embed_positions.requires_grad_(False)
                model.encoder.sentence_encoder.layernorm_embedding.requires_grad_(False)
            for _ in range(3):
                model.zero_grad()
                loss = loss_of(model, LONG, device)
                loss.backward()
                found += [loss.detach(), *gradients(model)]
        results.append(found)
    assert_same(*results, device)
    layers.requires_grad_(False)
    loss_of(model, LONG, device).backward()


def test_an_update_in_place_is_seen_by_the_graphs(device):
    model = make_model(device, graphs=True, dropout=0.0)
    for _ in range(2):
        before = loss_of(model, LONG, device)
        before.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    assert abs(float(loss_of(model, LONG, device).detach()) - float(before.detach())) > 0.1
    assert len(graphs_of(model)) == 1


def test_other_passes_run_as_they_are():
    model = make_model("cpu", graphs=True, dropout=0.0)
    before = CpuRecorder.replays
    tokens, masked, targets = make_batch(LONG)
    row, packing, _ = packed_batch(tokens, masked, targets, multiple=64)
    for _ in range(3):
        model(row, packing=packing, features_only=True)
        model(tokens, has_padding=True, features_only=True, return_all_hiddens=True)
        with torch.no_grad():
            loss_of(model, LONG, "cpu")
        with torch.autocast("cpu", torch.bfloat16):
            loss_of(model, LONG, "cpu").backward()
        model.eval()
        loss_of(model, LONG, "cpu").backward()
        model.train()
    assert CpuRecorder.replays == before
    assert len(graphs_of(model)) == 0


def test_long_batches_and_too_many_shapes_run_as_they_are(monkeypatch, caplog):
    monkeypatch.setattr(cuda_graphs, "MOST_GRAPHS", 2)
    monkeypatch.setattr(cuda_graphs, "MOST_POSITIONS", 16 * 4)
    model = make_model("cpu", graphs=True)
    with caplog.at_level(logging.WARNING):
        for lengths in (SHORT, FULL, (6, 6), LONG, (7, 7)) * 4:
            loss_of(model, lengths, "cpu").backward()
    assert len(graphs_of(model)) == 2
    shapes = {key[2] for key in graphs_of(model)._recordings}
    assert shapes == {torch.Size([3, 9, 64]), torch.Size([3, 15, 64])}, "4 x 17 positions are too many"
    assert caplog.text.count("--cuda-graphs: batches have more than 2 shapes") == 2


def test_a_copy_of_the_model_begins_without_graphs():
    model = make_model("cpu", graphs=True)
    for _ in range(2):
        loss_of(model, LONG, "cpu").backward()
    assert len(graphs_of(model)) == 1
    other = copy.deepcopy(model)
    assert len(graphs_of(other)) == 0
    assert graphs_of(other)._modules is other.encoder.sentence_encoder.layers
    assert graphs_of(other)._new_recorder is CpuRecorder


@pytest.mark.parametrize("other", ["compile_layers", "checkpoint_activations"])
def test_contradictions_are_refused(other):
    with pytest.raises(ValueError, match=f"--cuda-graphs and --{other.replace('_', '-')} do not go together"):
        FastRobertaModel.build_model(options(cuda_graphs=True, **{other: True}), TinyTask())


def test_without_a_gpu_the_option_warns_and_changes_nothing(caplog):
    model, plain = (our_model(cuda_graphs=graphs).train() for graphs in (True, False))
    assert graphs_of(model)._new_recorder is CudaRecorder
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert torch.equal(loss_of(model, LONG, "cpu"), loss_of(plain, LONG, "cpu"))
    assert caplog.text.count("--cuda-graphs has no effect on cpu: it needs a GPU") == 1
