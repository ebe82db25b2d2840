"""`roberta jobs`: a row for each launched run."""

import json
import shutil
import socket
import time

import pytest

from roberta_plugin.cli import build_parser, jobs
from roberta_plugin.fairseq_workarounds.heartbeats import Slowest
from roberta_plugin.launch import slurm_commands
from roberta_plugin.launch.recipe_checks import active_job
from roberta_plugin.launch.restart import LEFT_ALONE, Decision, End, Limits, write_attempt
from roberta_plugin.launch.run_folder import ITSELF, Status, add_jobs, read_status, write_status
from roberta_plugin.locks import TRAINING_LOCK, try_lock
from roberta_plugin.runs import RunRecord, write_record


@pytest.fixture
def run_jobs(monkeypatch, capsys):
    """Run the command with SLURM's word for each job; returns the lines it prints."""

    def run_jobs(*folders, states):
        def ask(job_ids, ours=False):
            if states is None:
                raise OSError("SLURM is down")
            found = {job_id: slurm_commands.Job(*f"{text}|None".split("|")[:2]) for job_id, text in states.items()}
            return {job_id: job for job_id, job in found.items() if job_id.partition("_")[0] in job_ids}

        monkeypatch.setattr(slurm_commands, "jobs", ask)
        args = build_parser("jobs").parse_args(["jobs", *map(str, folders)])
        assert args.run(args) == 0
        return capsys.readouterr().out.splitlines()

    return run_jobs


def add_run(folder, job_id, *, status_of=None, **changes):
    folder.mkdir(parents=True)
    add_jobs(folder, {ITSELF: job_id})
    values = {"attempt": 1, "phase": "training", "update": 2500, "max_update": 10000, "loss": 3.25, "time": time.time()}
    values |= {"tokens_per_second": 1234567.8, "updates_per_second": 2.0}
    values["job_id"] = job_id if status_of is None else status_of
    if changes.get("phase", True) is not None:
        write_status(folder, Status(**{**values, **changes}))


def test_the_table(run_jobs, tmp_path):
    add_run(tmp_path / "a", "7")
    add_run(tmp_path / "b", "8", phase="finished", update=10000)
    add_run(tmp_path / "c", "9", phase=None)
    add_run(tmp_path / "d", "10", status_of="3")  # launched again as job 10, which has written nothing yet
    add_run(tmp_path / "e", "11", phase="starting", loss=None, tokens_per_second=None, updates_per_second=None)
    states = {"7": "running", "8": "completed", "9": "pending", "10": "pending", "11": "running"}
    lines = run_jobs(tmp_path, states=states)
    shown = [(job, "finished" if job == "8" else state) for job, state in states.items()]
    assert [tuple(line.split()[:2]) for line in lines[1:]] == shown
    for part in ("2,500 of 10,000", "3.250", "1,234,568", "1:02:30"):  # 7,500 updates at 2 a second
        assert part in lines[1]
    assert lines[1].endswith(str(tmp_path / "a"))
    assert "(starting)" in lines[5]
    assert "2,500" not in lines[4]


def test_a_run_with_a_damaged_file_hides_no_other(run_jobs, tmp_path):
    add_run(tmp_path / "a", "7")
    (tmp_path / "a" / "status.json").write_text("{")
    add_run(tmp_path / "b", "8")
    lines = run_jobs(tmp_path, states={"7": "running", "8": "running"})
    assert lines[1].split()[:2] == ["-", "unreadable"]
    assert "a/status.json is not valid JSON" in lines[2]
    assert lines[3].split()[:2] == ["8", "running"]


def test_what_is_not_so_any_more_is_not_shown(run_jobs, tmp_path):
    hours_ago = time.time() - 7325
    add_run(tmp_path / "a", "7", time=hours_ago)
    add_run(tmp_path / "b", "8", time=hours_ago)
    add_run(tmp_path / "c", "9", time=hours_ago, updates_per_second=1 / 3600)
    _, hung, pending, slow = run_jobs(tmp_path, states={"7": "running", "8": "pending|BeginTime", "9": "running"})
    assert "running (silent)" in hung
    assert "pending (BeginTime)" in pending
    for line in (hung, pending):
        assert " 2:02:" in line and " ago " in line, "seconds pass until the table is there"
        assert "1:02:30" not in line, "a time left that is not so"
        assert "1,234,568" not in line, "a speed that is not so"
    assert "silent" not in slow, "an update takes an hour"


