"""The real fairseq-train on disks that are full, and from a checkpoint of fairseq's own model and optimizer."""

import os
import shutil
import subprocess

import pytest
import torch

from roberta_plugin.checkpoint_files import fault_of
from tests.conftest import REPOSITORY
from tests.forked_training import ForkedTrainings, run_python
from tests.slurm_cluster import wait_for
from tests.tiny_corpus import environment, run, train_command

pytestmark = pytest.mark.integration

LAST_ONLY = ("--disable-validation", "--no-epoch-checkpoints", "--total-num-update", "20", "--num-workers", "0")
EVERY_FOUR = ("--save-interval-updates", "4")


def updates_in(path):
    assert fault_of(path) is None
    return torch.load(path, weights_only=True)["optimizer_history"][-1]["num_updates"]


@pytest.fixture(scope="module")
def begun(tiny_data_bin, tmp_path_factory):
    """A training that has saved its update 4."""
    save_dir = tmp_path_factory.mktemp("begun") / "checkpoints"
    done = run(train_command(tiny_data_bin, save_dir, *LAST_ONLY, *EVERY_FOUR, "--max-update", "4"))
    assert done.returncode == 0, done.stderr[-3000:]
    return save_dir


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 6 MB; a checkpoint of these tests has 0.6."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_full_for_a_moment_costs_no_checkpoint(tiny_data_bin, begun, tmp_path, small_disk):
    save_dir = small_disk / "checkpoints"
    shutil.copytree(begun, save_dir)
    options = (*LAST_ONLY, *EVERY_FOUR, "--log-file", str(tmp_path / "run.log"))
    size = (save_dir / "checkpoint_last.pt").stat().st_size
    filler = small_disk / "filler"
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
    filler.write_bytes(b"x" * (free - size // 2))

    output = tmp_path / "output"
    command = train_command(tiny_data_bin, save_dir, *options, "--max-update", "8")
    training = ForkedTrainings([command], cwd=REPOSITORY, environment=environment(), log=output)

    def is_full():
        assert training.codes() is None, output.read_text()[-3000:]
        return "No space left on device. Trying again" in output.read_text()

    try:
        wait_for(is_full, 120, "the full disk")
        filler.unlink()
        assert training.codes(timeout=120) == [0], output.read_text()[-3000:]
    finally:
        training.kill()
    assert [updates_in(save_dir / f"checkpoint_{name}.pt") for name in ("1_8", "last")] == [8, 8]
    assert not list(save_dir.glob("*.tmp")) + list(save_dir.glob(".*.tmp"))


def test_a_checkpoint_that_cannot_be_written_ends_the_training_and_the_next_start_goes_on(
    tiny_data_bin, begun, tmp_path
):
    """A limit on the size of files, as of a quota: the error names the file, what was saved before stays whole."""
    save_dir = tmp_path / "checkpoints"
    shutil.copytree(begun, save_dir)
    options = (*LAST_ONLY, *EVERY_FOUR)
    last = save_dir / "checkpoint_last.pt"
    limit = last.stat().st_size * 2 // 3
    limited = f"""
import resource, fairseq_cli.train
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
fairseq_cli.train.cli_main()
"""
    arguments = train_command(tiny_data_bin, save_dir, *options, "--max-update", "8")[1:]
    done = run_python(limited, *arguments, cwd=REPOSITORY, environment=environment(), fork_of="fairseq")
    assert done.returncode == 2
    expected = f"The checkpoint {save_dir}/checkpoint_1_8.pt cannot be written: File too large"
    assert expected in done.stderr.splitlines()[-1]
    assert updates_in(last) == 4
    assert not list(save_dir.glob("*.tmp")) + list(save_dir.glob(".*.tmp"))

    (save_dir / ".checkpoint_1_8.pt.01234567.tmp").write_bytes(b"of a killed run")
    done = run(train_command(tiny_data_bin, save_dir, *options, "--max-update", "8"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Removed .checkpoint_1_8.pt.01234567.tmp" in done.stdout + done.stderr
    assert updates_in(last) == 8


def test_another_model_is_named_by_its_options(tiny_data_bin, begun, tmp_path):
    """The weights fit any number of heads; torch would name the layer norms by their parameters."""
    other = ("--encoder-attention-heads", "1", "--encoder-normalize-before", "--max-update", "8")
    shutil.copytree(begun, tmp_path / "run")
    done = run(train_command(tiny_data_bin, tmp_path / "run", *LAST_ONLY, *other))
    assert done.returncode == 2
    named = "was trained with a different architecture: --encoder-attention-heads was 2 and is 1 now; "
    named += "--encoder-normalize-before was False and is True now."
    assert named in done.stderr.splitlines()[-1]
    assert "to begin with these weights" in done.stderr.splitlines()[-1]
    start = ("--finetune-from-model", str(begun / "checkpoint_last.pt"))
    done = run(train_command(tiny_data_bin, tmp_path / "other", *LAST_ONLY, *other, *start))
    assert done.returncode == 2
    assert named in done.stdout + done.stderr


def test_a_run_of_fairseqs_own_model_criterion_and_adam_goes_on_with_ours(tiny_data_bin, tmp_path):
    """In fp32, by --restore-file, without --reset-optimizer: moments and updates go on, options count from here on.

    And what `roberta binarize` leaves is a data-bin for fairseq's task and model without us.
    """
    options = (*LAST_ONLY, "--max-positions", "64")
    theirs = train_command(tiny_data_bin, tmp_path / "theirs", *options, "--max-update", "4")
    for option, name in (("--task", "masked_lm"), ("--criterion", "masked_lm"), ("--arch", "roberta_base")):
        theirs[theirs.index(option) + 1] = name
    user_dir = theirs.index("--user-dir")
    del theirs[user_dir : user_dir + 2]
    done = run(theirs)
    assert done.returncode == 0, done.stderr[-3000:]
    begin = torch.load(tmp_path / "theirs" / "checkpoint_last.pt", weights_only=True)
    assert begin["optimizer_history"][-1]["criterion_name"] == "MaskedLmLoss"
    assert begin["optimizer_history"][-1]["optimizer_name"] == "FairseqAdam"

    ours = [*train_command(tiny_data_bin, tmp_path / "ours", *options, "--max-update", "5", "--lr", "1e-9")]
    ours += ["--weight-decay", "0.5"]
    ours += ["--optimizer", "roberta_adamw", "--restore-file", str(tmp_path / "theirs" / "checkpoint_last.pt")]
    done = run(ours)
    assert done.returncode == 0, done.stderr[-3000:]
    output = done.stdout + done.stderr
    assert "RobertaMaskedLMCriterion takes over its state" in output
    assert "RobertaAdamW takes over its state" in output
    end = torch.load(tmp_path / "ours" / "checkpoint_last.pt", weights_only=True)
    assert end["optimizer_history"][-1]["num_updates"] == 5
    assert "--weight-decay is 0.5 from here on; the checkpoint was trained with 0.01." in output
    assert end["last_optimizer_state"]["param_groups"][0]["weight_decay"] == 0.5
    moments = [state["last_optimizer_state"]["state"] for state in (begin, end)]
    assert len(moments[0]) == len(moments[1]) > 30
    for before, after in zip(moments[0].values(), moments[1].values(), strict=True):
        assert (before["step"], after["step"].item()) == (4, 5)
        # One update changes the second moment by 2 % of the gradient's square: most of the old one is still there.
        assert (after["exp_avg_sq"] >= before["exp_avg_sq"] * 0.9799).all()
        assert before["exp_avg_sq"].any()
