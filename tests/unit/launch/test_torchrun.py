"""torchrun's environment becomes fairseq's options, and a run folder without SLURM is one run, too."""

import os

import pytest

from roberta_plugin.fairseq_workarounds import save_dir_lock
from roberta_plugin.launch import status, torchrun
from roberta_plugin.launch.rendezvous import RankInfo, distributed_arguments
from roberta_plugin.launch.torchrun import rank_of_torchrun, train_rank
from tests.unit.launch.recipes import good_recipe

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

    class Hook:
        has_stopped = False

        def write_status(self, phase):
            begun.append(phase)

    def train(recipe, rank, arguments, stop):
        begun.append(" ".join(arguments))
        return Hook()

    monkeypatch.setattr(torchrun, "_train", train)
    monkeypatch.setattr(save_dir_lock, "acquire", lambda folder: None)
    return begun


def test_the_batch_of_an_update_stays_the_same_for_any_number_of_ranks(tiny_data_bin, tmp_path, trained, monkeypatch):
    monkeypatch.setenv("MINE", "")
    recipe = good_recipe(tiny_data_bin, tmp_path / "run", batch_sequences=64, env=("MINE=yes",))
    for world_size, batch in ((2, "--batch-size 4 --update-freq 8"), (16, "--batch-size 4 --update-freq 1")):
        assert train_rank(recipe, RankInfo(rank=0, world_size=world_size, local_rank=0)) == 0
        assert batch in trained[-2]
        assert trained[-1] == "finished"
    assert os.environ["MINE"] == "yes"
    launch = status.read_launch(recipe.output_dir)
    assert (launch.job_id, launch.num_gpus, launch.batch_sequences) == (None, 16, 64)


def test_the_first_rank_refuses_other_settings_in_the_same_run_folder(tiny_data_bin, tmp_path, trained):
    alone = RankInfo(rank=0, world_size=1, local_rank=0)
    train_rank(good_recipe(tiny_data_bin, tmp_path / "run"), alone)
    with pytest.raises(ValueError, match=r"was begun with other settings: --mask-prob 0.3 instead of 0.15"):
        train_rank(good_recipe(tiny_data_bin, tmp_path / "run", "--mask-prob", "0.3"), alone)


def test_an_error_is_in_the_status_that_roberta_jobs_reads(tiny_data_bin, tmp_path, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("no GPU")

    monkeypatch.setattr(torchrun, "_train_with", fail)
    monkeypatch.setattr(save_dir_lock, "acquire", lambda folder: None)
    recipe = good_recipe(tiny_data_bin, tmp_path / "run")
    with pytest.raises(RuntimeError, match="no GPU"):
        train_rank(recipe, RankInfo(rank=0, world_size=1, local_rank=0))
    assert status.read_status(recipe.output_dir).phase == "failed"
