"""A run at chance is told from one that learns, for any number of options, and not before its time."""

import math

import numpy as np
import pytest

from roberta_plugin.finetuning.race.degenerate_run import DegenerateRunWatch, Sums


def update(*, loss, accuracy, options=4, questions=16):
    p = 1 / options
    return Sums(
        questions=questions,
        loss=loss * questions,
        chance_loss=math.log(options) * questions,
        correct=accuracy * questions,
        chance_correct=p * questions,
        chance_variance=p * (1 - p) * questions,
    )


def messages(updates, patience=100):
    watch = DegenerateRunWatch(patience)
    return [watch.see(one) for one in updates]


@pytest.mark.parametrize("options", [2, 4, 7])
@pytest.mark.parametrize("excess", [-0.005, 0.0, 0.3])
def test_a_run_at_chance_is_called_so_at_the_end_of_each_window(options, excess):
    loss = math.log(options) * (1 + excess)
    found = messages([update(loss=loss, accuracy=1 / options, options=options)] * 250)
    assert [number for number, message in enumerate(found, start=1) if message] == [100, 200]


@pytest.mark.parametrize(
    ("loss", "accuracy"),
    [
        (1.30, 0.25),  # the loss falls
        (math.log(4), 0.30),  # answers get better: 25 % + 3 deviations are 28.2 % for 1,600 questions
        (0.9, 0.6),
        (math.nan, 0.25),  # fairseq stops such a run itself
    ],
)
def test_a_run_that_learns_is_left_alone(loss, accuracy):
    assert not any(messages([update(loss=loss, accuracy=accuracy)] * 300))


def test_a_run_that_leaves_chance_within_the_window_is_left_alone():
    stuck, learning = update(loss=math.log(4), accuracy=0.25), update(loss=1.2, accuracy=0.45)
    assert not any(messages([stuck] * 70 + [learning] * 30))
    found = messages([learning] * 100 + [stuck] * 100)
    assert found[99] is None
    assert found[199] is not None


def test_guessing_is_recognised_in_nearly_all_runs_of_random_answers():
    rng = np.random.default_rng(0)
    found = [
        messages([update(loss=1.39, accuracy=n / 16) for n in rng.binomial(16, 0.25, 100)])[-1] for _ in range(200)
    ]
    assert sum(message is not None for message in found) >= 198


def test_the_message_has_the_numbers_the_causes_and_what_to_do():
    (message,) = messages([update(loss=1.4, accuracy=0.25)], patience=1)
    for part in ("last 1 updates", "1.4000", "1.3863", "25.0 %", "--lr", "--warmup-updates", "--finetune-from-model"):
        assert part in message
    assert "--arch" in message