def test_a_failed_run_says_why_and_names_the_log(run_jobs, tmp_path):
    for name, restarts in (("a", False), ("b", True)):
        add_run(tmp_path / name, "7")
        end = End(job_id="7", attempt=1, code=137, phase="training", reason="rank 3 on n2: ValueError: bad", node=1)
        decision = Decision(restarts, "what followed", exclude=("n2",))
        write_attempt(tmp_path / name, end, decision, Limits(9, 2, 140))
    failed = run_jobs(tmp_path / "a", states={"7": "failed|NonZeroExitCode"})
    assert failed[1].split()[:2] == ["7", "failed"]
    assert "attempt 1 failed in training (exit code 137 (SIGKILL); rank 3 on n2: ValueError: bad)" in failed[2]
    assert "what followed; excluded: n2" in failed[2]
    assert failed[2].endswith(f"{tmp_path}/a/logs/7_1_log.out")
    assert len(run_jobs(tmp_path / "b", states={"7": "pending|BeginTime"})) == 3
    write_status(tmp_path / "b", Status(**{**vars(read_status(tmp_path / "b")), "attempt": 2}))
    assert len(run_jobs(tmp_path / "b", states={"7": "running"})) == 2, "it runs again: nothing to say"
    ended = run_jobs(tmp_path / "b", states={"7": "failed|JobLaunchFailure"})[2]
    assert ended == f"    JobLaunchFailure; no log, as where the nodes do not see {tmp_path}/b", "of attempt 2"
    (tmp_path / "b" / "logs").mkdir()
    (tmp_path / "b" / "logs" / "7_0_log.out").touch()
    ended = run_jobs(tmp_path / "b", states={"7": "node_fail|NodeDown"})[2]
    assert ended == f"    NodeDown; log: {tmp_path}/b/logs/7_0_log.out"


@pytest.mark.parametrize("states", [{"7": "failed|JobHoldMaxRequeue"}, {"7": "cancelled|None"}, {}])
def test_a_job_that_slurm_has_ended_for_good_is_not_said_to_restart(run_jobs, tmp_path, states):
    add_run(tmp_path / "a", "7")
    end = End(job_id="7", attempt=1, code=137, phase="training")
    then = "the job restarts from its last checkpoint"
    write_attempt(tmp_path / "a", end, Decision(True, then), Limits(9, 2, 140))
    assert then in run_jobs(tmp_path / "a", states={"7": "pending|BeginTime"})[2]
    assert then in run_jobs(tmp_path / "a", states=None)[2], "SLURM was not asked"
    note = run_jobs(tmp_path / "a", states=states)[2]
    assert then not in note
    assert "exit code 137 (SIGKILL)" in note
    assert "launch the run again to resume it" in note


def test_sweeps_on_slurm_are_listed_with_the_states_of_their_runs(run_jobs, tmp_path, monkeypatch):
    alive = {"7_0": "completed", "7_1": "running", "7_2": "pending|PartitionConfig", "7_3": "pending", "5_1": "failed"}
    root = tmp_path / "RTE" / "runs"
    files = {"a": "result.json", "b": None, "c": None, "d": "failure.json", "e": "failure.json", "f": None}
    for cell, file in files.items():  # d was submitted again, e has failed, f has left the queue without a word
        (root / cell / "seed-1").mkdir(parents=True)
        for name in ("run.json", *([file] if file else [])):
            (root / cell / "seed-1" / name).write_text('{"arguments": []}')
    numbers = {"a": "7_0", "b": "7_1", "c": "7_2", "d": "7_3", "e": "5_1", "f": "5_2"}
    (root / "jobs.json").write_text(json.dumps({f"{cell}/seed-1": job for cell, job in numbers.items()}))
    _, row, note = run_jobs(tmp_path, states=alive)
    assert row.split()[:1] == ["7"] and row.endswith(str(root))
    assert "1 failed, 1 not in the queue, 2 pending (PartitionConfig), 1 running" in row
    assert "1 of 6 runs" in row
    assert note == f"    failed: {root}/e/seed-1/failure.json", "its job has ended before fairseq-train began"
    cancelled = []
    monkeypatch.setattr(slurm_commands, "cancel", cancelled.append)
    run_jobs("cancel", root, states=alive)
    assert cancelled == ["7"]
    with pytest.raises(ValueError, match=r"No job of .*/RTE/runs is active \(it had 5, 7\)"):
        run_jobs("cancel", root, states={})
    assert run_jobs(root, states={})[2].endswith("writes the report, and runs again what is not done")
    with pytest.raises(ValueError, match=r"SETTING/seed-N/log\.txt"):
        run_jobs("logs", root, states={})
    (root / "e" / "seed-1" / "log.txt").write_text("its last line\n")
    assert run_jobs(tmp_path, states=alive)[-1] == f"    failed: {root}/e/seed-1/log.txt"
    assert run_jobs("logs", root / "e" / "seed-1", states={})[-1] == "its last line"
    assert "unknown (SLURM does not answer)" in run_jobs(root, states=None)[1]


