"""A rank's own time in an update."""

import time

import pytest
import torch

from roberta_plugin.rank_times import FEWEST, NUM_KEPT, Durations, ForwardClock


def test_median_and_worst_of_the_last_ones():
    durations = Durations()
    for _ in range(FEWEST - 1):
        durations.add(9.0)
    assert (durations.median, durations.worst) == (0.0, 0.0)
    for number in range(NUM_KEPT):
        durations.add(float(number % 10))
    assert (durations.median, durations.worst) == (4.5, 9.0)


class Slow(torch.nn.Linear):
    """Takes a twentieth of a second."""

    def forward(self, inputs):
        time.sleep(0.05)
        return super().forward(inputs)


def test_forward_passes_of_an_update_add_up_and_those_of_a_validation_do_not_count():
    model = Slow(2, 2)
    clock = ForwardClock(model)
    assert clock.take() is None
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()
    model.eval()
    model(torch.ones(1, 2))
    assert clock.take() == pytest.approx(0.1, abs=0.04)
    assert clock.take() is None
