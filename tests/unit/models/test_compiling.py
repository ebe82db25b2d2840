"""Compiled layers: training, validation, padding and last batches all run in graphs, and the end of that is logged."""

import logging

import pytest
import torch

from roberta_plugin.models import attention, compiling
from roberta_plugin.models.attention import BACKENDS
from tests.tiny_models import gathered, make_batch, on_device, our_model

KINDS = [(17, 17, 17), (17, 9, 13), (12, 12), (30, 7, 7), (21, 14, 3), (5, 5, 5, 5, 5)]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    compiling._has_reported.clear()
    torch._dynamo.utils.counters.clear()
    before = torch._dynamo.config.recompile_limit
    yield
    torch._dynamo.config.recompile_limit = before
    torch._dynamo.reset()


def compiled_model():
    """Compiled by a backend that runs the graphs as they are, which takes seconds."""
    model = our_model(attention_backend="sdpa", encoder_layers=2)
    compiling.compile_layers(model.encoder.sentence_encoder.layers, backend="eager")
    return model


def run(model, device="cpu"):
    """Train, validate, train: full, padded and last batches; the losses."""
    losses = []
    for is_training in (True, False, True):
        model.train(is_training)
        for lengths in KINDS:
            tokens, masked, targets = make_batch(lengths)
            predicted = on_device(gathered(masked, targets), device)
            tokens, has_padding = tokens.to(device), len(set(lengths)) > 1
            with torch.set_grad_enabled(is_training):
                if is_training:
                    loss = model(tokens, predicted=predicted, has_padding=has_padding)[0]
                    loss.backward()
                else:
                    loss = model(tokens, masked_tokens=masked.to(device), has_padding=has_padding)[0].sum()
            losses.append(float(loss.detach()))
    return losses


def test_every_kind_of_batch_runs_in_a_graph(caplog):
    with caplog.at_level(logging.WARNING):
        found = run(compiled_model())
    assert found == pytest.approx(run(our_model(attention_backend="sdpa", encoder_layers=2)), rel=1e-4, abs=1e-4)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    first = compiling.num_graphs()
    assert 8 < first < compiling.GRAPHS, "torch's own limit would have done: the test shows nothing"


def test_a_layer_that_torch_no_longer_compiles_is_logged_once(caplog):
    model = compiled_model()
    torch._dynamo.config.recompile_limit = 2
    with caplog.at_level(logging.WARNING):
        found = run(model)
    assert found == pytest.approx(run(our_model(attention_backend="sdpa", encoder_layers=2)), rel=1e-4, abs=1e-4)
    assert caplog.text.count("--compile-layers: torch has given up compiling after") == 1


def test_without_a_working_compiler_a_training_begins_after_one_line(caplog, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("Failed to find C compiler.\nPlease specify via CC environment variable.")

    model = our_model(compile_layers=True, encoder_layers=2)
    parts = [*model.encoder.sentence_encoder.layers, model.encoder.sentence_encoder, model.encoder.lm_head]
    assert [bool(part._compiled_call_impl) for part in parts] == [True, True, False, False]
    monkeypatch.setattr(torch, "compile", fails)
    with caplog.at_level(logging.WARNING):
        model.set_num_updates(0)
        model.set_num_updates(1)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "does not work here (RuntimeError: Failed to find C compiler.); layers run as they are" in line
    assert not any(part._compiled_call_impl for part in parts) and {part.backend for part in parts[2:]} == {""}
    assert run(model) == pytest.approx(run(our_model(encoder_layers=2)), rel=1e-5)


def test_a_compiler_that_works_is_kept(monkeypatch):
    model = our_model(compile_layers=True, encoder_layers=2)
    monkeypatch.setattr(compiling, "_small", lambda x: x.sum())  # a graph of nothing: the compiler itself takes seconds
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    model.set_num_updates(0)
    assert all(layer._compiled_call_impl for layer in model.encoder.sentence_encoder.layers)
    assert model.encoder.lm_head.backend == model.encoder.sentence_encoder.backend == "inductor"


def test_a_higher_limit_of_the_user_stays():
    for before, after in ((8, compiling.GRAPHS), (500, 500)):
        torch._dynamo.config.recompile_limit = before
        compiling.raise_limit()
        assert torch._dynamo.config.recompile_limit == after


@pytest.mark.parametrize("dropout_prob", [0.0, 0.1])
def test_the_choice_of_kernels_breaks_no_graph(dropout_prob, monkeypatch):
    """Also where it excludes cuDNN, as on a GPU."""
    monkeypatch.setattr(attention, "GPU", "cpu")
    q = torch.randn(1, 2, 8, 16)
    attend = torch.compile(
        lambda q: BACKENDS["sdpa"](q, q, q, dropout_prob=dropout_prob), backend="eager", fullgraph=True
    )
    assert attend(q).shape == q.shape
    assert torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.gpu
@pytest.mark.slow
def test_compiled_layers_through_train_validate_train_on_a_gpu(gpu, caplog):
    """By torch's compiler itself."""
    plain, compiled = our_model().to(gpu), our_model(compile_layers=True).to(gpu)
    with caplog.at_level(logging.WARNING):
        assert run(compiled, gpu) == pytest.approx(run(plain, gpu), rel=1e-3, abs=1e-3)
    assert "has given up" not in caplog.text


def test_recomputed_layers_are_not_compiled_and_that_is_said(caplog):
    model = our_model(compile_layers=True, checkpoint_activations=True)
    assert model.compiled is None
    assert "--compile-layers has no effect with --checkpoint-activations" in caplog.text