def test_the_table_refreshes_until_ctrl_c(run_jobs, tmp_path, monkeypatch):
    add_run(tmp_path / "a", "7")
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        write_status(tmp_path / "a", Status(**{**vars(read_status(tmp_path / "a")), "update": 2600}))
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    lines = run_jobs(tmp_path, "--watch", "5", states={"7": "running"})
    assert pauses == [5, 5]
    assert [line.split()[2] for line in lines if line.startswith("7")] == ["2,500", "2,600"]
    assert "\x1b" not in "".join(lines), "no codes of a terminal in a file"


def test_no_runs_no_folder_and_a_job_that_slurm_says_nothing_of(run_jobs, tmp_path):
    assert run_jobs(tmp_path, states={}) == [f"no launched run in {tmp_path}"]
    add_run(tmp_path / "a", "7")
    assert "unknown (SLURM does not answer)" in run_jobs(tmp_path, states=None)[1]
    assert run_jobs(tmp_path, states={})[1].split()[:2] == ["7", "unknown"]
    with pytest.raises(FileNotFoundError, match="name the folder that holds your runs"):
        run_jobs(tmp_path / "none", states={})


def test_a_run_shows_its_mfu_and_the_rank_that_the_others_wait_for(run_jobs, tmp_path):
    slowest = Slowest(rank=3, host="n2", median_s=0.52, worst_s=2.1, all_s=0.31)
    add_run(tmp_path / "a", "7", mfu=41.27, slowest=slowest)
    lines = run_jobs(tmp_path, states={"7": "running"})
    assert "41.3 %" in lines[1]
    times = "0.52 s an update for data and forward passes (worst 2.1 s; median of all ranks 0.31 s)"
    assert lines[2].strip() == f"slowest rank: 3 on n2, {times}"
    assert len(run_jobs(tmp_path, states={"7": "pending"})) == 2


def act(*words):
    args = build_parser("jobs").parse_args(["jobs", *map(str, words)])
    return args.run(args)


@pytest.fixture
def failed(tmp_path):
    """A run whose last attempt failed first on its second node."""
    add_run(tmp_path / "a", "7")
    for attempt in (0, 1):
        where = {"phase": "training", "update": 5210, "reason": "rank 3 on n2: E: x", "node": 1}
        end = End(job_id="7", attempt=attempt, code=1, **where)
        write_attempt(tmp_path / "a", end, Decision(True, "the job restarts", exclude=("n2",)), Limits(9, 2, 140))
    (tmp_path / "a" / "logs").mkdir()
    for node in (0, 1):
        text = "".join(f"{rank}: line {number}\n" for number in range(100) for rank in (2 * node, 2 * node + 1))
        (tmp_path / "a" / "logs" / f"7_{node}_log.out").write_text(text)
    return tmp_path / "a"


def test_logs_shows_the_end_of_the_log_of_the_node_that_failed(failed, capsys):
    assert act("logs", failed, "--lines", "3") == 0
    expected = [f"==> {failed}/logs/7_1_log.out <==", "3: line 98", "2: line 99", "3: line 99"]
    assert capsys.readouterr().out.splitlines() == expected
    assert act("logs", failed, "--node", "0", "--lines", "1") == 0
    assert capsys.readouterr().out.endswith("1: line 99\n")
    with pytest.raises(FileNotFoundError, match=r"7_5_log.out does not exist: there are 2 logs of job 7"):
        act("logs", failed, "--node", "5")


def test_attempts_shows_all_of_them_and_sums_up_the_nodes(failed, capsys):
    assert act("attempts", failed) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "job 7, attempt 0, update 5,210: failed in training (exit code 1; rank 3 on n2: E: x)" in lines[0]
    assert "the job restarts; excluded: n2; log: logs/7_1_log.out" in lines[1]
    assert lines[4] == "first to fail: n2 (2 times)"
    reason = "rank 0 on n1: LostRankError: Lost rank: rank 4 on n3 (process 9) has sent no heartbeat for 6 s."
    for nodes in ((), ("n5",)):  # what a rank says of others; the nodes at fault
        end = End(job_id="7", attempt=2, code=137, phase="training", reason=reason, nodes=nodes)
        write_attempt(failed, end, Decision(True, "the job restarts"), Limits(9, 2, 140))
    assert act("attempts", failed) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "first to fail: n2 (2 times), n3, n5"


