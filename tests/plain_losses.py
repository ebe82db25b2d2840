"""Losses of a criterion against a plain computation."""

from types import SimpleNamespace

import pytest
import torch

from roberta_plugin.finetuning.training import find_training
from tests.tiny_validation import reduced


def task_of(kind, prepared=None, outputs=None):
    training = find_training(type(kind))(kind, SimpleNamespace(), None)
    return SimpleNamespace(target_dictionary=None, prepared=prepared, kind=kind, training=training, outputs=outputs)


def batches(dataset, size=5):
    return [dataset.__getitems__(batch) for batch in dataset.batches(1, max_sentences=size)]


def check_loss(criterion, model, samples, plain, *, number):
    """Loss and gradients of all batches are those of the plain sum, and a mean over `number` items is logged.

    The logs of the batches, and what a training logs of them together.
    """
    expected = plain(model)
    wanted = torch.autograd.grad(expected, [*model.parameters()])
    total, logs = 0.0, []
    for sample in samples:
        loss, sample_size, log = criterion(model.train(), sample)
        loss.backward()
        assert sample_size == log["sample_size"]
        total += loss.item()
        logs.append(log)
    assert sum(log["sample_size"] for log in logs) == number > 0
    assert total == pytest.approx(expected.item(), rel=1e-5)
    for parameter, gradient in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-5, rtol=1e-5)
        assert gradient.abs().sum() > 0.1
    values = reduced(criterion, [logs])
    assert values["loss"] == pytest.approx(expected.item() / number, abs=1e-4)
    return logs, values
