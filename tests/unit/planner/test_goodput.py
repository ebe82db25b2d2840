"""The formula for goodput agrees with drawn failures."""

import math
import random
from types import SimpleNamespace

import pytest

from roberta_plugin.planner.goodput import DAY_S, goodput


def simulate(work, *, interval, stall, restart, between_failures, seed=0):
    """Draw failures until `work` seconds of training are kept; where the time went."""
    rng = random.Random(seed)
    kept = lost = stalled = restarting = 0.0
    failures = 0
    left = rng.expovariate(1 / between_failures)  # until the next failure
    while kept < work:
        if left >= interval + stall:
            left -= interval + stall
            kept, stalled = kept + interval, stalled + stall
            continue
        lost += left
        failures += 1
        while (left := rng.expovariate(1 / between_failures)) < restart:
            restarting += left
            failures += 1
        restarting += restart
        left -= restart
    share = kept / (kept + lost + stalled + restarting)
    return SimpleNamespace(kept=kept, stalled=stalled, restarting=restarting, failures=failures, goodput=share)


@pytest.mark.parametrize("between_failures", [3_600.0, 6 * 3_600.0, DAY_S])
@pytest.mark.parametrize(
    ("interval", "stall", "restart"), [(900.0, 11.0, 360.0), (300.0, 60.0, 30.0), (3600.0, 1.0, 900.0)]
)
def test_the_formula_is_the_mean_of_drawn_failures(interval, stall, restart, between_failures):
    times = {"interval": interval, "stall": stall, "restart": restart, "between_failures": between_failures}
    found = simulate(4_000 * between_failures, seed=1, **times)
    assert found.failures > 3_000
    assert found.goodput == pytest.approx(goodput(**times), rel=0.02)
    assert found.restarting >= found.failures * restart * goodput(**times) * 0.5
    assert found.stalled == pytest.approx(found.kept / interval * stall)


def test_the_goal_of_97_percent_at_a_failure_a_day_is_met_by_the_recipes_of_1024_gpus():
    assert goodput(900, stall=11, restart=360, between_failures=DAY_S) == pytest.approx(0.9786, abs=1e-4)
    assert goodput(900, stall=0.5, restart=360, between_failures=DAY_S) > 0.99
    assert goodput(900, stall=11, restart=360, between_failures=math.inf) == 900 / 911
    assert goodput(24, stall=8.6, restart=360, between_failures=math.inf) == pytest.approx(1 / 1.36, abs=0.01)
