"""`roberta finetune --checkpoint`: the best or the last checkpoint of each run is its result, in all that follows."""

import csv
import json
import shutil

import pytest
import torch

from roberta_plugin.cli import main
from roberta_plugin.conversion.model_files import find_checkpoint
from roberta_plugin.experiments.evaluation import EvaluateSettings, evaluate
from roberta_plugin.launch import run_folder
from roberta_plugin.runs import FILES, RunFiles
from tests.conftest import REPOSITORY
from tests.first_runs import train
from tests.forked_training import ForkedProcess
from tests.tiny_benchmarks import write_tokenizer

pytestmark = pytest.mark.integration

EMBEDDINGS = "encoder.sentence_encoder.embed_tokens.weight"
SIZES = ("--encoder-layers", "1", "--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "64")
SIZES += ("--encoder-attention-heads", "2", "--max-positions", "32")


def write_table(path, labels):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["text", "label"], *((text, label) for text, label in labels)])


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with a pretrained model, and tables whose labels mean the opposite in the development set."""
    folder = tmp_path_factory.mktemp("checkpoint")
    tokenizer = write_tokenizer(folder / "tokenizer")
    (folder / "text.txt").write_text("good bad good\nbad good bad\n\n" * 40)
    words = ["--train", str(folder / "text.txt"), "--tokenizer", str(tokenizer), "--output-dir", str(folder / "bin")]
    assert main(["binarize", *words, "--no-progress"]) == 0
    train(
        [
            *(str(folder / "bin"), "--user-dir", str(REPOSITORY / "roberta_plugin"), "--cpu", *SIZES),
            *("--task", "roberta_masked_lm", "--criterion", "roberta_masked_lm", "--arch", "fast_roberta_tiny"),
            *("--tokens-per-sample", "32", "--batch-size", "4", "--optimizer", "roberta_adamw", "--lr", "1e-3"),
            *("--max-update", "2", "--disable-validation", "--save-dir", str(folder / "pretrained")),
        ]
    )
    texts = [("good " * (1 + number % 5), "bad " * (1 + number % 5)) for number in range(60)]
    write_table(folder / "train.csv", [pair for good, bad in texts for pair in ((good, "pos"), (bad, "neg"))])
    write_table(folder / "valid.csv", [pair for good, bad in texts[:10] for pair in ((good, "neg"), (bad, "pos"))])
    write_table(folder / "test.csv", [pair for good, bad in texts[:10] for pair in ((good, "pos"), (bad, "neg"))])
    return folder


def finetune(work, folder, *options, device=("--device", "cpu")):
    """The command in this process, its trainings in forks; the exit code."""
    words = ["--train", work / "train.csv", "--valid", work / "valid.csv", "--test", work / "test.csv", "--select"]
    words += ["loss", "--model", work / "pretrained" / "checkpoint_last.pt", "--output-dir", folder, "--quick"]
    words += ["--epochs", "4", "--only", "lr=1e-3", "--only", "batch=16", *device, *options]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_folder, "TrainingProcess", ForkedProcess)
        return main(["finetune", "custom", *map(str, words)])


@pytest.fixture(scope="module")
def both(work):
    """A fine-tuning that has finished with its best checkpoint as the result, and has kept the last one, too."""
    assert finetune(work, work / "both", "--keep", "all") == 0
    (run,) = (work / "both").glob("runs/*/seed-1")
    best, last = (torch.load(run / "checkpoints" / name, weights_only=True) for name in FILES.values())
    assert best["optimizer_history"][-1]["num_updates"] < last["optimizer_history"][-1]["num_updates"]
    return work / "both"


@pytest.fixture
def copied(both, tmp_path):
    return shutil.copytree(both, tmp_path / "tuned")


def run_in(folder):
    (path,) = folder.glob("runs/*/seed-1")
    return RunFiles(path)


def predictions(folder):
    """What an evaluation in a folder has written about each example."""
    return {split: (folder / f"{split}.predictions.jsonl").read_text() for split in ("valid", "test")}


def of_weights(folder, name):
    """The predictions of a checkpoint of a fine-tuning, from its weights."""
    path = run_in(folder).path / "checkpoints" / name
    evaluate(EvaluateSettings(data=folder / "data", checkpoints=[path], output_dir=folder / "own", device="cpu"))
    return predictions(folder / "own")


def test_a_finished_folder_is_reported_with_the_other_checkpoint(work, copied):
    expected = {name: of_weights(copied, name) for name in FILES.values()}
    assert expected[FILES["best"]]["test"] != expected[FILES["last"]]["test"]
    for choice in ("last", "best"):
        assert finetune(work, copied, "--keep", "all", "--checkpoint", choice) == 0
        assert predictions(copied / "results") == expected[FILES[choice]]
        path = run_in(copied).path / "checkpoints" / FILES[choice]
        found = json.loads((copied / "results" / "evaluation_test.json").read_text())
        assert [member["checkpoint"] for member in found["members"]] == [str(path)]
        assert run_in(copied).result()["metric"]["at"] == choice
        report = json.loads((copied / "runs" / "report.json").read_text())
        assert [member["checkpoint"] for member in report["ensemble"]] == [str(path)]


def test_stored_outputs_are_made_anew_for_other_weights_of_the_same_name(work, copied):
    run = run_in(copied)
    outputs = [run.outputs / f"{split}.npz" for split in ("valid", "test")]
    before = predictions(copied / "results"), [path.stat().st_mtime_ns for path in outputs]
    assert finetune(work, copied, "--keep", "all") == 0
    assert (predictions(copied / "results"), [path.stat().st_mtime_ns for path in outputs]) == before, "made again"
    shutil.copyfile(run.path / "checkpoints" / FILES["last"], run.path / "checkpoints" / FILES["best"])
    assert finetune(work, copied, "--keep", "all") == 0
    assert predictions(copied / "results") == of_weights(copied, FILES["last"]) != before[0]


def test_the_choice_changes_with_the_result_and_not_before(work, copied):
    words = ["--checkpoint", "last", "--grid-only"]
    assert finetune(work, copied, *words, device=()) == 0
    assert run_in(copied).choice() == run_in(copied).measured() == "best"
    assert find_checkpoint(copied, None).name == FILES["best"]


@pytest.mark.parametrize(("first", "then"), [("best", "last"), ("last", "best")])
def test_a_checkpoint_whose_weights_were_deleted_is_refused_with_the_remedy(work, copied, capsys, first, then):
    assert finetune(work, copied, "--checkpoint", first, "--keep", "best") == 0
    assert [path.name for path in run_in(copied).checkpoints()] == [FILES[first]]
    files = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file() and path.suffix != ".lock"}
    capsys.readouterr()
    assert finetune(work, copied, "--checkpoint", then, "--keep", "best") == 2
    error = capsys.readouterr().err
    assert f"done with their {first} checkpoint as the result, and {FILES[then]} is deleted in 1 of 1" in error
    assert f"give --checkpoint {first}" in error and "--keep all" in error
    assert {path: path.read_bytes() for path in files} == files, "the refused command changed a file"
    assert finetune(work, copied, "--checkpoint", first) == 0
    run_in(copied).chosen_checkpoint().unlink()  # what is reported needs stored outputs only
    assert finetune(work, copied, "--checkpoint", first) == 0


def test_what_follows_takes_the_chosen_checkpoint(work, copied, tmp_path):
    assert finetune(work, copied, "--keep", "all", "--checkpoint", "last") == 0
    run = run_in(copied)
    best, last = (run.path / "checkpoints" / name for name in FILES.values())
    assert {find_checkpoint(model, None) for model in (copied, run.path, run.path / "checkpoints")} == {last}
    (tmp_path / "new.csv").write_text("text\ngood good\nbad\n")
    answers = []
    for model in (copied, run.path, last, best):
        words = [model, "--data", copied / "data", "--input", tmp_path / "new.csv"]
        assert main(["predict", *map(str, words), "--output", str(tmp_path / "answers.jsonl")]) == 0
        answers.append((tmp_path / "answers.jsonl").read_text())
    assert answers[0] == answers[1] == answers[2] != answers[3]
    assert main(["export", str(copied), "--to", "fairseq", "--output-dir", str(tmp_path / "exported")]) == 0
    exported, ours = (
        torch.load(path, weights_only=True)["model"] for path in (tmp_path / "exported" / "model.pt", last)
    )
    assert torch.equal(exported[EMBEDDINGS], ours[EMBEDDINGS])
    words = ["--data", copied / "data", "--checkpoint", copied, "--output-dir", tmp_path / "evaluated"]
    assert main(["evaluate", *map(str, words)]) == 0
    assert predictions(tmp_path / "evaluated") == predictions(copied / "results")
    last.unlink()
    with pytest.raises(FileNotFoundError, match=r"checkpoint_last.pt does not exist, and .*run.json says"):
        find_checkpoint(run.path, None)
