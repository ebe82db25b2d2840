"""The example of a benchmark: from its wheel prepared, fine-tuned, evaluated and asked; listed, and missed where absent."""

import json
import random
import re

import pytest
import torch

from tests.conftest import REPOSITORY
from tests.integration.extensions.wheels import install, run_tests, run_with
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_checkpoints import state_of

pytestmark = pytest.mark.integration

EXAMPLE = REPOSITORY / "examples" / "extensions" / "anli"
ROUNDS = ("r1", "r2", "r3")
FINETUNE = (
    "finetune",
    "ANLI",
    "--raw",
    "raw",
    "--tokenizer",
    "tokenizer",
    "--max-length",
    "48",
    "--quick",
    "--epochs",
    "2",
)
FINETUNE += ("--model", "model.pt", "--only", "lr=1e-3", "--output-dir", "tuned")


def write_official(folder, *, sizes):
    """The files of all rounds with made-up lines; e where the hypothesis has the context's word."""
    draw = random.Random(1)
    for number in (1, 2, 3):
        (folder / f"R{number}").mkdir(parents=True)
        for name, size in sizes.items():
            with open(folder / f"R{number}" / f"{name}.jsonl", "w") as file:
                for index in range(size):
                    context, hypothesis = draw.choices(("good", "bad"), k=2)
                    row = {"context": f"{context} so {number}", "hypothesis": hypothesis, "reason": ""}
                    label = "e" if context == hypothesis else draw.choice("cn")
                    file.write(json.dumps({"uid": f"{number}-{name}-{index}", **row, "label": label}) + "\n")


@pytest.fixture(scope="module", name="work")
def folder_with_the_installed_package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("anli")
    site = install(EXAMPLE, folder / "package")
    tokenizer = write_tokenizer(folder / "tokenizer")
    state = state_of(tokenizer, encoder_layers=1, max_positions=64)
    torch.save(state, folder / "model.pt")
    write_official(folder / "raw" / "anli_v1.0", sizes={"train": 32, "dev": 8, "test": 6})

    def run(*words, code=0, sites=(site,)):
        return run_with(sites, "roberta", *words, cwd=folder, code=code)

    return folder, run, lambda: run_tests([site], EXAMPLE / "tests", cwd=folder)


def test_a_benchmark_from_a_wheel_is_prepared_learned_measured_by_round_and_asked(work):
    folder, run, _ = work
    printed = run(*FINETUNE)
    for split in ("valid", *(f"{part}_{each}" for part in ("valid", "test") for each in ROUNDS)):
        assert f"| ANLI | {split} | accuracy |" in printed, printed
        assert (folder / "tuned" / "results" / f"{split}.predictions.jsonl").is_file()
    start = json.loads((folder / "tuned" / "start.json").read_text())
    assert {name for name in start if name.startswith("sha256_of")} == {"sha256_of_train", "sha256_of_valid"}
    (prepared,) = folder.glob("tuned/**/prepared.json")
    assert json.loads(prepared.read_text())["source"]["files"] == 9, "files that two splits read count once"

    (folder / "new.jsonl").write_text(json.dumps({"context": "good", "hypothesis": "bad"}) + "\n")
    answers = run("predict", "tuned", "--input", "new.jsonl")
    (answer,) = [json.loads(line) for line in answers.splitlines() if line.startswith("{")]
    assert set(answer["probabilities"]) == {"contradiction", "neutral", "entailment"}


def test_it_is_listed_and_without_the_package_the_task_is_unknown_and_its_model_names_the_package(work):
    _, run, run_own_tests = work
    assert "ANLI" in run("finetune", "--help")
    assert "passed" in run_own_tests()
    lacking = run(*FINETUNE, code=2, sites=())
    assert "'ANLI'" in lacking and "Traceback" not in lacking
    said = r"the extension anli of anli \S+, which is not installed: pip install anli\."
    for words, what in (
        (("evaluate", "--results", "tuned"), "evaluation_.* was made with"),
        (("inspect", "tuned/data"), "tuned/data was prepared with"),
        (("predict", "tuned", "good"), "checkpoint_best.pt was trained with"),
        (("export", "tuned", "--to", "huggingface"), "checkpoint_best.pt was trained with"),
        (("finetune", "custom", "--model", "model.pt", "--data", "tuned/data"), "tuned/data was prepared with"),
    ):
        more = () if words[0] in ("inspect", "predict") else ("--output-dir", "e")
        lacking = run(*words, *more, code=2, sites=())
        assert re.search(f"{what} {said}", lacking) and "Traceback" not in lacking, lacking
