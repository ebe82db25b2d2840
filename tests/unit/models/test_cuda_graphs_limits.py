"""When layers run without graphs, and what recordings must leave alone; by the stand-in on a CPU."""

import logging
from collections import Counter
from typing import ClassVar
from unittest.mock import patch

import pytest
import torch
from fairseq.nan_detector import NanDetector

from roberta_plugin.models import cuda_graphs
from roberta_plugin.models.cuda_graphs import CudaRecorder, LayerGraphs, why_no_graphs
from roberta_plugin.models.roberta import FastRobertaModel
from tests.graph_stand_in import CpuRecorder
from tests.tiny_graphs import FULL, LONG, SHORT, assert_same, gradients, graphs_of, inputs, loss_of, make_model
from tests.tiny_models import TinyTask, options, our_model


@pytest.fixture(autouse=True)
def recorded_at_the_second_time(monkeypatch):
    monkeypatch.setattr(cuda_graphs, "TIMES_AS_IT_IS", 1)


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
    assert caplog.text.count("--cuda-graphs: batches have more than 2 shapes") == 1


def test_a_shape_is_recorded_once_it_has_come_often(monkeypatch):
    monkeypatch.setattr(cuda_graphs, "TIMES_AS_IT_IS", 3)
    model, found = make_model("cpu", graphs=True), []
    for lengths in (SHORT, LONG, LONG, LONG, LONG, SHORT):
        loss_of(model, lengths, "cpu").backward()
        found.append(len(graphs_of(model)))
    assert found == [0, 0, 0, 0, 1, 1]


def test_hooks_of_modules_see_every_pass_so_that_fairseq_finds_the_first_nan(caplog):
    model = make_model("cpu", graphs=True)
    for _ in range(3):
        loss_of(model, LONG, "cpu").backward()
    with torch.no_grad():
        model.encoder.sentence_encoder.layers[1].fc1.bias[3] = float("nan")
    before = CpuRecorder.replays
    with caplog.at_level(logging.WARNING), NanDetector(model):
        loss_of(model, LONG, "cpu").backward()
    assert "NaN detected in output of encoder.sentence_encoder.layers.1" in caplog.text
    assert CpuRecorder.replays == before
    loss_of(model, LONG, "cpu").backward()
    assert CpuRecorder.replays == before + 2


class WatchfulRecorder(CpuRecorder):
    """Refuses a graph of autograd that contains a node in `kept`."""

    kept: ClassVar[list] = []

    def record(self, function):
        replay = super().record(function)
        result, seen = function.__self__._result, set()
        nodes = [] if result is None else [result.grad_fn]
        while nodes:
            node = nodes.pop()
            if node is not None and node not in seen:
                seen.add(node)
                nodes += [other for other, _ in node.next_functions]
        assert not seen & set(self.kept)
        return replay


def test_recordings_leave_hooks_and_nodes_of_the_parameters_alone(monkeypatch):
    """torch's DistributedDataParallel keeps their nodes, and with them the stream that it was made on."""
    model, calls = make_model("cpu", graphs=True), Counter()
    layers = model.encoder.sentence_encoder.layers
    model.encoder.sentence_encoder.graphs = LayerGraphs(layers, WatchfulRecorder)
    kept = [parameter.expand_as(parameter).grad_fn.next_functions[0][0] for parameter in layers.parameters()]
    monkeypatch.setattr(WatchfulRecorder, "kept", kept)
    for name, parameter in layers.named_parameters():
        parameter.register_hook(lambda gradient, name=name: calls.update([name]))
    for _ in range(4):
        loss_of(model, LONG, "cpu").backward()
    assert len(graphs_of(model)) == 1
    assert set(calls) == {name for name, _ in layers.named_parameters()}
    assert set(calls.values()) == {4}


class FailingRecorder(CpuRecorder):
    """Fails at the fourth graph: the backward pass of the second shape."""

    error: ClassVar[Exception] = torch.OutOfMemoryError("CUDA out of memory")

    def record(self, function):
        if len(self.recordings) == 3:
            function()
            raise self.error
        return super().record(function)


def test_without_memory_for_a_recording_the_training_goes_on_as_it_is(caplog):
    results = []
    for graphs in (False, True):
        model, found = make_model("cpu", graphs=graphs), []
        if graphs:
            model.encoder.sentence_encoder.graphs = LayerGraphs(model.encoder.sentence_encoder.layers, FailingRecorder)
        torch.manual_seed(7)
        with caplog.at_level(logging.WARNING):
            for lengths in (SHORT, SHORT, SHORT, LONG, LONG, LONG, SHORT, SHORT):
                loss_of(model, lengths, "cpu").backward()
                found += gradients(model)
        results.append(found)
    assert_same(*results, "cpu")
    assert len(graphs_of(model)) == 0
    assert graphs_of(model)._recorder is None and graphs_of(model)._gradients is None, "they hold memory"
    assert caplog.text.count("--cuda-graphs: the GPU's memory is not enough to record the layers") == 1


def test_what_cannot_be_recorded_is_an_error_that_names_the_option(monkeypatch):
    monkeypatch.setattr(FailingRecorder, "error", RuntimeError("operation not permitted when stream is capturing"))
    model = make_model("cpu", graphs=True)
    layers = model.encoder.sentence_encoder.layers
    model.encoder.sentence_encoder.graphs = LayerGraphs(layers, FailingRecorder)
    before, state = list(layers.parameters()), torch.get_rng_state()
    with pytest.raises(RuntimeError, match=r"batch of 4 x 17 positions. Leave --cuda-graphs out.*not permitted"):
        for lengths in (SHORT, SHORT, LONG, LONG):
            state = torch.get_rng_state()
            loss_of(model, lengths, "cpu").backward()
    assert all(one is other for one, other in zip(layers.parameters(), before, strict=True))
    after, expected = torch.get_rng_state(), make_model("cpu", graphs=False)
    torch.set_rng_state(state)
    expected.encoder.sentence_encoder.graphs = lambda layers, *inputs: inputs[0]  # what is drawn before the layers
    expected.encoder.sentence_encoder(inputs(LONG, "cpu")["src_tokens"], has_padding=True)
    assert torch.equal(torch.get_rng_state(), after)


def test_all_shapes_share_one_memory_for_gradients():
    model = make_model("cpu", graphs=True)
    for lengths in (SHORT, LONG, FULL) * 2:
        loss_of(model, lengths, "cpu").backward()
    assert len(graphs_of(model)) == 3
    assert len({id(recording.gradients) for recording in graphs_of(model)._recordings.values()}) == 1


def test_torch_compile_around_the_model_sees_the_layers(monkeypatch):
    model = make_model("cpu", graphs=True)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    for _ in range(3):
        loss_of(model, LONG, "cpu").backward()
    assert len(graphs_of(model)) == 0


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


def test_packed_rows_and_amp_are_said_to_have_no_graphs():
    gpu = torch.device("cuda", 0)
    assert why_no_graphs(gpu, is_packed=False) == ""
    assert why_no_graphs(gpu, is_packed=True).startswith("on packed rows: pad them")
    with torch.autocast("cpu", torch.bfloat16):
        assert why_no_graphs(torch.device("cpu"), is_packed=False) == "on cpu: it needs a GPU"
    with patch("torch.is_autocast_enabled", lambda device_type: device_type == "cuda"):
        assert why_no_graphs(gpu, is_packed=False).startswith("under --amp")
