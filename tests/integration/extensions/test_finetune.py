"""The whole procedure by one command: raw files, pretrained checkpoint, grid and seeds, evaluation, ensemble, table."""

import json
import os
import re
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch

from roberta_plugin.cli import main
from tests.conftest import REPOSITORY
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_corpus import command, run, run_here
from tests.tiny_race import write_race

pytestmark = pytest.mark.integration

LENGTH = 96
SIZES = ("--encoder-layers", "2", "--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "64")
SIZES += ("--encoder-attention-heads", "2", "--max-positions", str(LENGTH))


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    """A folder with a tokenizer, a checkpoint of three updates of pretraining, and raw files."""
    folder = tmp_path_factory.mktemp("finetune")
    tokenizer = write_tokenizer(folder / "tokenizer")
    (folder / "text.txt").write_text("good bad good\nbad good bad\n\n" * 40)
    words = ["--train", str(folder / "text.txt"), "--tokenizer", str(tokenizer), "--output-dir", str(folder / "bin")]
    assert main(["binarize", *words, "--no-progress"]) == 0
    done = run(
        [
            *command("fairseq-train"),
            str(folder / "bin"),
            *("--user-dir", str(REPOSITORY / "roberta_plugin"), "--cpu", "--task", "roberta_masked_lm"),
            *("--criterion", "roberta_masked_lm", "--arch", "fast_roberta_tiny", *SIZES, "--tokens-per-sample", "64"),
            *("--batch-size", "4", "--optimizer", "roberta_adamw", "--lr", "1e-3", "--max-update", "3"),
            *("--disable-validation", "--save-dir", str(folder / "pretrained")),
        ]
    )
    assert done.returncode == 0, done.stderr[-3000:]
    write_race(folder / "raw", train=120, dev=40)
    return folder


def finetune(work: Path, folder: str, *options: str, start=run):
    words = ["--raw", str(work / "raw"), "--tokenizer", str(work / "tokenizer"), "--max-length", str(LENGTH)]
    words += ["--question-length", "40", "--output-dir", str(work / folder), "--only", "lr=2e-3"]
    words += ["--model", str(work / "pretrained" / "checkpoint_last.pt"), "--seeds", "1", "2"]
    words += [] if "--grid-only" in options else ["--parallel", "2"]
    return start([*command("roberta"), "finetune", "race", *words, *options])


@pytest.fixture
def here(capsys):
    """What starts a command as a call in this process."""
    return partial(run_here, capture=capsys)


@pytest.fixture(scope="module")
def finetuned(work) -> Path:
    done = finetune(work, "tuned")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "2 runs: 2 done" in done.stdout
    assert "INFO:" not in done.stderr  # of libraries
    assert "DEBUG:" not in done.stderr
    assert "\r" not in done.stderr and "it/s" not in done.stderr and "updates" not in done.stderr, "bars in a file"
    assert re.search(r"\| race \| valid \| accuracy \| .*65\.6", done.stdout), "the table lacks the paper's row"
    assert f"predictions, valid: {work / 'tuned' / 'results' / 'valid.predictions.jsonl'}" in done.stdout
    assert re.search(r"1 of 2: lr-2e-3_batch-16/seed-\d done: [0-9.]+\n.*2 of 2: ", done.stdout), "a line a run"
    return work / "tuned"


def test_medians_and_the_ensemble_are_those_of_the_runs(finetuned):
    found = json.loads((finetuned / "results" / "evaluation_valid.json").read_text())
    values = [member["metrics"]["accuracy"] for member in found["members"]]
    logged = [json.loads(path.read_text())["value"] for path in sorted(finetuned.glob("runs/*/seed-*/result.json"))]
    assert values == pytest.approx(logged, abs=1e-3)
    assert found["median"]["accuracy"] == sum(values) / 2
    assert min(values) > 50, "the runs have learned nothing: chance is 25"
    assert found["ensemble"]["accuracy"] > 50
    assert (finetuned / "results" / "valid.predictions.jsonl").is_file()


def test_the_runs_start_from_the_pretrained_model(finetuned, work):
    grid = json.loads((finetuned / "finetune.yaml").read_text())
    assert grid["train"]["finetune-from-model"] == str(work / "pretrained" / "checkpoint_last.pt")
    assert grid["train"]["encoder-ffn-embed-dim"] == "64"
    log = next(finetuned.glob("runs/*/seed-1/log.txt")).read_text()
    assert f"loading pretrained model from {work}/pretrained/checkpoint_last.pt" in log


def test_the_same_command_again_trains_nothing(finetuned, work):
    before = {path: path.stat().st_mtime_ns for path in finetuned.glob("runs/*/seed-*/checkpoints/*.pt")}
    assert len(before) == 1
    done = finetune(work, "tuned")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "runs to do" not in done.stdout
    assert "| race | valid | accuracy |" in done.stdout, "the table of the first time"
    assert {path: path.stat().st_mtime_ns for path in finetuned.glob("runs/*/seed-*/checkpoints/*.pt")} == before


def test_a_run_whose_weights_are_gone_still_counts_in_a_folder_that_was_moved(finetuned, work):
    moved = shutil.copytree(finetuned, work / "moved")
    (seed,) = [path.name[-1] for path in moved.glob("runs/*/seed-*") if not list(path.glob("checkpoints/*.pt"))]
    done = finetune(work, "moved", "--seeds", seed, "--output-dir", os.path.relpath(moved, REPOSITORY))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "runs to do" not in done.stdout
    found, both = (
        json.loads((folder / "results" / "evaluation_valid.json").read_text()) for folder in (moved, finetuned)
    )
    before = [member["metrics"] for member in both["members"] if f"seed-{seed}/" in member["checkpoint"]]
    assert [member["metrics"] for member in found["members"]] == before


def test_a_fine_tuned_model_or_random_weights_can_be_the_start(finetuned, work, here):
    best = json.loads((finetuned / "runs" / "report.json").read_text())["ensemble"][0]["checkpoint"]
    options = ("--data", str(finetuned / "data"), "--grid-only")
    assert finetune(work, "further", *options, "--model", str(finetuned), start=here).returncode == 0
    assert json.loads((work / "further" / "finetune.yaml").read_text())["train"]["finetune-from-model"] == best
    assert finetune(work, "scratch", *options, "--from-scratch", start=here).returncode == 0
    train = json.loads((work / "scratch" / "finetune.yaml").read_text())["train"]
    assert "finetune-from-model" not in train
    assert train["encoder-layers"] == "2"


def test_of_finished_runs_the_weights_of_the_best_are_kept(finetuned):
    (kept,) = finetuned.glob("runs/*/seed-*/checkpoints/*.pt")
    report = json.loads((finetuned / "runs" / "report.json").read_text())
    assert [member["checkpoint"] for member in report["ensemble"]] == [str(kept)]
    values = {
        path.parent: json.loads(path.read_text())["value"] for path in finetuned.glob("runs/*/seed-*/result.json")
    }
    assert values[kept.parent.parent] == max(values.values())
    state = torch.load(kept, weights_only=True)
    assert "last_optimizer_state" not in state
    assert state["task_state"]["data"]["task"] == "race"
    assert report["states"] == {"done": 2}, "a run without optimizer state is done all the same"


def test_evaluate_gives_the_same_numbers_and_collects_them(finetuned, tmp_path, here):
    (kept,) = finetuned.glob("runs/*/seed-*/checkpoints/*.pt")
    words = ["--data", str(finetuned / "data"), "--checkpoint", str(kept), "--output-dir", str(tmp_path / "alone")]
    done = run([*command("roberta"), "evaluate", *words, "--max-tokens", "500"])
    assert done.returncode == 0, done.stderr[-3000:]
    assert "INFO:" not in done.stderr
    one, other = (
        json.loads((folder / "evaluation_valid.json").read_text())
        for folder in (tmp_path / "alone", finetuned / "results")
    )
    assert [member["metrics"] for member in other["members"] if member["checkpoint"] == str(kept)] == [one["median"]]
    words = ["--results", str(tmp_path / "alone"), "--output-dir", str(tmp_path / "all")]
    done = here([*command("roberta"), "evaluate", *words])
    assert done.returncode == 0, done.stderr[-3000:]
    assert "| race | valid | accuracy |" in done.stdout
    assert (tmp_path / "all" / "results.md").read_text() in done.stdout + "\n"
