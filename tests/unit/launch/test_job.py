"""A rank begins at the newest whole checkpoint, and ends finished, stopped, or failed with a note of the reason."""

import multiprocessing
import os
import signal
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import submitit
import torch

from roberta_plugin.fairseq_workarounds import checkpoints
from roberta_plugin.launch import job, restart
from roberta_plugin.launch.job import (
    PREEMPTION,
    STOP_SIGNALS,
    TrainingJob,
    is_whole,
    prepare_checkpoints,
    rank_of_torchrun,
    train_rank,
    updates_of,
)
from roberta_plugin.launch.preflight import PreflightError
from roberta_plugin.launch.recipe import LaunchSettings, batch_arguments, complete
from roberta_plugin.launch.rendezvous import RankInfo, distributed_arguments
from roberta_plugin.launch.run_folder import known_jobs, read_status
from roberta_plugin.runs import read_record
from roberta_plugin.stop_signals import StopSignals
from tests.unit.launch.recipes import good_recipe


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


def test_a_job_shares_its_batch_out_among_its_nodes(tmp_path):
    words = ("data", "--task", "roberta_masked_lm", "--batch-size=4", "--lr", "1")
    recipe = LaunchSettings(output_dir=tmp_path, train=words, nodes=4, gpus_per_node=2, batch_sequences=32)
    assert complete(recipe)[-4:] == ("--batch-size", "4", "--update-freq", "1")
    assert complete(replace(recipe, nodes=3))[-6:] == (
        *("--batch-size", "3", "--update-freq", "2"),  # 12 batches of 2 or 3
        *("--update-sequences", "32"),
    )
    assert complete(replace(recipe, nodes=2))[-4:] == ("--batch-size", "4", "--update-freq", "2")
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
        job.CheckedMain(3, 4)(None)


VARIABLES = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}


def test_a_rank_is_what_torchrun_says():
    rank = rank_of_torchrun(VARIABLES)
    assert rank == RankInfo(rank=3, world_size=4, local_rank=1)
    words = " ".join(distributed_arguments(rank, is_cpu=False))
    assert words == (
        "--distributed-world-size 4 --distributed-rank 3 --distributed-init-method env:// --distributed-no-spawn --device-id 1"
    )
    assert distributed_arguments(rank, is_cpu=True)[-4:] == [
        "--distributed-backend",
        "gloo",
        "--ddp-backend",
        "legacy_ddp",
    ]
    assert distributed_arguments(rank_of_torchrun({}), is_cpu=True) == ["--distributed-world-size", "1"]
    with pytest.raises(ValueError, match="MASTER_PORT not set: start the ranks by `torchrun"):
        rank_of_torchrun({name: value for name, value in VARIABLES.items() if name != "MASTER_PORT"})


@pytest.fixture
def trained(monkeypatch):
    """Arguments of the trainings that would have been begun."""
    begun = []

    def run(hook, rank, arguments, *, recipe):
        begun.append(" ".join(arguments))

    monkeypatch.setattr(job, "_run_fairseq", run)
    monkeypatch.setattr(checkpoints, "lock_save_dir", lambda folder: None)
    return begun


def test_the_batch_of_an_update_stays_the_same_for_any_number_of_ranks(tiny_data_bin, tmp_path, trained, monkeypatch):
    monkeypatch.setenv("MINE", "")
    recipe = good_recipe(tiny_data_bin, tmp_path / "run", batch_sequences=64, env=("MINE=yes",))
    for world_size, batch in ((2, "--batch-size 4 --update-freq 8"), (16, "--batch-size 4 --update-freq 1")):
        assert train_rank(recipe, RankInfo(rank=0, world_size=world_size, local_rank=0)) == 0
        assert batch in trained[-1]
        assert read_status(recipe.output_dir).phase == "finished"
    assert os.environ["MINE"] == "yes"
    record = read_record(recipe.output_dir)
    assert (known_jobs(recipe.output_dir), record.num_gpus, record.batch_sequences) == ({".": ""}, 16, 64)


def test_the_first_rank_refuses_other_settings_in_the_same_run_folder(tiny_data_bin, tmp_path, trained):
    alone = RankInfo(rank=0, world_size=1, local_rank=0)
    train_rank(good_recipe(tiny_data_bin, tmp_path / "run"), alone)
    with pytest.raises(ValueError, match=r"was begun with other settings: --mask-prob was 0.15 and is 0.3 now"):
        train_rank(good_recipe(tiny_data_bin, tmp_path / "run", "--mask-prob", "0.3"), alone)


