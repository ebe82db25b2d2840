"""Criterions of kinds with the head of classes, on scores that are parameters."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY

from roberta_plugin.finetuning.kinds import kind_class
from roberta_plugin.finetuning.kinds.answering import Official
from roberta_plugin.finetuning.training import find_training
from tests.tiny_validation import validated


class Scores(torch.nn.Module):
    """A model that has the scores of all sequences of a split as parameters."""

    def __init__(self, num_sequences, num_scores):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.scores = torch.nn.Parameter(torch.randn(num_sequences, num_scores, generator=generator))


def make_criterion(kind, *, num_classes=2, scale=(0.0, 1.0), label_weights=None, labels=(), **options):
    names = labels or [str(number) for number in range(num_classes)]
    settings = {"labels": names, "class_weights": "none", "weights": label_weights}
    settings |= {"mean": scale[0], "deviation": scale[1]}
    made = kind_class(kind)(settings, official=Official(limits=(0.0, 5.0)))
    outputs = {"outputs": lambda model, sample: model.scores[sample["rows"]]}
    training = find_training(type(made))(made, SimpleNamespace(), None)
    task = SimpleNamespace(kind=made, target_dictionary=None, training=training, **outputs)
    return CRITERION_REGISTRY["roberta_sentence_prediction"](task, **options)


def make_sample(first, columns, examples):
    """A batch of some of the examples that have the sequences first[i] to first[i + 1]."""
    rows = [row for example in examples for row in range(first[example], first[example + 1])]
    counts = [first[example + 1] - first[example] for example in examples]
    return {
        "id": torch.tensor(examples),
        "rows": torch.tensor(rows),
        "offsets": torch.tensor([0, *itertools.accumulate(counts)]),
        "columns": {name: torch.as_tensor(values)[examples] for name, values in columns.items()},
        "split": "valid",
        "nsentences": len(examples),
        "ntokens": 7 * len(rows) - 1,
        "npositions": 7 * len(rows),
        "net_input": {"src_lengths": torch.full((len(rows),), 7)},
    }


def check_loss(criterion, model, sample, expected, *, sample_size):
    model.train()
    loss, size, log = criterion(model, sample)
    assert size == sample_size == log["sample_size"]
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    (gradient,) = torch.autograd.grad(loss, model.scores)
    (wanted,) = torch.autograd.grad(expected, model.scores)
    torch.testing.assert_close(gradient, wanted)
    assert wanted.abs().sum() > 0
    assert log.keys() == {"loss", "sample_size", "ntokens", "nsentences", "npositions"}


class Split:
    """A split in memory."""

    name = "valid"

    def __init__(self, first, columns):
        self.offsets, self.sequences = np.array(first), range(first[-1])
        self.columns = {name: np.asarray(values) for name, values in columns.items()}

    def __len__(self):
        return len(self.offsets) - 1


def validate(criterion, model, first, columns):
    """What a validation logs, in batches of random sizes in random order."""
    split = Split(first, columns)
    criterion.task.prepared = SimpleNamespace(split=lambda name: split)
    rng = np.random.default_rng(2)
    order = rng.permutation(len(split)).tolist()
    edges = sorted({0, len(order), *rng.integers(1, len(order), 11).tolist()})
    batches = [make_sample(first, columns, order[start:stop]) for start, stop in itertools.pairwise(edges)]
    return {**validated(criterion, model, batches), "num_batches": len(batches)}
