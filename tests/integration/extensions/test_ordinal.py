"""The example of a kind with its own head and loss: from its wheel trained, killed, resumed, judged, asked, exported."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import REPOSITORY
from tests.forked_training import run_python
from tests.integration.extensions.wheels import environment_of, install, run_tests, run_with
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_corpus import environment
from tests.tiny_tables import write_csv

pytestmark = pytest.mark.integration

EXAMPLE = REPOSITORY / "examples" / "extensions" / "ordinal"
LABELS = ("bad", "fair", "good")
SIZES = ("--arch", "fast_roberta_tiny", "--encoder-layers", "1", "--encoder-embed-dim", "32", "--max-positions", "64")
SIZES += ("--encoder-ffn-embed-dim", "64", "--encoder-attention-heads", "2")
UPDATE_20 = re.compile(r'"num_updates": "20"')
OPEN = """
import json, sys, torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
folder = sys.argv[1]
model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True).eval()
batch = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)(["good good", "bad", "bad good"], padding=True, return_tensors="pt")
logits = model(**batch).logits
print(json.dumps([model.config.id2label[int(rank)] for rank in (logits > 0).sum(-1)]), logits.shape[1])
"""


def rows(number, seed):
    """Texts of good and bad words; the label is how many of them are good."""
    draw = random.Random(seed)
    for _ in range(number):
        opinions = draw.choices(("good", "bad"), k=2)
        words = [*opinions, *draw.choices(("so", "we", "a"), k=draw.randint(2, 6))]
        draw.shuffle(words)
        yield {"text": " ".join(words), "label": LABELS[opinions.count("good")]}


@pytest.fixture(scope="module", name="work")
def folder_with_a_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ordinal")
    site = install(EXAMPLE, folder / "package")
    tokenizer = write_tokenizer(folder / "tokenizer")
    (folder / "text.txt").write_text("good bad good\nbad good bad\n\n" * 40)
    write_csv(folder / "train.csv", list(rows(240, 1)))
    write_csv(folder / "test.csv", list(rows(60, 2)))

    def run(*words, code=0, sites=(site,)):
        return run_with(sites, *words, cwd=folder, code=code)

    run(
        *("roberta", "binarize", "--train", "text.txt", "--tokenizer", str(tokenizer)),
        *("--output-dir", "bin", "--no-progress"),
    )
    run(
        *("fairseq-train", "bin", "--user-dir", str(REPOSITORY / "roberta_plugin"), "--cpu", *SIZES),
        *("--task", "roberta_masked_lm", "--criterion", "roberta_masked_lm", "--tokens-per-sample", "64"),
        *("--batch-size", "4", "--optimizer", "roberta_adamw", "--lr", "1e-3", "--max-update", "2"),
        *("--disable-validation", "--save-dir", "pretrained"),
    )
    return folder, site, run


FINETUNE = (
    *("roberta", "finetune", "custom", "--kind", "ordinal", "--train", "train.csv", "--test", "test.csv"),
    *("--labels", *LABELS, "--model", "pretrained/checkpoint_last.pt", "--output-dir", "tuned", "--max-length", "32"),
    *("--quick", "--epochs", "14", "--only", "lr=3e-3", "--set", "dropout=0", "--set", "pooler-dropout=0"),
    *("--set", "attention-dropout=0", "--set", "log-interval=1"),
)


def test_a_kind_from_a_wheel_is_trained_killed_resumed_judged_asked_and_exported(work):
    folder, site, run = work
    log = open(folder / "killed.txt", "w")  # noqa: SIM115  # to the end of the process
    process = subprocess.Popen(
        [sys.executable, "-m", "roberta_plugin.cli", *FINETUNE[1:]],
        env=environment_of(site),
        cwd=folder,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    deadline = time.monotonic() + 200
    while not any(UPDATE_20.search(each.read_text()) for each in folder.glob("tuned/runs/*/seed-*/log.txt")):
        assert process.poll() is None and time.monotonic() < deadline, (folder / "killed.txt").read_text()[-3000:]
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    printed = run(*FINETUNE)
    assert "| custom | valid | qwk |" in printed
    (result,) = folder.glob("tuned/runs/*/seed-*/result.json")
    assert json.loads(result.read_text())["value"] > 80

    run("roberta", "evaluate", "--results", "tuned", "--output-dir", "evaluated")
    (folder / "new.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in ("good good", "bad", "bad good"))
    )
    printed = run("roberta", "predict", "tuned", "--input", "new.jsonl")
    answers = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    labels = [answer["label"] for answer in answers]
    assert labels[0] == "good" != labels[1]
    assert all(abs(sum(answer["probabilities"].values()) - 1) < 1e-4 for answer in answers)

    run("roberta", "export", "tuned", "--to", "huggingface", "--output-dir", "exported")
    assert (folder / "exported" / "modeling_ordinal.py").is_file()
    run("roberta", "import", "exported", "--output-dir", "back")
    again = run("roberta", "predict", "back", "--input", "new.jsonl")
    assert [json.loads(line)["label"] for line in again.splitlines() if line.startswith("{")] == labels
    done = run_python(OPEN, "exported", cwd=folder, environment=environment())
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == f"{json.dumps(labels)} 2"


def test_it_is_listed_and_without_the_package_its_model_says_what_is_missing(work):
    folder, site, run = work
    assert "ordinal" in run("roberta", "prepare", "custom", "--help")
    assert "4 passed" in run_tests([site], EXAMPLE / "tests", cwd=folder)
    lacking = run("roberta", "predict", "tuned", "--input", "new.jsonl", code=2, sites=())
    assert "ordinal 1.0" in lacking, lacking
