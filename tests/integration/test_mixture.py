"""Several corpora in one training, through the real commands with fairseq's own validation."""

import re

import pytest
import torch

from roberta_plugin.launch.log import curves, parse_line
from tests.conftest import REPOSITORY
from tests.tiny_corpus import command, logged, run, train_command, write_data_bin

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Three data-bins, the last without a validation split."""
    folder = tmp_path_factory.mktemp("corpora")
    found = [write_data_bin(folder / name, num_documents=8, valid_documents=4, seed=i) for i, name in enumerate("abc")]
    for suffix in ("bin", "idx"):
        (found[2] / f"valid.{suffix}").unlink()
    return found


def test_a_mixture_by_size_validates_on_all_of_its_folders(corpora, tmp_path):
    a, b, c = corpora
    save_dir = tmp_path / "checkpoints"
    options = ("--corpus-alpha", "0.3", "--max-epoch", "1", "--total-num-update", "50", "--no-save")
    options += ("--valid-subset", "valid,valid@b,valid@a")
    done = run(train_command(f"{c},{a},{b}", save_dir, *options))
    assert done.returncode == 0, done.stderr[-3000:]
    log = done.stdout + done.stderr
    assert {f"{folder}/valid" for folder in (a, b)} <= set(re.findall(r"(\S+/valid): \d+ lines", log))
    assert len(logged(save_dir, "valid")) == 1
    records = [record for line in log.splitlines() if (record := parse_line(line))]
    curve = {kind: found.values for (kind, name), found in curves(records).items() if name == "loss"}
    assert min(curve["valid@a"][0], curve["valid@b"][0]) < curve["valid"][0] < max(*curve["valid@a"], *curve["valid@b"])
    done = run(train_command(f"{a},{b}", save_dir, *options[:-1], "valid@c"))
    assert done.returncode == 2
    assert "--valid-subset valid@c names no data folder: it must be called c, and the folders are" in done.stderr


def test_weighted_mixtures_that_take_turns_validate_and_resume_alike(corpora, tmp_path):
    """The first run ends in the second turn, C; the next goes on there and into the third."""
    a, b, c = corpora
    save_dir = tmp_path / "checkpoints"
    options = ("--save-interval-updates", "4", "--no-epoch-checkpoints", "--total-num-update", "50")
    arguments = train_command(f"{a}@1,{b}@2:{c}", save_dir, *options, "--combine-valid-subsets")
    done = run([*arguments, "--max-update", "9"])
    assert done.returncode == 0, done.stderr[-3000:]
    state = torch.load(save_dir / "checkpoint_last.pt", weights_only=True)["extra_state"]["train_iterator"]
    assert state["epoch"] == 2 and state["iterations_in_epoch"] > 0
    done = run([*arguments, "--max-update", "20"])
    assert done.returncode == 0, done.stderr[-3000:]
    assert "@ 9 updates" in done.stderr + done.stdout
    updates = [(int(record["epoch"]), int(record["num_updates"])) for record in logged(save_dir, "train_inner")]
    assert [update for _, update in updates] == list(range(1, 21))
    assert {epoch for epoch, _ in updates} >= {1, 2, 3}

    validate = [*command("fairseq-validate"), f"{a}@1,{b}@2:{c}", "--user-dir", str(REPOSITORY / "roberta_plugin")]
    validate += ["--task", "roberta_masked_lm", "--path", str(save_dir / "checkpoint_last.pt"), "--cpu", "--seed", "3"]
    done = run([*validate, "--batch-size", "4", "--log-format", "simple"])
    assert done.returncode == 0, done.stderr[-3000:]
    loss = float(re.findall(r"\| loss ([0-9.]+)", done.stdout + done.stderr)[-1])
    assert loss == pytest.approx(float(logged(save_dir, "valid")[-1]["valid_loss"]), abs=2e-3)
