"""How a rank ends: finished, stopped, or failed with a note of the reason."""

import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import submitit

from roberta_plugin.launch import job as training_job
from roberta_plugin.launch import node, restart
from roberta_plugin.launch.job import STOP_SIGNALS, TrainingJob
from roberta_plugin.launch.preflight import PreflightError
from roberta_plugin.launch.recipe import LaunchSettings, batch_arguments, complete


class Hook(SimpleNamespace):
    """What the job asks of its update hook."""

    def write_status(self, phase):
        self.phases.append(phase)


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Call the job on a rank whose training ends as given; returns the hook's phases and what was returned or raised."""
    values = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "2", "SLURM_PROCID": 0, "SLURM_LOCALID": 0}
    values |= {"SLURM_NTASKS": 2, "SLURM_NODEID": 0, "SLURM_JOB_NODELIST": "a", "SLURMD_NODENAME": "a"}
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("PATH", str(tmp_path))  # no scontrol: a container

    def call(*, has_stopped=False, error=None, **fields):
        hook = Hook(update=30, phases=[], has_stopped=has_stopped)

        def train(job, place, stop):
            call.port = place.port
            if error is not None:
                raise error
            job._end(hook, place)
            return hook

        monkeypatch.setattr(TrainingJob, "_train", train)
        job = TrainingJob(
            recipe=LaunchSettings(
                output_dir=tmp_path, train=(), nodes=call.nodes, gpus_per_node=2, port=20010, **fields
            ),
            arguments=(),
        )
        try:
            return hook.phases, job()
        except (SystemExit, RuntimeError) as end:
            return hook.phases, end

    call.nodes = 1
    return call


def test_a_job_shares_its_batch_out_among_the_nodes_that_it_was_given(tmp_path):
    words = ("data", "--task", "roberta_masked_lm", "--batch-size=4", "--lr", "1")
    recipe = LaunchSettings(output_dir=tmp_path, train=words, min_nodes=1, nodes=4, gpus_per_node=2, batch_sequences=32)
    job = TrainingJob(recipe=recipe, arguments=complete(recipe))
    assert job.on_nodes(4) is job and job.arguments[-4:] == ("--batch-size", "4", "--update-freq", "1")
    fewer = job.on_nodes(3)
    assert fewer.arguments[: len(job.arguments)] == job.arguments
    assert fewer.arguments[len(job.arguments) :] == (
        *("--batch-size", "3", "--update-freq", "2"),  # 12 batches of 2 or 3
        *("--update-sequences", "32"),
    )
    assert fewer.recipe.nodes == 3
    assert job.on_nodes(2).arguments[-4:] == ("--batch-size", "4", "--update-freq", "2")
    limited = replace(recipe, train=(*words, "--max-tokens", "128", "--tokens-per-sample", "64"), nodes=3)
    assert batch_arguments(limited)[:4] == ("--batch-size", "2", "--update-freq", "3"), "no more than 128 tokens"


def test_a_finished_training_says_so(call, tmp_path):
    assert call() == (["finished"], "finished at update 30")
    assert call.port == 20010
    assert not (tmp_path / "failures").exists()


def test_other_ranks_than_the_first_leave_no_result(call, tmp_path, monkeypatch, capsys):
    """A thousand ranks would write a thousand files."""
    for name, value in {"SLURM_PROCID": 3, "SLURM_LOCALID": 1, "SLURM_NODEID": 1, "SLURM_NTASKS": 4}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("SLURM_JOB_NODELIST", "a,b")
    monkeypatch.setattr(call, "nodes", 2)
    phases, end = call()
    assert (phases, end.code) == (["finished"], 0)
    phases, end = call(error=RuntimeError("no memory"))
    assert (phases, end.code) == ([], 1)
    assert "RuntimeError: no memory" in capsys.readouterr().err
    found = restart.read_end(tmp_path, job_id="7", attempt=2, code=1)
    assert (found.reason, found.node) == ("rank 3 on a: RuntimeError: no memory", 1)


def test_a_stopped_rank_leaves_a_mark_and_asks_slurm_nothing(call):
    before = signal.getsignal(signal.SIGUSR2)
    try:
        phases, end = call(has_stopped=True)
        assert (phases, type(end), end.code) == (["stopped"], SystemExit, 0)
        assert signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN, "submitit would requeue the job as well"
    finally:
        for number in STOP_SIGNALS:
            signal.signal(number, before)


def test_a_rank_that_fails_notes_why(call, tmp_path):
    phases, end = call(error=RuntimeError("no memory"))
    assert (phases, str(end)) == ([], "no memory")
    found = restart.read_end(tmp_path, job_id="7", attempt=2, code=1)
    assert (found.reason, found.node, found.is_preflight) == ("rank 0 on a: RuntimeError: no memory", 0, False)


def test_the_nodes_that_the_preflight_names_are_noted(call, tmp_path):
    call(error=PreflightError("node b is broken", nodes=("b",)))
    found = restart.read_end(tmp_path, job_id="7", attempt=2, code=1)
    assert (found.is_preflight, found.nodes) == (True, ("b",))


def test_a_rank_removes_the_copy_of_its_own_job_alone(call, monkeypatch, tmp_path):
    removed = []
    monkeypatch.setattr(node, "remove_at_exit", removed.append)
    monkeypatch.setenv(
        "ROBERTA_NODE_FOLDER", "/tmp/roberta-run/7-0"
    )  # that of the job from which this one was submitted
    call()
    assert removed == []
    call(node_local="/tmp")
    assert removed == [Path("/tmp/roberta-run/7-0")]


def test_the_batch_scripts_port_is_taken(call, monkeypatch):
    monkeypatch.setenv("ROBERTA_PORT", "20044")
    call()
    assert call.port == 20044


def test_the_job_that_starts_again_is_the_same(tmp_path):
    job = TrainingJob(recipe=LaunchSettings(output_dir=tmp_path, train=("data-bin",)), arguments=("data-bin",))
    delayed = job.checkpoint()
    assert isinstance(delayed, submitit.helpers.DelayedSubmission)
    assert delayed.function == job


def test_fairseq_must_have_made_the_process_group_that_was_asked_for():
    with pytest.raises(RuntimeError, match="fairseq trains as rank 0 of 1, not 3 of 4"):
        training_job.CheckedMain(3, 4)(None)
