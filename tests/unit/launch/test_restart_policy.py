"""The policy of restarts, case by case."""

from dataclasses import replace

import pytest

from roberta_plugin.launch.restart import (
    CRASHED,
    FINISHED,
    MAX_CRASHES,
    MAX_START_FAILURES,
    OURS,
    SLURMS,
    START_FAILED,
    STOPPED,
    UNKNOWN,
    End,
    decide,
    whose,
)
from tests.unit.launch.ends import LIMITS, STARTING, TRAINING


def record(kind, *, job_id="7", newer=False, trained=True):
    return {"job_id": job_id, "kind": kind, "has_newer_checkpoint": newer, "has_trained": trained}


def restarts(end, history=(), job=OURS, limits=LIMITS):
    return decide(end, history, limits, job=job).restarts


@pytest.mark.parametrize(
    ("phase", "code", "kind"),
    [
        ("finished", 0, FINISHED),
        ("finished", 143, FINISHED),  # a rank that dies after the end takes nothing away
        ("stopped", 0, STOPPED),
        ("stopped", 137, STOPPED),
        ("training", 1, CRASHED),
        ("training", 140, CRASHED),
        ("training", 0, FINISHED),
        ("starting", 1, START_FAILED),
        ("", 1, START_FAILED),
        ("starting", 140, STOPPED),  # the preemption signal ended a rank that could not note it yet
        ("", 140, STOPPED),
        ("", 0, FINISHED),
    ],
)
def test_the_kinds_of_ends(phase, code, kind):
    assert End(job_id="7", attempt=0, code=code, phase=phase).kind(140) == kind


@pytest.mark.parametrize("code", [0, 1, 137])
def test_what_is_finished_never_starts_again(code):
    assert not restarts(replace(TRAINING, phase="finished", code=code))


@pytest.mark.parametrize("end", [STARTING, TRAINING, replace(TRAINING, phase="stopped", code=0)])
def test_a_cancelled_job_stays_ended_and_one_that_could_not_be_asked_about_does_not(end):
    history = [record(CRASHED, newer=True)]
    assert not restarts(end, history, job=SLURMS)
    assert restarts(end, history, job=UNKNOWN)
    assert restarts(end, history, job=OURS)


@pytest.mark.parametrize("history", [[], [record(STOPPED)] * 50, [record(CRASHED)] * 2 + [record(START_FAILED)] * 4])
def test_a_stop_after_saving_starts_again_however_often(history):
    assert restarts(replace(TRAINING, phase="stopped", code=0), history)
    assert restarts(replace(TRAINING, phase="stopped", code=0, has_newer_checkpoint=False), history)


def test_a_preemption_before_the_first_update_starts_again_without_a_checkpoint():
    assert restarts(End(job_id="7", attempt=0, code=140, phase="starting"))


def test_a_failure_after_a_newer_checkpoint_starts_again_however_often():
    assert restarts(TRAINING, [record(CRASHED, newer=True)] * 50)


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_crash_loop_without_progress_ends(has_checkpoint):
    end = replace(TRAINING, has_newer_checkpoint=False, has_checkpoint=has_checkpoint)
    history = []
    while (decision := decide(end, history, LIMITS, job=OURS)).restarts:
        history.append(record(CRASHED))
        assert len(history) < 50
    assert len(history) + 1 == MAX_CRASHES
    assert f"{MAX_CRASHES} attempts in a row have failed without saving a newer checkpoint" in decision.text


def test_progress_makes_the_count_of_crashes_begin_anew():
    end = replace(TRAINING, has_newer_checkpoint=False)
    full = [record(CRASHED)] * (MAX_CRASHES - 1)
    assert not restarts(end, full)
    assert restarts(end, [*full, record(STOPPED, newer=True)])
    assert restarts(end, [*full, record(CRASHED, newer=True), record(CRASHED)][: len(full) + 2])
    assert not restarts(end, [record(STOPPED, newer=True), *full])


def test_kinds_are_counted_apart_and_stops_between_them_do_not_end_a_row():
    end = replace(TRAINING, has_newer_checkpoint=False)
    assert restarts(end, [record(CRASHED), *[record(START_FAILED)] * 4, record(STOPPED)])
    assert not restarts(end, [record(CRASHED), record(START_FAILED), record(STOPPED), record(CRASHED)])


