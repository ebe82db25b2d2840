"""SuperGLUE, WinoGrande and CommonsenseQA from official files: the default grid, official metrics, predictions."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from roberta_plugin.extensions.pronouns.benchmarks import TASKS as SCHEMAS
from roberta_plugin.extensions.pronouns.options import WinoGrandeOptions
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.prediction.predict import PredictSettings, iterate_predictions
from tests.first_runs import finetune_first_run
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_checkpoints import state_of
from tests.tiny_superglue import FOLDERS, OTHER_FILES, TASKS, write_task

pytestmark = pytest.mark.integration

METRICS = {"CB": ["accuracy", "macro_f1"], "MultiRC": ["f1", "exact_match"], "ReCoRD": ["f1", "exact_match"]}


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    """A folder with the official files, a tokenizer and a pretrained checkpoint."""
    folder = tmp_path_factory.mktemp("superglue")
    for task in TASKS:
        write_task(folder / "raw", task, train=16)
    write_task(folder / "learnable", "WSC", train=240, dev=60)
    write_tokenizer(folder / "tokenizer")
    sizes = {"encoder_layers": 1, "encoder_embed_dim": 32, "encoder_ffn_embed_dim": 64, "max_positions": 128}
    torch.save(state_of(folder / "tokenizer", **sizes), folder / "model.pt")
    return folder


@pytest.fixture(scope="module")
def finetuned(work) -> Callable[[str], tuple[Path, Path]]:
    """Fine-tune on a task with the default grid, once a module; its folder and the checkpoint."""

    @cache
    def run(task: str) -> tuple[Path, Path]:
        folder = work / "runs" / task
        return folder, finetune_first_run(work, task, folder, "--epochs", "1")

    return run


@pytest.mark.parametrize("task", TASKS)
def test_every_task_trains_by_its_default_grid_and_evaluates_every_split(finetuned, task):
    folder, _ = finetuned(task)
    for split in ("valid", "test"):
        found = json.loads((folder / "results" / f"evaluation_{split}.json").read_text())
        assert list(found["ensemble"]) == (METRICS.get(task, ["accuracy"]) if split == "valid" else [])
        assert [Path(path).name for path in found["predictions"]] == list(benchmark_of(task).prediction_files(split))
        assert all(Path(path).is_file() for path in found["predictions"])


def records_of(task: str, raw: Path) -> list[dict[str, object]]:
    """The development set as records for `roberta predict`, and without its labels."""
    path = raw / FOLDERS.get(task, task) / OTHER_FILES.get(task, {}).get("valid", "val.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    if task == "MultiRC":
        return [
            {"paragraph": row["passage"]["text"], "question": question["question"], "answer": answer["text"]}
            for row in rows
            for question in row["passage"]["questions"]
            for answer in question["answers"]
        ]
    if task == "ReCoRD":
        spans = [[(each["start"], each["end"] + 1) for each in row["passage"]["entities"]] for row in rows]
        names = [
            list(dict.fromkeys(row["passage"]["text"][start:end] for start, end in found))
            for row, found in zip(rows, spans, strict=True)
        ]
        return [
            {"passage": row["passage"]["text"], "query": row["qas"][0]["query"], "entities": found}
            for row, found in zip(rows, names, strict=True)
        ]
    if SCHEMAS[task].kind == "phrase_ranking" if task in SCHEMAS else False:
        schemas = [row.schema for row in SCHEMAS[task].records({"valid": [path]}, WinoGrandeOptions(), {})[0]["valid"]]
        return [
            {"text": f"{schema.before}[it]{schema.after}", "candidates": [schema.phrase, *schema.rivals]}
            for schema in schemas
        ]
    return [{name: value for name, value in row.items() if name not in ("label", "answerKey")} for row in rows]


@pytest.mark.parametrize("task", TASKS)
def test_predictions_about_official_fields_are_those_of_the_evaluation(finetuned, work, task):
    folder, checkpoint = finetuned(task)
    (name,) = benchmark_of(task).prediction_files("valid")
    lines = (folder / "results" / name).read_text().splitlines()
    settings = PredictSettings(model=checkpoint, data=folder / "data", device="cpu")
    records = records_of(task, work / "raw")
    found = list(iterate_predictions(settings, records))
    if task == "MultiRC":
        entries = [json.loads(line)["passage"]["questions"] for line in lines]
        expected = [str(answer["label"]) for row in entries for asked in row for answer in asked["answers"]]
        assert [answer["label"] for answer in found] == expected
    elif task == "CommonsenseQA":
        assert ["ABCDE"[answer["answer"]] for answer in found] == [json.loads(line)["answerKey"] for line in lines]
    elif task == "WinoGrande":
        firsts = [record["candidates"][0] for record in records]
        won = ["1" if answer["answer"] == first else "2" for answer, first in zip(found, firsts, strict=True)]
        assert won == lines
    elif task == "WSC":
        firsts = [record["candidates"][0] for record in records]
        won = [str(answer["answer"] == first) for answer, first in zip(found, firsts, strict=True)]
        assert won == [json.loads(line)["label"] for line in lines]
    else:
        key = {"COPA": "answer", "ReCoRD": "option"}.get(task, "label")
        assert [answer[key] for answer in found] == [json.loads(line)["label"] for line in lines]
    assert len(found) == (32 if task == "MultiRC" else 8)


@pytest.mark.slow
def test_wsc_is_learned_by_competing_phrases(work):
    options = ("--only", "lr=3e-3", "--only", "batch=16", "--epochs", "24", "--from-scratch")
    options += ("--set", "dropout=0", "--set", "attention-dropout=0")
    folder = work / "runs" / "learnable"
    finetune_first_run(work, "WSC", folder, *options, raw="learnable")
    found = json.loads((folder / "results" / "evaluation_valid.json").read_text())
    assert found["ensemble"]["accuracy"] > 90, found["ensemble"]
    labels = [json.loads(line)["label"] for line in (folder / "results" / "WSC.valid.jsonl").read_text().splitlines()]
    assert 0.3 < labels.count("True") / len(labels) < 0.7
