"""Gradients of many batches add up in fp32, whatever wraps the model; one batch and the loss scale stay as they were."""

import pytest
import torch
from fairseq.optim import fp16_optimizer

from roberta_plugin.fairseq_workarounds import gradient_sums
from tests.unit.fairseq_workarounds.test_master_weights import Training

NUM_BATCHES = 128
KINDS = ["bf16", "fp16", "fp16, not flattened"]


@pytest.fixture(autouse=True)
def flat_parameters_on_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)


def gradients_of(training, batch):
    """Gradients that mostly agree, as those of early training do."""
    generator = torch.Generator().manual_seed(batch)
    return [(1 + torch.rand(p.shape, generator=generator)).to(training.dtype) for p in training.parameters]


def accumulate(kind, *, num_batches=NUM_BATCHES, model=None, monkeypatch=None):
    """The wrapper's fp32 gradients of an update, and the sum in float64."""
    training = Training(kind)
    optimizer = training.optimizer
    if optimizer.scaler is not None:
        optimizer.scaler.loss_scale = 1.0
    optimizer.zero_grad()
    expected = [torch.zeros(p.shape, dtype=torch.float64) for p in training.parameters]
    for batch in range(num_batches):
        parts = gradients_of(training, batch)
        for total, part in zip(expected, parts, strict=True):
            total += part.double()
        if model is not None:
            model.require_backward_grad_sync = batch == num_batches - 1
            gradient_sums.before_backward(optimizer, model)
        optimizer.backward(sum((p * g).sum() for p, g in zip(training.parameters, parts, strict=True)))
    optimizer.clip_grad_norm(0.0)
    return [total.double() for _, total in gradient_sums._gradients(optimizer)], expected, training


def largest_error(found, expected):
    return max(float(((a - b).abs() / b).max()) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_many_batches_add_up_in_fp32(kind):
    found, expected, _ = accumulate(kind)
    assert largest_error(found, expected) < 1e-6


def test_fairseqs_own_sums_lose_what_these_keep(monkeypatch):
    """The guard of the test above."""
    ordinary = fp16_optimizer._FP16OptimizerMixin
    monkeypatch.setattr(ordinary, "backward", gradient_sums._fairseq_backward)
    found, expected, _ = accumulate("bf16")
    assert largest_error(found, expected) > 0.01


class Wrapped:
    """A model in torch's DistributedDataParallel, as far as it is asked."""


@pytest.mark.parametrize("kind", KINDS)
def test_among_ranks_the_sum_is_rounded_once(kind, monkeypatch):
    """The last backward pass finds it in the model's gradients, and a wrapper adds these up among the ranks."""
    monkeypatch.setattr(gradient_sums, "has_ranks", lambda: True)
    found, expected, training = accumulate(kind, model=Wrapped())
    assert all(p.grad is not None for p in training.parameters)
    rounding = 2.0**-8 if kind == "bf16" else 2.0**-11
    assert 0 < largest_error(found, expected) <= 2 * rounding


def test_wrappers_of_models_are_asked_in_their_own_words(monkeypatch):
    monkeypatch.setattr(gradient_sums, "has_ranks", lambda: True)
    answers = [{"require_backward_grad_sync": False}, {"require_backward_grad_sync": True}]
    answers += [{"accumulate_grads": True}, {"accumulate_grads": False}, {}]
    found = []
    for answer in answers:
        model = Wrapped()
        vars(model).update(answer)
        found.append(gradient_sums.adds_up_among_ranks(model))
    assert found == [False, True, False, True, None]
    monkeypatch.setattr(gradient_sums, "has_ranks", lambda: False)
    assert gradient_sums.adds_up_among_ranks(Wrapped()) is False


@pytest.mark.parametrize("kind", KINDS)
def test_one_batch_and_missing_gradients_are_as_before(kind):
    """A parameter that no batch needs has a gradient of 0, also after an update in which it had another."""
    training = Training(kind)
    optimizer = training.optimizer
    for used in (3, 1):
        optimizer.zero_grad()
        parts = gradients_of(training, used)
        loss = sum((p * g).sum() for p, g in list(zip(training.parameters, parts, strict=True))[:used])
        optimizer.backward(loss)
        optimizer.clip_grad_norm(0.0)
        totals = [total for _, total in gradient_sums._gradients(optimizer)]
        scale = 1.0 if optimizer.scaler is None else optimizer.scaler.loss_scale
        for number, (total, part) in enumerate(zip(totals, parts, strict=True)):
            assert torch.equal(total, scale * part.float() * (number < used))


def test_the_factor_of_one_update_is_not_that_of_the_next():
    training = Training("bf16")
    norms = []
    for _ in range(3):
        training.optimizer.zero_grad()
        parts = gradients_of(training, 0)
        training.optimizer.backward(sum((p * g).sum() for p, g in zip(training.parameters, parts, strict=True)))
        training.optimizer.multiply_grads(1 / 8)
        norms.append(float(training.optimizer.clip_grad_norm(0.0)))
        training.optimizer.step()
    assert norms[0] == norms[1] == norms[2]
