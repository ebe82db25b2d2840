"""A training that is stopped at validations and resumed ends as one that was not, with the real fairseq-train."""

import json
import re

import pytest
import torch

from tests.conftest import REPOSITORY
from tests.forked_training import ForkedTrainings
from tests.tiny_corpus import environment, train_command

pytestmark = pytest.mark.integration

# A fairseq-train that gets a signal at a moment.
PROGRAM = """
import json, os, signal, sys
from fairseq.trainer import Trainer
from fairseq_cli.train import cli_main

def press_in(name, moment, number):
    original, batches = getattr(Trainer, name), []
    def step(self, *args, **options):
        print("BATCH", name, self.get_num_updates(), flush=True)
        if moment == [name, self.get_num_updates()]:
            batches.append(1)
            if len(batches) == 2 or name == "train_step":
                os.kill(os.getpid(), getattr(signal, number))
        return original(self, *args, **options)
    setattr(Trainer, name, step)

moment, number = json.loads(sys.argv.pop(1))
press_in("train_step", moment, number), press_in("valid_step", moment, number)
sys.exit(cli_main())
"""


def run_all(runs):
    """Runs of (log, command, moment, signal); a moment is ("train_step" or "valid_step", updates that are made)."""
    codes = []
    for log, command, moment, number in runs:
        program = ["python", "-c", PROGRAM, json.dumps([moment, number]), *command[1:]]
        how = {"cwd": REPOSITORY, "environment": environment(), "fork_of": "fairseq"}  # which the program changes first
        training = ForkedTrainings([program], **how, log=log)
        codes += training.codes(timeout=200)
    return codes


def result_of(save_dir):
    """What each checkpoint holds: updates, loss, best loss, what is left for the next start, and a sum of weights."""
    found = {}
    for path in save_dir.glob("*.pt"):
        state = torch.load(path, weights_only=True)
        extra = state["extra_state"]
        found[path.name] = (
            state["optimizer_history"][-1]["num_updates"],
            *(extra.get(key) for key in ("val_loss", "best", "patience", "unfinished_update", "train_iterator")),
            sum(value.double().sum().item() for value in state["model"].values()),
        )
    return found


@pytest.mark.slow
def test_stops_at_validations_change_nothing(tiny_data_bin, tmp_path):
    """By a signal before a validation, in one, at the end of an epoch and in the validation there."""
    options = ["--max-epoch", "3", "--total-num-update", "100", "--batch-size", "16", "--batch-size-valid", "4"]
    options += ["--save-interval-updates", "2", "--keep-best-checkpoints", "2", "--patience", "20"]
    options += ["--best-checkpoint-metric", "loss", "--maximize-best-checkpoint-metric"]  # the first one is the best
    whole, parts = (train_command(tiny_data_bin, tmp_path / name, *options) for name in ("whole", "parts"))
    end, next_end = 7, 14  # updates
    moments = [("train_step", 1), ("valid_step", 4), ("train_step", end - 1), ("valid_step", next_end), None]
    runs = [(tmp_path / f"{i}.txt", parts, moment, "SIGTERM") for i, moment in enumerate(moments)]
    codes = run_all([(tmp_path / "whole.txt", whole, None, "SIGTERM"), *runs])
    assert codes == [0, 143, 143, 143, 143, 0], (tmp_path / "0.txt").read_text()[-3000:]
    assert result_of(tmp_path / "whole")["checkpoint1.pt"][0] == end
    assert result_of(tmp_path / "parts") == result_of(tmp_path / "whole")
    stops = [
        re.findall(r"Stopped by SIGTERM after update (\d+)", (tmp_path / f"{i}.txt").read_text()) for i in range(4)
    ]
    assert stops == [["2"], ["4"], [str(end)], [str(next_end)]]
    batches = [
        (tmp_path / f"{i}.txt").read_text().count(f"BATCH valid_step {updates}\n")
        for i, updates in ((1, 4), (3, next_end))
    ]
    assert batches == [2, 2], "the validation went on after the signal"


@pytest.mark.slow
def test_an_early_stop_is_the_same_after_a_kill_and_stays_one(tiny_data_bin, tmp_path):
    options = ["--max-update", "60", "--total-num-update", "100", "--batch-size", "16", "--no-epoch-checkpoints"]
    options += ["--save-interval-updates", "1", "--patience", "3", "--best-checkpoint-metric", "bsz"]  # never better
    whole, parts = (train_command(tiny_data_bin, tmp_path / name, *options) for name in ("whole", "parts"))
    runs = [(tmp_path / f"{name}.txt", whole, None, "SIGTERM") for name in ("whole", "again")]
    runs += [(tmp_path / "0.txt", parts, ("train_step", 2), "SIGKILL"), (tmp_path / "1.txt", parts, None, "SIGTERM")]
    assert run_all(runs) == [0, 0, -9, 0]
    assert result_of(tmp_path / "parts") == result_of(tmp_path / "whole")
    assert result_of(tmp_path / "whole")["checkpoint_last.pt"][0] == 4
    said = (tmp_path / "again.txt").read_text()
    assert "This training is finished: early stop" in said
    assert "BATCH" not in said and "Saved checkpoint" not in said
