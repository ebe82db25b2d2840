"""GLUE's nine tasks from the official layout with all its files: `roberta finetune` with its defaults."""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from roberta_plugin.experiments.evaluation_report import as_markdown, find_evaluations, metric_rows
from roberta_plugin.experiments.finetuning_plan import GRID
from roberta_plugin.experiments.inference import load_model
from roberta_plugin.extensions.texts import glue
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.benchmarks.submission import find_leaderboard
from roberta_plugin.finetuning.prepared import Prepared
from tests.first_runs import finetune_first_run
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_checkpoints import state_of
from tests.tiny_glue import write_official

LEADERBOARD = find_leaderboard("glue")

pytestmark = pytest.mark.integration

TASKS = {name: row for name, row in glue.TASKS.items() if name != "XNLI"}  # which has its own files
TASKS["WNLI"] = benchmark_of("WNLI")
SPLITS = {"MNLI": ["train", "valid", "valid_mismatched", "test", "test_mismatched", "ax"]}


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    """A folder with the official files, a tokenizer and a pretrained checkpoint."""
    folder = tmp_path_factory.mktemp("official")
    write_official(folder / "glue")
    write_tokenizer(folder / "tokenizer")
    torch.save(state_of(folder / "tokenizer", encoder_layers=1), folder / "model.pt")
    return folder


@pytest.fixture(scope="module")
def finetuned(work) -> Callable[[str], Path]:
    """Fine-tune on a task with the defaults, once a module; the folder."""

    @cache
    def run(task: str) -> Path:
        folder = work / "runs" / task
        finetune_first_run(work, task, folder, "--epochs", "1", raw="glue")
        return folder

    return run


@pytest.mark.parametrize("task", TASKS)
def test_every_task_prepares_trains_and_predicts_every_split_with_default_options(finetuned, task):
    folder = finetuned(task)
    splits = Prepared.open(folder / "data").splits
    assert list(splits) == SPLITS.get(task, ["train", "valid", "test"])
    for split in splits[1:]:
        found = json.loads((folder / "results" / f"evaluation_{split}.json").read_text())
        is_labelled = split.startswith("valid")
        assert bool(found["ensemble"]) == is_labelled
        (path,) = map(Path, found["predictions"])
        assert (path.name,) == TASKS[task].prediction_files(split)
        assert len(path.read_text().splitlines()) == 1 + (9 if is_labelled else 6)
    table = as_markdown(list(metric_rows(find_evaluations([folder]))))
    assert ("| MNLI | valid_mismatched | accuracy |" in table) == (task == "MNLI")


def test_together_they_write_all_files_of_the_leaderboard(finetuned):
    written = {path.name for task in TASKS for path in (finetuned(task) / "results").glob("*.tsv")}
    assert set(LEADERBOARD.files) <= written


def test_no_option_hides_what_users_meet(finetuned):
    content = json.loads((finetuned("MNLI") / GRID).read_text())
    assert content["axes"]["batch"]["16"]["batch-size"] == "16"
    assert not {"ignore-unused-valid-subsets", "disable-validation"} & content["train"].keys()


@pytest.mark.parametrize(
    ("trained", "task"),
    [("SST-2", "MNLI"), ("SST-2", "STS-B"), ("MRPC", "RTE"), ("QNLI", "QNLI-ranking"), ("WNLI", "SST-2")],
)
def test_the_head_of_another_task_is_refused(finetuned, tmp_path, trained, task):
    (checkpoint,) = finetuned(trained).glob("runs/*/seed-1/checkpoints/checkpoint_best.pt")
    prepared = Prepared.open(finetuned(task) / "data")
    message = (
        f"{checkpoint} was fine-tuned on {trained}, but {prepared.folder}/prepared.json has data for {task}: the head"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        load_model(checkpoint, prepared)

    state = torch.load(checkpoint, weights_only=True)
    del state["task_state"]  # as in checkpoints of earlier versions
    torch.save(state, tmp_path / "earlier.pt")
    if {trained, task} & {"MNLI", "STS-B"}:
        with pytest.raises(ValueError, match=r"has no head that fits .* is missing or has another shape"):
            load_model(tmp_path / "earlier.pt", prepared)