def test_cancel_ends_the_job_of_a_run_and_no_other(failed, monkeypatch, capsys):
    cancelled = []
    monkeypatch.setattr(slurm_commands, "cancel", cancelled.append)
    monkeypatch.setattr(slurm_commands, "jobs", lambda ids: {"7": slurm_commands.Job("running", "None")})
    assert act("cancel", failed) == 0
    assert cancelled == ["7"]
    assert "cancelled, it ends after saving a checkpoint" in capsys.readouterr().out
    monkeypatch.setattr(slurm_commands, "jobs", lambda ids: {"7": slurm_commands.Job("failed", "NonZeroExitCode")})
    with pytest.raises(ValueError, match=r"No job of .* is active \(it had 7\)"):
        act("cancel", failed)


def test_a_copy_of_a_run_has_no_jobs(failed, run_jobs, tmp_path, monkeypatch):
    """A copy while the run goes on: to cancel it would end the run. A folder that was moved keeps its job."""
    write_record(failed, RunRecord(arguments=("data", "--save-dir", f"{failed}/checkpoints")))
    shutil.copytree(failed, tmp_path / "copy")
    monkeypatch.setattr(slurm_commands, "cancel", lambda job: pytest.fail(f"cancelled {job}"))
    lines = run_jobs(tmp_path, states={"7": "running"})
    assert lines[1].split()[:2] == ["7", "running"]
    assert lines[-1] == f"    a copy of {failed}, which has the jobs"
    assert active_job(failed) == ("7", "running")
    assert active_job(tmp_path / "copy") is None, "it may go on as a run of its own"
    with pytest.raises(ValueError, match=rf"copy is a copy of {failed}, whose jobs these are"):
        act("cancel", tmp_path / "copy")
    shutil.rmtree(failed)
    assert active_job(tmp_path / "copy") == ("7", "running")


def test_a_failed_run_is_called_so_when_slurm_has_forgotten_its_job(run_jobs, tmp_path):
    add_run(tmp_path / "a", "7")
    end = End(job_id="7", attempt=1, code=1, phase="training")
    write_attempt(tmp_path / "a", end, Decision(False, "3 attempts in a row have failed"), Limits(9, 2, 140))
    lines = run_jobs(tmp_path, states={})
    assert lines[1].split()[:2] == ["7", "failed"]
    assert "3 attempts in a row have failed; log: " in lines[2]
    write_attempt(tmp_path / "a", end, Decision(False, LEFT_ALONE), Limits(9, 2, 140))
    assert run_jobs(tmp_path, states={})[1].split()[:2] == ["7", "unknown"]


@pytest.mark.parametrize("action", jobs.ACTIONS)
def test_an_action_needs_a_run(action, tmp_path):
    with pytest.raises(ValueError, match=f"roberta jobs {action}: name the run folder"):
        act(action)
    with pytest.raises(FileNotFoundError, match="is not the folder of a launched run"):
        act(action, tmp_path)
    add_run(tmp_path / "ranks", None, status_of="")
    with pytest.raises(ValueError, match=r"run in .*ranks was started by torchrun, or alone"):
        act(action, tmp_path / "ranks")


def test_a_run_without_slurm_shows_what_its_first_rank_wrote(run_jobs, tmp_path):
    add_run(tmp_path / "a", None, status_of="", phase="training")
    add_run(tmp_path / "b", None, status_of="", phase="training", time=time.time() - 7000)
    add_run(tmp_path / "c", None, status_of="", phase="stopped")
    _, *rows = run_jobs(tmp_path, states={})
    for row, shown in zip(rows, ("running", "running (silent)", "stopped"), strict=True):
        assert row.startswith(f"-    {shown}  ") and "2,500 of 10,000" in row


def test_a_run_of_torchrun_whose_rank_0_is_gone_has_failed(run_jobs, tmp_path):
    """By the lock of its checkpoints, which says nothing of another machine."""
    holders = {"gone": socket.gethostname(), "alive": socket.gethostname(), "elsewhere": "node9"}
    for name, host in holders.items():
        add_run(tmp_path / name, None, status_of="", phase="starting")
        (tmp_path / name / "checkpoints").mkdir()
        (tmp_path / name / "checkpoints" / TRAINING_LOCK).write_text(f"process 4711 on {host}\n")
    add_run(tmp_path / "no-lock", None, status_of="", phase="starting")
    add_run(tmp_path / "error", None, status_of="", phase="failed")
    with open(tmp_path / "alive" / "checkpoints" / TRAINING_LOCK, "rb+") as lock:
        assert try_lock(lock.fileno())
        lines = run_jobs(tmp_path, states={})
    shown = {line.rpartition("/")[2]: line for line in lines}
    assert all("running (starting)" in shown[name] for name in ("alive", "elsewhere", "no-lock"))
    assert "failed" in shown["gone"] and "failed" in shown["error"]
    assert f"    process 4711 on {socket.gethostname()} has ended while starting" in lines
    assert "    its last start ended with an error: see what torchrun has printed" in lines
