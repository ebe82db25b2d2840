"""`roberta pretrain` with several ranks: under torchrun, and as a job on a real SLURM."""

import re
import signal
from pathlib import Path

import pytest

from roberta_plugin.cli import main
from roberta_plugin.launch import run_folder, slurm_commands
from tests.integration.test_torchrun import FORKED_RANK, end, run_ranks, start, torchrun, updates_in
from tests.slurm_cluster import needs_slurm, slurm_cluster, talking_to, wait_for

pytestmark = pytest.mark.integration


def test_rank_0_of_torchrun_plans_and_reports_and_another_number_of_ranks_resumes(tmp_path):
    text, folder, logs = tmp_path / "my.txt", tmp_path / "run", [tmp_path / "first.txt", tmp_path / "second.txt"]
    text.write_text("".join(f"A small cat sleeps on the red sofa.\nLine {number}.\n\n" for number in range(400)))
    words = ["roberta", "pretrain", str(text), "--recipe", "tour", "--updates", "50", "--output-dir", str(folder)]
    words += ["--log-interval", "1"]
    process = start([*torchrun("--standalone", "--nproc-per-node", "2"), *FORKED_RANK, *words], logs[0])
    try:
        wait_for(lambda: process.poll() is not None or any(each >= 8 for each in updates_in(logs[0])), 200, "update 8")
        assert process.poll() is None, logs[0].read_text()[-3000:]
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
    finally:
        end(process)
    status = run_folder.read_status(folder)
    assert status.phase == "stopped" and 8 <= status.update < status.max_update
    said = logs[0].read_text()
    for once in ("$ roberta binarize", "recipe   tour", "| fairseq-train ", "rank 0 of world size 2"):
        assert said.count(once) == 1, once
    assert '"bsz": "16"' in said and "rank 1 of" not in said

    run_ranks(words, 1, logs[1])
    said = logs[1].read_text()
    assert f"resuming from checkpoint_last.pt, update {status.update}" in said
    assert updates_in(logs[1])[0] == status.update + 1 and updates_in(logs[1])[-1] == status.max_update
    assert '"bsz": "16"' in said and "of the masked tokens correctly" in said and "\nNext:\n" in said
    assert "loss curve" in (folder / "report.md").read_text()
    assert updates_in(folder / "train.log")[:3] == [1, 2, 3], "the curve begins with the first start"
    assert main(words[1:]) == 2, "alone, it would know nothing of the record of the ranks"


@pytest.mark.parametrize(
    ("resource", "said"),
    [("partition=gpu", "no partition 'gpu'"), ("time=1", "Give a longer --time")],
)
def test_what_slurm_would_refuse_is_refused_before_hours_of_tokenizing(resource, said, tmp_path, monkeypatch, capsys):
    """Also after `--`, as options of fairseq-train are given to `roberta launch`."""
    monkeypatch.setattr(slurm_commands, "partitions", lambda: {"main": 4})
    text = tmp_path / "my.txt"
    text.write_text("A small cat sleeps on the red sofa.\n" * 100)
    words = ["pretrain", str(text), "--recipe", "tour", "--output-dir", str(tmp_path / "run")]
    assert main([*words, "--slurm", resource, "--", "--cpu"]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run" / "tokenizer").exists()


@pytest.mark.slurm
@needs_slurm
def test_a_job_is_submitted_found_and_shown(tiny_data_bin, tmp_path, tmp_path_factory, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["pretrain", str(tiny_data_bin), "--output-dir", "run", "--recipe", "tour", "--hours", "1e-6"]
    words += ["--slurm", "nodes=2", "gpus_per_node=1", "cpus_per_gpu=1", "time=60", "partition=main"]

    def said(*more, code=0):
        assert main([*words, *more]) == code
        found = capsys.readouterr()
        return found.out + found.err

    cluster_folder = tmp_path_factory.mktemp("slurm")  # a short name, as paths of sockets must be
    with slurm_cluster(cluster_folder, num_nodes=2) as cluster, talking_to(cluster):
        shown = said("--dry-run")
        assert "#SBATCH --nodes=2" in shown and "2 x 1 ranks by SLURM" in shown and "--batch-size 8" in shown
        assert not Path("run").exists()
        job = re.search(r"job (\d+): logs in", said())[1]
        if "progress by `roberta jobs" not in (again := said()):
            assert "of the masked tokens correctly" in again, "the second start finds the job, unless it has ended"
        wait_for(lambda: not cluster.call("squeue", "--noheader").strip(), 200, "the job's end")
        assert cluster.state(job) == "COMPLETED", Path(f"run/logs/{job}_0_log.out").read_text()[-3000:]
        assert run_folder.read_status(Path("run")).update == 20
        refusal = said("--lr", "1e-2", code=2)
        assert "--lr was 0.0015 and is 0.01 now" in refusal and "accept_changes=true after --slurm" in refusal
        shown = said()
        assert "of the masked tokens correctly" in shown and "has no tokenizer beside dict.txt" in shown
        assert Path("run/loss.png").is_file()
        assert run_folder.known_jobs(Path("run")) == {run_folder.ITSELF: job}, "nothing was submitted again"
