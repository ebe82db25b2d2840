"""What a validation by a criterion logs, as fairseq's trainer runs it on one rank, and what a training does."""

import math

import torch
from fairseq.logging import metrics


def validated(criterion, model, batches):
    """What the validation logs; before its last batch, it has no metric."""
    criterion.train()
    criterion.eval(), model.eval()
    batches = list(batches)
    with torch.no_grad(), metrics.aggregate(new_root=True) as meters:
        for number, sample in enumerate(batches, start=1):
            criterion.reduce_metrics([criterion(model, sample)[2]])
            criterion.log_validation()
            logged = meters.get_smoothed_values()
            if number < len(batches):
                assert all(math.isnan(logged[name]) for name in criterion.task.kind.metrics() if name in logged)
    assert not any(name.startswith("_") for name in logged)
    return logged


def reduced(criterion, batches):
    """What a training logs of its batches, each with the logging outputs of all ranks."""
    with metrics.aggregate(new_root=True) as meters:
        for outputs in batches:
            criterion.reduce_metrics(outputs)
    return meters.get_smoothed_values()
