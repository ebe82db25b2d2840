"""`roberta study`, the real command: killed in the middle, resumed, extended; its report."""

import json
import re
import signal
import subprocess

import pytest

from roberta_plugin.cli import main
from tests.slurm_cluster import wait_for
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_corpus import command, environment, run
from tests.tiny_glue import write_task
from tests.tiny_study import write_study

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with text, a tokenizer, and SST-2 of made-up sentences."""
    folder = tmp_path_factory.mktemp("study")
    tokenizer = write_tokenizer(folder / "tokenizer")
    (folder / "text.txt").write_text("good bad good\nbad good bad\n\n" * 60)
    (folder / "valid.txt").write_text("good bad good bad\nbad good bad\n\n" * 10)
    words = ["--train", str(folder / "text.txt"), "--valid", str(folder / "valid.txt"), "--tokenizer", str(tokenizer)]
    done = run([*command("roberta"), "binarize", *words, "--output-dir", str(folder / "bin"), "--no-progress"])
    assert done.returncode == 0, done.stderr
    write_task(folder / "glue", "SST-2", train=48, dev=24, test=4)
    return folder


def test_a_killed_study_goes_on_and_finds_what_an_undisturbed_one_finds(work, capsys):
    """The two variants differ in nothing that matters, so the one that is never killed is the reference."""
    tuning = {"kind": "fine-tuning", "task": "SST-2", "raw": str(work / "glue"), "tokenizer": str(work / "tokenizer")}
    tuning |= {"max-length": "64", "epochs": "1", "seeds": ["1"], "grid": {"lr": "1e-3", "batch": "16"}}
    content = {
        "data": work / "bin",
        "variants": {"killed": {"paper": "table1/static"}, "calm": {"log-interval": "2", "paper": "table1/dynamic"}},
        "probes": {"held-out": {"kind": "perplexity"}, "sentiment": tuning},
        "seeds": ["1"],
    }
    study, root = write_study(work / "study.yaml", **content), work / "out"
    call = [*command("roberta"), "study", str(study), "--output-dir", str(root)]

    process = subprocess.Popen(call, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    checkpoint = root / "pretraining" / "variant-killed" / "seed-1" / "checkpoints" / "checkpoint_last.pt"
    wait_for(lambda: process.poll() is not None or checkpoint.is_file(), 200, "a checkpoint")
    assert process.poll() is None, process.stdout.read()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert not (root / "results.json").exists()

    done = run([*call, "--parallel", "2"])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    results = json.loads((root / "results.json").read_text())
    for probe in ("held-out", "sentiment"):
        killed, calm = (results["values"][probe][name] for name in ("killed", "calm"))
        assert set(killed) == {"1"}
        assert {seed: found["value"] for seed, found in killed.items()} == {s: f["value"] for s, f in calm.items()}
    assert results["comparisons"]["held-out"]["pairs"][0]["difference"] == 0
    report = (root / "report.md").read_text()
    assert "| variant | held-out (perplexity) | sentiment (accuracy) | paper |" in report
    assert "n = 1 | 92.9 |" in report
    for name in ("bars.png", "curves.png"):
        assert (root / name).read_bytes().startswith(b"\x89PNG")

    finished = {path: path.stat().st_mtime_ns for path in root.rglob("result.json")}
    assert len(finished) == 4
    content["variants"]["calm"]["lr"] = "2e-3"
    write_study(study, **content)
    capsys.readouterr()
    assert main(["study", str(study), "--output-dir", str(root)]) == 2
    assert "variant calm: lr 1e-3 is now 2e-3" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in root.rglob("result.json")} == finished


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ({"a": {"input-format": "nonsense", "sample-break-mode": "none"}}, "invalid choice|nonsense"),
        ({"a": {"data": "no-such-folder"}}, "no-such-folder"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(work, tmp_path, capsys, variants, message):
    study = write_study(tmp_path / "study.yaml", data=work / "bin", variants=variants)
    assert main(["study", str(study), "--output-dir", str(tmp_path / "out")]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "out").exists()
