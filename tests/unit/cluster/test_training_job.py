"""How a training ends when it was stopped: started again, or an end that says why."""

from types import SimpleNamespace

import pytest
import submitit

from roberta_plugin.cluster import slurm_commands, training_job
from roberta_plugin.cluster.preemption import PREEMPTION
from roberta_plugin.cluster.recipe import Recipe
from roberta_plugin.cluster.rendezvous import Place
from roberta_plugin.cluster.training_job import TrainingJob


class Hook(SimpleNamespace):
    """What the job asks of its update hook."""

    def write_status(self, phase):
        self.phases.append(phase)


@pytest.fixture
def leave(tmp_path, monkeypatch):
    """End a stopped job of a rank; returns the hook and the signals given to submitit's handler."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")

    def leave(*, rank=0, goes_on=True, max_requeues=5):
        monkeypatch.setattr(slurm_commands, "is_to_go_on", lambda job_id: goes_on)
        job = TrainingJob(recipe=Recipe(run_dir=tmp_path, train=(), max_requeues=max_requeues), arguments=())
        place = Place(rank=rank, world_size=2, local_rank=rank, ranks_per_node=2, hosts=("a",), port=20000)
        hook = Hook(update=30, phases=[])
        handled = []

        def handler(number):
            handled.append(number)
            raise SystemExit(255)

        try:
            job._leave(place, hook, handler)
        except (SystemExit, RuntimeError) as end:
            return hook.phases, handled, end
        raise AssertionError("_leave returned")

    return leave


def test_rank_0_has_the_job_started_again_by_submitit(leave):
    phases, handled, end = leave()
    assert (phases, handled, end.code) == (["requeued"], [PREEMPTION], 255)


def test_the_other_ranks_leave_quietly(leave):
    phases, handled, end = leave(rank=1)
    assert (phases, handled, end.code) == ([], [], 0)


def test_a_cancelled_job_stays_ended(leave):
    phases, handled, end = leave(goes_on=False)
    assert (phases, handled) == (["stopped"], [])
    assert "Stopped after update 30, which is saved: job 7 was cancelled" in str(end)


def test_there_is_a_last_restart(leave):
    phases, handled, end = leave(max_requeues=2)
    assert (phases, handled) == (["stopped"], [])
    assert "started again 2 times, and --max-requeues is 2" in str(end)
    assert leave(max_requeues=3)[0] == ["requeued"]


def test_the_job_that_starts_again_is_the_same(tmp_path):
    job = TrainingJob(recipe=Recipe(run_dir=tmp_path, train=("data-bin",)), arguments=("data-bin",))
    delayed = job.checkpoint()
    assert isinstance(delayed, submitit.helpers.DelayedSubmission)
    assert delayed.function == job


def test_fairseq_must_have_made_the_process_group_that_was_asked_for():
    place = Place(rank=3, world_size=4, local_rank=1, ranks_per_node=2, hosts=("a", "b"), port=20000)
    with pytest.raises(RuntimeError, match="fairseq trains as rank 0 of 1, not 3 of 4"):
        training_job._CheckedMain(place)(None)
