"""Layers by graphs give what they give without, to the bit on a CPU, whatever comes between a forward and a backward.

On a CPU a stand-in records and replays (`tests/graph_stand_in.py`).
"""

import copy
from functools import partial

import pytest
import torch
from fairseq.distributed import LegacyDistributedDataParallel

from roberta_plugin.models import cuda_graphs
from roberta_plugin.models.cuda_graphs import LayerGraphs
from tests.graph_stand_in import CpuRecorder
from tests.tiny_graphs import (
    FULL,
    LONG,
    SHORT,
    assert_same,
    features_of,
    gradients,
    graphs_of,
    inputs,
    loss_of,
    make_model,
)
from tests.tiny_models import make_batch
from tests.unit.models.test_encoder import packed_batch


@pytest.fixture(autouse=True)
def recorded_at_the_second_time(monkeypatch):
    monkeypatch.setattr(cuda_graphs, "TIMES_AS_IT_IS", 1)


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def device(request):
    return "cpu" if request.param == "cpu" else request.getfixturevalue("gpu")


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
        for change in ("none", "moved", "frozen", "frozen ones moved", "replaced", "embeddings frozen"):
            if change == "moved":
                for parameter in layers.parameters():
                    parameter.data = 1.5 * parameter.data
            if change == "frozen":
                layers[0].requires_grad_(False)
            if change == "frozen ones moved":
                for parameter in layers[0].parameters():
                    parameter.data = 1.5 * parameter.data
            if change == "replaced":
                layers.load_state_dict({name: 1.1 * value for name, value in layers.state_dict().items()}, assign=True)
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


@pytest.mark.parametrize("wrapped", ["DistributedDataParallel", "legacy"])
def test_wrappers_for_several_ranks_see_every_gradient_once(wrapped, tmp_path, device):
    results = []
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        for graphs in (False, True):
            model, found = make_model(device, graphs=graphs), []
            if wrapped == "legacy":
                wrapper = LegacyDistributedDataParallel(model, process_group=torch.distributed.group.WORLD)
            else:
                wrapper = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
            torch.manual_seed(2)
            for _ in range(4):
                with wrapper.no_sync():
                    wrapper(**inputs(LONG, device))[0].backward()
                wrapper(**inputs(SHORT, device))[0].backward()
                if wrapped == "legacy":
                    wrapper.all_reduce_grads()
                found += gradients(model)
                model.zero_grad()
            results.append(found)
    finally:
        torch.distributed.destroy_process_group()
    assert_same(*results, device)
    assert len(graphs_of(model)) == 2


class TwoTypes(torch.nn.Module):
    """Layers of which one parameter has a type of its own."""

    def __init__(self):
        super().__init__()
        self.narrow = torch.nn.Parameter(torch.rand(5, 5))
        self.wide = torch.nn.Parameter(torch.rand(5, dtype=torch.float64))

    def forward(self, x, is_padding, positions):
        return ((x @ self.narrow).double() * self.wide.exp()).float()


def test_gradients_have_the_type_of_their_parameters_and_that_of_x_stays():
    layers, found = TwoTypes(), []
    x = torch.rand(2, 3, 5, requires_grad=True)
    for run in (layers, partial(LayerGraphs(layers, CpuRecorder), layers)):
        for factor in (1, 1, 1, 2):
            result = factor * run(x, None, None).square().sum()
            found.append(torch.autograd.grad(result, [x, layers.narrow, layers.wide]))
    for expected, gradients_by_graph in zip(found[:4], found[4:], strict=True):
        assert_same(gradients_by_graph, expected, "cpu")
    assert found[-1][2].dtype == torch.float64


def test_in_fp8_too():
    results = []
    for graphs in (False, True):
        model, found = make_model("cpu", graphs=graphs, fp8_products=True, encoder_ffn_embed_dim=48), []
        torch.manual_seed(3)
        for _ in range(3):
            loss_of(model, LONG, "cpu").backward()
            found += gradients(model)
        results.append(found)
    assert_same(*results, "cpu")
    assert len(graphs_of(model)) == 1


def test_a_copy_of_the_model_begins_without_graphs():
    model = make_model("cpu", graphs=True)
    for _ in range(2):
        loss_of(model, LONG, "cpu").backward()
    assert len(graphs_of(model)) == 1
    other = copy.deepcopy(model)
    assert len(graphs_of(other)) == 0
    assert graphs_of(other)._modules is other.encoder.sentence_encoder.layers
    assert graphs_of(other)._new_recorder is CpuRecorder