def test_an_error_is_in_the_status_that_roberta_jobs_reads(tiny_data_bin, tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("no GPU")

    monkeypatch.setattr(job, "_run_fairseq", fail)
    monkeypatch.setattr(checkpoints, "lock_save_dir", lambda folder: None)
    recipe = good_recipe(tiny_data_bin, tmp_path / "run")
    with pytest.raises(RuntimeError, match="no GPU"):
        train_rank(recipe, RankInfo(rank=0, world_size=1, local_rank=0))
    assert read_status(recipe.output_dir).phase == "failed"


def write_checkpoint(path, updates):
    state = {"model": {"weight": torch.full((4000,), float(updates))}, "optimizer_history": [{"num_updates": updates}]}
    torch.save(state, path)


def cut_off(path):
    os.truncate(path, path.stat().st_size * 2 // 3)


def weight_of(path):
    return torch.load(path, weights_only=True)["model"]["weight"][0].item()


@pytest.fixture
def save_dir(tmp_path):
    """Three checkpoints of updates 20, 40, 60, the last one twice, as fairseq leaves them."""
    for updates in (20, 40, 60):
        write_checkpoint(tmp_path / f"checkpoint_1_{updates}.pt", updates)
    write_checkpoint(tmp_path / "checkpoint_last.pt", 60)
    return tmp_path


def test_a_sound_folder_is_left_alone(save_dir):
    before = {path.name: path.read_bytes() for path in save_dir.iterdir()}
    assert prepare_checkpoints(save_dir) == "resuming from checkpoint_last.pt, update 60"
    assert {path.name: path.read_bytes() for path in save_dir.iterdir()} == before


def test_an_empty_or_missing_folder_begins_the_training(tmp_path):
    assert "the training begins" in prepare_checkpoints(tmp_path)
    assert "the training begins" in prepare_checkpoints(tmp_path / "none")


def test_a_cut_off_last_checkpoint_is_replaced_by_the_newest_good_one(save_dir):
    cut_off(save_dir / "checkpoint_last.pt")
    cut_off(save_dir / "checkpoint_1_60.pt")
    said = prepare_checkpoints(save_dir)
    assert "checkpoint_last.pt is broken and was put aside as checkpoint_last.pt.broken" in said
    assert "checkpoint_1_60.pt is broken" in said
    assert said.endswith("resuming from checkpoint_1_40.pt, update 40")
    assert weight_of(save_dir / "checkpoint_last.pt") == 40
    assert (save_dir / "checkpoint_last.pt.broken").exists()
    assert prepare_checkpoints(save_dir) == "resuming from checkpoint_last.pt, update 40"


def test_the_best_checkpoint_counts_where_it_is_newer_than_the_others_that_are_whole(save_dir):
    write_checkpoint(save_dir / "checkpoint_best.pt", 55)
    for name in ("checkpoint_last.pt", "checkpoint_1_60.pt"):
        cut_off(save_dir / name)
    assert prepare_checkpoints(save_dir).endswith("resuming from checkpoint_best.pt, update 55")
    assert weight_of(save_dir / "checkpoint_last.pt") == 55
    assert (save_dir / "checkpoint_best.pt").is_file()


def test_a_damaged_byte_is_found_although_the_file_can_be_read(save_dir):
    path = save_dir / "checkpoint_last.pt"
    content = bytearray(path.read_bytes())
    at = content.index(torch.tensor([60.0, 60.0]).numpy().tobytes())
    content[at] ^= 1
    path.write_bytes(content)
    assert updates_of(path) == 60
    assert not is_whole(path)
    assert "resuming from checkpoint_1_60.pt, update 60" in prepare_checkpoints(save_dir)


def test_a_last_checkpoint_that_is_missing_or_older_is_no_reason_to_lose_updates(save_dir):
    (save_dir / "checkpoint_last.pt").unlink()
    assert "resuming from checkpoint_1_60.pt" in prepare_checkpoints(save_dir)
    write_checkpoint(save_dir / "checkpoint_last.pt", 40)
    assert "resuming from checkpoint_1_60.pt" in prepare_checkpoints(save_dir)
    assert weight_of(save_dir / "checkpoint_last.pt") == 60


def test_what_was_being_written_is_removed(save_dir):
    (save_dir / "checkpoint_1_80.pt.tmp").write_bytes(b"half")
    assert "removed checkpoint_1_80.pt.tmp" in prepare_checkpoints(save_dir)
    assert not (save_dir / "checkpoint_1_80.pt.tmp").exists()


def test_nothing_whole_is_refused_and_nothing_is_touched(save_dir):
    for path in save_dir.iterdir():
        cut_off(path)
    before = sorted(path.name for path in save_dir.iterdir())
    with pytest.raises(ValueError, match="None of the checkpoints"):
        prepare_checkpoints(save_dir)
    assert sorted(path.name for path in save_dir.iterdir()) == before


def test_a_signal_is_noted_and_nothing_else_happens():
    for number in STOP_SIGNALS:
        with StopSignals(STOP_SIGNALS) as stop:
            assert stop.received is None
            os.kill(os.getpid(), number)
            assert stop.received is number


def test_the_handlers_of_before_come_back_and_are_known():
    seen = []
    before = signal.signal(PREEMPTION, lambda number, frame: seen.append(number))
    try:
        with StopSignals(STOP_SIGNALS) as stop:
            os.kill(os.getpid(), PREEMPTION)
        assert seen == []
        stop.handlers_before[PREEMPTION](PREEMPTION, None)
        os.kill(os.getpid(), PREEMPTION)
        assert seen == [PREEMPTION, PREEMPTION]
    finally:
        signal.signal(PREEMPTION, before)


def worker(connection):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a data-loader worker has a handler that ends it
    connection.send("ready")
    connection.send(connection.recv())
    time.sleep(60)


def complain(number, frame):
    raise RuntimeError("a data-loader worker has died")


def test_workers_outlive_the_signals_and_end_with_the_training():
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    before = signal.getsignal(signal.SIGCHLD)
    with StopSignals(STOP_SIGNALS):
        signal.signal(signal.SIGCHLD, complain)  # as torch's data loader does
        process = context.Process(target=worker, args=(theirs,), daemon=True)
        process.start()
        assert ours.recv() == "ready"
        os.kill(process.pid, signal.SIGTERM)
        os.kill(process.pid, PREEMPTION)
        ours.send("alive")
        assert ours.poll(10) and ours.recv() == "alive"
    assert process.exitcode == -signal.SIGKILL
    assert signal.getsignal(signal.SIGCHLD) == before


def test_other_children_keep_their_signals():
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=worker, args=(theirs,), daemon=True)
    process.start()
    assert ours.recv() == "ready"
    os.kill(process.pid, signal.SIGTERM)
    process.join(10)
    assert process.exitcode == -signal.SIGTERM
