"""Trainings with compiled layers: a compiler that fails costs one line, and changes no number."""

import logging
from types import SimpleNamespace

import pytest
import torch

from roberta_plugin.criterions.masked_lm import RobertaMaskedLMCriterion
from roberta_plugin.models import compiling
from roberta_plugin.optim.adamw import RobertaAdamW
from roberta_plugin.tasks.block_task import BlockTask
from tests.fake_cuda import fake_cuda, moved
from tests.hugging_face import later
from tests.tiny_models import gathered, make_batch, our_model
from tests.unit.models.test_gpu_steps import make_optimizer, make_sample

backends, functorch = later("torch._dynamo.backends.common"), later("torch._functorch.aot_autograd")
BATCHES = ((17, 9, 13), (17, 17, 17), (12, 8))
SIZES = {"encoder_layers": 2, "dropout": 0.1, "attention_dropout": 0.1, "attention_backend": "eager"}


class OfTests(BlockTask):
    """A task without data."""

    def __init__(self):
        self.cfg = SimpleNamespace()


@pytest.fixture(autouse=True)
def fresh(graphs_as_they_are):
    torch._dynamo.reset()
    compiling._has_reported.clear()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def runs(graph, _inputs):
    return functorch.make_boxed_func(graph.forward)


def fails_to_compile(_graph, _inputs):
    raise RuntimeError("out of registers\n  in kernel 7")


def fails_at_run_time(_graph, _inputs):
    def run(*_):
        raise RuntimeError("no kernel image is available")

    return functorch.make_boxed_func(run)


def trained(backend=None, batches=BATCHES, **options):
    """Losses, weights and random numbers of updates, and all that was logged as a warning."""
    model = our_model(**SIZES | options)
    if backend is not None:
        model.compile_parts(backend=backend)
    criterion = RobertaMaskedLMCriterion(SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: 1)))
    optimizer: RobertaAdamW = make_optimizer("fp32", list(model.parameters()))
    torch.manual_seed(3)
    losses = []
    for number, lengths in enumerate(batches):
        optimizer.zero_grad()
        for seed in (number, number + 10):  # --update-freq 2: a failure must not add to gradients
            tokens, masked, targets = make_batch(lengths, seed=seed)
            predicted = gathered(masked, targets)
            sample = {
                "net_input": {"src_tokens": tokens, "has_padding": len(set(lengths)) > 1},
                "predicted": predicted,
                "target": tokens,
                "ntokens": int(tokens.ne(1).sum()),
                "nsentences": len(tokens),
                "npairs": 1,
            }
            loss, *_ = OfTests().train_step(sample, model, criterion, optimizer, update_num=number)
            losses.append(float(loss.detach()))
        optimizer.step()
    return losses, [parameter.detach().clone() for parameter in model.parameters()], torch.rand(4)


@pytest.mark.parametrize("when", [fails_to_compile, fails_at_run_time])
@pytest.mark.parametrize("which", ["forward", "backward"])
def test_a_compiler_that_fails_is_one_line_and_changes_no_number(which, when, caplog):
    backend = backends.aot_autograd(
        fw_compiler=when if which == "forward" else runs, bw_compiler=when if which == "backward" else runs
    )
    expected = trained()
    with caplog.at_level(logging.INFO):
        found = trained(backend)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    reason = "out of registers" if when is fails_to_compile else "no kernel image is available"
    assert line.startswith(f"--compile-layers: torch.compile has failed for this model (RuntimeError: {reason})")
    assert "\n" not in line and "Traceback" not in caplog.text


def test_kernels_that_fail_for_a_later_shape_in_the_backward_pass_are_one_line(caplog):
    """They are found out before the update's own backward pass, which could not be taken back."""
    made = []

    def fails_later(graph, inputs):
        made.append(graph)
        return (runs if len(made) <= 2 else fails_at_run_time)(graph, inputs)  # 2: a layer, and the last one

    options = {"dropout": 0.0, "attention_dropout": 0.0}
    expected = trained(**options)
    with caplog.at_level(logging.INFO):
        found = trained(backends.aot_autograd(fw_compiler=runs, bw_compiler=fails_later), **options)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert len(made) == 3
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "failed for this model (RuntimeError: no kernel image is available)" in line
    assert "compiled: 2 graphs" in caplog.text and "Traceback" not in caplog.text


def test_the_trial_before_the_first_update_leaves_no_trace(caplog, monkeypatch):
    """Neither in random numbers nor in gradients or weights."""
    with caplog.at_level(logging.INFO, logger="roberta_plugin"):
        found = trained("aot_eager", batches=BATCHES[:1])
    monkeypatch.setattr(compiling.Compiled, "is_tried", property(lambda _: True, lambda *_: None), raising=False)
    torch.testing.assert_close(found, trained("aot_eager", batches=BATCHES[:1]), rtol=0, atol=0)
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("roberta_plugin")]
    assert [line for line in lines if "compile" in line] == [
        line for line in lines if line.startswith("compiled: 2 gr")
    ]


def test_trials_of_later_shapes_leave_no_trace(monkeypatch):
    """Neither in random numbers nor in gradients, weights or graphs."""
    results, tried, try_backward = [], [], compiling.try_backward
    for does in (lambda *arguments: tried.append(try_backward(*arguments)), lambda *_: None):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        monkeypatch.setattr(compiling, "try_backward", does)
        results.append([*trained("aot_eager", batches=BATCHES[:2], encoder_layers=1), compiling.num_graphs()])
    assert tried
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


def test_an_error_of_the_inputs_stays_one(caplog):
    model = our_model(**SIZES)
    model.compile_parts(backend="aot_eager")
    layer = model.encoder.sentence_encoder.layers[0]
    with pytest.raises(RuntimeError), caplog.at_level(logging.WARNING):
        layer(torch.zeros(2, 5, 7), None, None)
    assert "torch.compile has failed" not in caplog.text


def test_training_and_validation_by_rows_of_one_length_take_six_graphs():
    """Embeddings, layer, last layer, and head with loss; embeddings and layer without dropout."""
    model = our_model(**SIZES | {"encoder_layers": 4, "attention_backend": "auto", "encoder_embed_dim": 64})
    model.compile_parts(backend="aot_eager")
    samples = [make_sample("packed", lengths) for lengths in ((17, 9, 1, 13), (5, 30), (12, 11, 10, 9, 8))]
    for sample in samples:  # as in a training
        sample["net_input"]["packing"]["max_seqlen"] = sample["predicted"]["max_seqlen"] = 168
    criterion = RobertaMaskedLMCriterion(SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: 1)))
    with fake_cuda(is_compiled=True) as mode:
        model, samples = moved(model, mode, torch.bfloat16), [moved(sample, mode) for sample in samples]
        for is_training in (True, False, True):
            model.train(is_training)
            for sample in samples:
                if is_training:
                    criterion(model, sample)[0].backward()
                else:
                    with torch.no_grad():
                        model.encoder(sample["net_input"]["src_tokens"], packing=sample["net_input"]["packing"])
    assert not model.compiled.has_given_up
    assert compiling.num_graphs() == 6
