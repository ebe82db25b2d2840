"""`roberta study`, the real command: stopped in the middle, resumed, extended. Trainings are forks."""

import json
import os
import re
import signal
import threading
from pathlib import Path

import pytest

from roberta_plugin.cli import main
from roberta_plugin.launch import run_folder
from roberta_plugin.locks import is_locked
from tests.forked_training import ForkedProcess
from tests.slurm_cluster import wait_for
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_glue import write_task
from tests.tiny_study import write_study

pytestmark = pytest.mark.integration
REPORT = ("report.md", "results.json")


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with text, a tokenizer, and SST-2 of made-up sentences."""
    folder = tmp_path_factory.mktemp("study")
    tokenizer = write_tokenizer(folder / "tokenizer")
    (folder / "text.txt").write_text("good bad good\nbad good bad\n\n" * 60)
    (folder / "valid.txt").write_text("good bad good bad\nbad good bad\n\n" * 10)
    words = ["--train", str(folder / "text.txt"), "--valid", str(folder / "valid.txt"), "--tokenizer", str(tokenizer)]
    assert main(["binarize", *words, "--output-dir", str(folder / "bin"), "--no-progress"]) == 0
    write_task(folder / "glue", "SST-2", train=48, dev=24, test=4)
    return folder


@pytest.fixture(scope="module")
def finished(work):
    """A study that got SIGTERM in its first pretraining, and was then done: its file's content, and what it found.

    The two variants differ in nothing that matters, so the one that is never stopped is the reference for the other.
    """
    tuning = {"kind": "fine-tuning", "task": "SST-2", "raw": str(work / "glue"), "tokenizer": str(work / "tokenizer")}
    tuning |= {"max-length": "64", "epochs": "1", "seeds": ["1"], "grid": {"lr": "1e-3", "batch": "16"}}
    content = {
        "data": work / "bin",
        "variants": {"stopped": {"paper": "table1/static"}, "calm": {"log-interval": "2", "paper": "table1/dynamic"}},
        "probes": {"held-out": {"kind": "perplexity"}, "sentiment": tuning},
        "seeds": ["1"],
        "budget": {"equal": "updates", "amount": "60"},
    }
    write_study(work / "study.yaml", **content)
    pretraining = work / "out" / "pretraining" / "variant-stopped" / "seed-1"
    saved = pretraining / "checkpoints" / "checkpoint_last.pt"

    def terminate():
        wait_for(saved.is_file, 200, "a checkpoint")
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:  # it would end pytest
            os.kill(os.getpid(), signal.SIGTERM)

    killer = threading.Thread(target=terminate, daemon=True)
    killer.start()
    assert do(work) == 143
    killer.join()
    assert not is_locked(pretraining / "lock"), "the training was left running"
    assert not (pretraining / "result.json").exists()
    assert "| stopped | - |" in (work / "out" / "report.md").read_text()
    assert do(work) == 0
    assert f"Loaded checkpoint {saved}" in (pretraining / "log.txt").read_text()
    return content, json.loads((work / "out" / "results.json").read_text())


def do(work, *options):
    """`roberta study` in this process, its trainings in forks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_folder, "TrainingProcess", ForkedProcess)
        return main(["study", str(work / "study.yaml"), "--output-dir", str(work / "out"), *options])


def files_of(work):
    """All files with their times, but for the report's."""
    found = {path.relative_to(work): path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()}
    return {path: time for path, time in found.items() if path.parent != Path("out") or path.name not in REPORT}


def test_a_stopped_study_goes_on_and_finds_what_an_undisturbed_one_finds(work, finished):
    _, results = finished
    for probe, metric in (("held-out", None), ("sentiment", "accuracy")):
        stopped, calm = (results["values"][probe][name] for name in ("stopped", "calm"))
        assert set(stopped) == {"1"}
        assert stopped["1"].get("metric") == metric
        assert {seed: found["value"] for seed, found in stopped.items()} == {s: f["value"] for s, f in calm.items()}
    assert results["pairs"]["held-out"][0]["difference"] == 0
    report = (work / "out" / "report.md").read_text()
    assert "| variant | accuracy | paper |" in report and "n = 1 | 92.9 |" in report
    assert "| both-neighbors baseline |" in report


def test_a_result_that_was_deleted_comes_back_though_only_the_weights_are_left(work, finished):
    """As the message about a damaged one says."""
    result = work / "out" / "pretraining" / "variant-calm" / "seed-1" / "result.json"
    before = json.loads(result.read_text())
    result.unlink()
    assert do(work) == 0
    after = json.loads(result.read_text())
    assert {**after, "seconds": 0, "attempts": 0} == {**before, "seconds": 0, "attempts": 0}
    assert json.loads((work / "out" / "results.json").read_text())["values"] == finished[1]["values"]


def test_a_changed_setting_is_named_and_refused_and_nothing_is_done(work, finished, capsys):
    content, _ = finished
    changed = {**content["variants"], "calm": {**content["variants"]["calm"], "lr": "2e-3"}}
    write_study(work / "study.yaml", **{**content, "variants": changed})
    before = files_of(work)
    assert do(work) == 2
    assert re.search(r"variant-calm/seed-1 holds a run with other options: --lr was 1e-3", capsys.readouterr().err)
    assert files_of(work) == before


def test_another_seed_extends_a_study_and_gives_another_model(work, finished):
    content, results = finished
    only = {"variants": {"calm": content["variants"]["calm"]}, "probes": {"held-out": {"kind": "perplexity"}}}
    write_study(work / "study.yaml", **{**content, **only, "seeds": ["1", "2"]})
    done = {path: time for path, time in files_of(work).items() if path.name == "result.json"}
    assert len(done) == 4
    assert do(work) == 0
    after = {path: time for path, time in files_of(work).items() if path.name == "result.json"}
    assert len(after) == 5 and done.items() <= after.items(), "nothing was done again"
    found = json.loads((work / "out" / "results.json").read_text())["values"]["held-out"]["calm"]
    assert found["1"] == results["values"]["held-out"]["calm"]["1"]
    assert found["2"]["value"] != found["1"]["value"]
    assert ", n = 2 |" in (work / "out" / "report.md").read_text()
