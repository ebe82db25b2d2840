"""Costs of a study: FLOPs and hours, the speed of earlier runs, notes on masks, and how much is done."""

import json

import pytest

from roberta_plugin.experiments.studies.costs import (
    START_UP_S,
    StudyCosts,
    costs_of,
    measured_costs,
    measured_speed,
)
from roberta_plugin.experiments.studies.plan import plan_variants, warnings_of
from roberta_plugin.experiments.studies.settings import read_study
from tests.tiny_corpus import write_data_bin
from tests.tiny_study import write_study


def write_log(path, *speeds):
    records = [{"num_updates": str(number), "tflops": str(speed)} for number, speed in enumerate(speeds, 1)]
    path.write_text("".join(f"2026-01-01 | INFO | train_inner | {json.dumps(record)}\n" for record in records))
    return path


def test_hours_are_work_by_speed_and_start_ups_shared_by_parallel_runs():
    costs = StudyCosts(pretraining=3e12, of_tuning_run={"a": 1e12}, num_tuning_runs={"a": 6}, num_pretrainings=4)
    assert (costs.tuning, costs.total, costs.num_runs) == (6e12, 9e12, 10)
    assert costs.hours(1e12, parallel=2) == pytest.approx((9 + 10 * START_UP_S) / 2 / 3600)


def test_the_speed_is_the_median_of_the_runs_medians(tmp_path):
    logs = [write_log(tmp_path / "a", 1, 2, 9), write_log(tmp_path / "b", 4), write_log(tmp_path / "c", 5, 5)]
    assert measured_speed(logs) == 4e12
    assert measured_speed([write_log(tmp_path / "empty")]) is None


def test_static_masks_that_never_come_back_are_noted_and_pretraining_is_counted_for_every_seed(tmp_path):
    variants = {"few": {"num-static-masks": "2"}, "many": {"num-static-masks": "1000"}, "dynamic": None}
    data = write_data_bin(tmp_path / "data")
    study = read_study(write_study(tmp_path / "study.yaml", data=data, variants=variants, budget={"amount": "1e5"}))
    plans = plan_variants(study, num_ranks=1)
    (note,) = warnings_of(plans)
    assert note.startswith("Note: many has 1000 static masks a block")
    costs = costs_of(study, plans, {})
    assert costs.pretraining == 2 * sum(plan.flops for plan in plans) and costs.num_runs == 6


def test_costs_of_a_resumed_run_count_each_update_once():
    records = [(10, 100, 50), (20, 100, 50), (10, 100, 50), (20, 200, 100)]  # killed, and again from the beginning
    lines = [
        f"| train_inner | {json.dumps({'num_updates': str(update), 'wpb': str(batch), 'wps': str(speed)})}"
        for update, batch, speed in records
    ]
    tokens, hours = measured_costs(lines, 25)
    assert tokens == 25 / 20 * (10 * 100 + 10 * 200)
    assert hours == pytest.approx(25 / 20 * (10 * 2 + 10 * 2) / 3600)
    assert measured_costs([], 25) is None