def test_records_of_an_earlier_job_do_not_count():
    end = replace(TRAINING, has_newer_checkpoint=False)
    assert restarts(end, [record(CRASHED, job_id="6")] * 9)
    assert not restarts(STARTING, [record(CRASHED, job_id="6", newer=True)])


@pytest.mark.parametrize("code", [1, 137, 139, 143])
@pytest.mark.parametrize("is_preflight", [True, False])
def test_a_first_start_that_fails_stays_final(code, is_preflight):
    end = End(job_id="7", attempt=0, code=code, phase="starting", is_preflight=is_preflight)
    decision = decide(end, [], LIMITS, job=OURS)
    assert not decision.restarts
    assert "before the first checkpoint" in decision.text


@pytest.mark.parametrize(
    ("code", "is_preflight", "expected"), [(137, False, True), (139, False, True), (143, False, True)]
)
def test_a_start_of_a_run_with_a_checkpoint_that_a_signal_ends_is_tried_again(code, is_preflight, expected):
    assert restarts(replace(STARTING, code=code, attempt=0, is_preflight=is_preflight)) is expected


def test_what_the_preflight_finds_is_tried_again_and_the_node_left_out():
    decision = decide(replace(STARTING, is_preflight=True, nodes=("gpu7",)), [], LIMITS, job=OURS)
    assert (decision.restarts, decision.exclude) == (True, ("gpu7",))


def test_an_error_of_a_launch_that_has_not_trained_is_final_and_later_tried_again():
    decision = decide(STARTING, [], LIMITS, job=OURS)
    assert not decision.restarts
    assert "has not trained yet" in decision.text
    assert restarts(STARTING, [record(STOPPED, newer=True)])
    assert not restarts(STARTING, [record(START_FAILED, trained=False)])


def test_starts_that_fail_in_a_row_wait_longer_and_longer_and_then_end():
    history, pauses = [record(STOPPED, newer=True)], []
    while (decision := decide(STARTING, history, LIMITS, job=OURS)).restarts:
        pauses.append(decision.pause_s)
        history.append(record(START_FAILED))
        assert len(history) < 50
    assert len(pauses) + 1 == MAX_START_FAILURES
    assert pauses == sorted(pauses)
    assert pauses[0] == 0 < pauses[1] < pauses[-1]
    assert f"{MAX_START_FAILURES} starts in a row have failed" in decision.text
    assert decide(STARTING, [*history, record(CRASHED, newer=True)], LIMITS, job=OURS).pause_s == 0


@pytest.mark.parametrize("end", [STARTING, TRAINING, replace(TRAINING, phase="stopped", code=0)])
def test_max_requeues_limits_everything(end):
    history = [record(STOPPED, newer=True)]
    assert not restarts(end, history, limits=replace(LIMITS, max_requeues=3))
    assert restarts(end, history, limits=replace(LIMITS, max_requeues=4))


@pytest.mark.parametrize(
    ("num_nodes", "named", "excluded"),
    [(1, 1, 1), (2, 1, 1), (2, 2, 0), (4, 2, 2), (4, 3, 0), (128, 3, 3), (128, 128, 0)],
)
def test_so_many_nodes_that_the_fault_is_elsewhere_are_not_excluded(num_nodes, named, excluded):
    end = replace(STARTING, is_preflight=True, nodes=tuple(f"n{i}" for i in range(named)))
    decision = decide(end, [], replace(LIMITS, num_nodes=num_nodes), job=OURS)
    assert decision.restarts
    assert len(decision.exclude) == excluded


@pytest.mark.parametrize(
    ("fields", "who"),
    [
        (None, UNKNOWN),
        ({}, SLURMS),  # forgotten
        ({"JobState": "RUNNING", "Reason": "None", "Restarts": "3"}, OURS),
        ({"JobState": "COMPLETING", "Reason": "TimeLimit"}, OURS),
        ({"JobState": "TIMEOUT", "Reason": "TimeLimit"}, OURS),
        ({"JobState": "COMPLETING", "Reason": "None"}, SLURMS),
        ({"JobState": "CANCELLED", "Reason": "None"}, SLURMS),
        ({"JobState": "PENDING", "Reason": "BeginTime"}, SLURMS),
        ({"JobState": "RUNNING", "Reason": "None", "Restarts": "4"}, SLURMS),  # requeued already, and running
    ],
)
def test_whose_turn_it_is(fields, who):
    assert whose(fields, 3) == who
