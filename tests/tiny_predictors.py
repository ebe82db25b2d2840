"""Checkpoints of small models that remember what they were fine-tuned on, for every kind of prediction."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from roberta_plugin.experiments.inference import run_model
from roberta_plugin.finetuning.examples_dataset import ExamplesDataset
from roberta_plugin.finetuning.kinds import kind_class
from roberta_plugin.finetuning.prepared import PreparedSplit
from roberta_plugin.hub import RobertaHub
from roberta_plugin.prediction.predict import PredictSettings, iterate_predictions
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_checkpoints import state_of

PAIRS = [{"id": n, "text": "good " * (n % 7 + 1), "text_pair": "bad " * (n % 3 + 1)} for n in range(40)]
CLASSES = "sentence_classification_head"
TAGS = ["O", "B-FINE", "I-FINE", "B-POOR", "I-POOR"]
LABELS = ["contradiction", "neutral", "entailment"]
TRAINED: dict[str, dict[str, Any]] = {
    "made": {"task": "made", "settings": {"kind": "made", "labels": ["0", "1"], "max_length": 30}},
    "made_three": {"task": "made-too", "settings": {"kind": "made", "labels": LABELS, "max_length": 30}},
    "fill_mask": {},
    "classification": {"task": "MNLI", "settings": {"kind": "classification", "labels": LABELS, "max_length": 30}},
    "single": {"task": "SST-2", "settings": {"kind": "classification", "labels": ["0", "1"], "max_length": 30}},
    "regression": {"task": "STS-B", "settings": {"kind": "regression", "labels": [], "max_length": 30}},
    "multiple_choice": {"task": "race", "settings": {"max_length": 38, "question_length": 12, "order": "passage"}},
    "question_answering": {"task": "squad2", "settings": {"max_length": 32, "question_length": 8, "doc_stride": 10}},
    "tagging": {
        "task": "conll2003",
        "settings": {"kind": "tagging", "labels": TAGS, "max_length": 24, "doc_stride": 8},
    },
    "summary": {"task": "summaries", "settings": {"max_length": 38, "sentence_length": 36, "doc_stride": 19}},
    "pronoun": {"task": "WNLI", "settings": {"kind": "phrase_ranking", "labels": ["0", "1"], "max_length": 40}},
}
FAIRSEQ_TASKS = {  # others: roberta_sentence_prediction
    "fill_mask": "roberta_masked_lm",
    "multiple_choice": "race",
    "question_answering": "squad2",
    "tagging": "roberta_tagging",
    "summary": "roberta_summarization",
}
NUM_CLASSES = {"made": 2, "made_three": 3, "classification": 3, "single": 2, "regression": 1, "multiple_choice": 1}


def write_predictor(folder: Path, name: str, **changes: Any) -> Path:
    """Write model.pt, dict.txt and the tokenizer of a model that was trained for `name` of TRAINED."""
    write_tokenizer(folder)
    heads = {CLASSES: NUM_CLASSES[name]} if name in NUM_CLASSES else {}
    task = {"_name": FAIRSEQ_TASKS.get(name, "roberta_sentence_prediction")}
    state = state_of(folder, heads=heads, task=task, **changes)
    if name in ("question_answering", "tagging"):
        torch.save(state, folder / "model.pt")
        model = RobertaHub.from_pretrained(folder).model
        if name == "tagging":
            torch.manual_seed(1)
            model.register_head("token_head", "token", num_classes=len(TAGS))
            torch.nn.init.normal_(model.heads["token_head"].out_proj.weight)
        else:
            model.register_head("span_head", "span")
        state["model"] = model.state_dict()
    if name == "summary":
        torch.save(state, folder / "model.pt")
        model = RobertaHub.from_pretrained(folder).model
        model.register_head("summary_head", "sentence", num_layers=1)
        state["model"] = model.state_dict()
    if TRAINED[name]:
        state["task_state"] = {"data": TRAINED[name]}
    torch.save(state, folder / "model.pt")
    return folder


class Predictors(dict[str, Path]):
    """Models by their names in `TRAINED`, each written when it is asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, name: str) -> Path:
        self[name] = write_predictor(self.folder / name, name)
        return self[name]


def new_predictors(tmp_path_factory):
    """A fixture of a module: models by name."""
    return Predictors(tmp_path_factory.mktemp("predictors"))


def answers(model: Path, records: Iterable[Any], **options: Any) -> list[dict[str, Any]]:
    """The answers of `roberta predict`."""
    return list(iterate_predictions(PredictSettings(model=model, device="cpu", **options), records))


def retold(model: Path, folder: Path, **data: Any) -> Path:
    """A copy of the model whose checkpoint says something else of its data; a value of None is left out."""
    shutil.copytree(model, folder)
    state = torch.load(folder / "model.pt", weights_only=False)
    data = {**state.get("task_state", {}).get("data", {}), **data}
    state["task_state"] = {"data": {name: value for name, value in data.items() if value is not None}}
    torch.save(state, folder / "model.pt")
    return folder


def outputs_of_evaluation(hub: RobertaHub, kind: str, split: PreparedSplit, *, head: str) -> Any:
    """The outputs of a head in the code of `roberta evaluate`."""

    def outputs(model, batch):
        return model(batch["net_input"]["src_tokens"], head=head)[0]

    training = SimpleNamespace(inputs_class=ExamplesDataset)
    task = SimpleNamespace(vocabulary=hub.vocabulary, outputs=outputs, training=training, kind=kind_class(kind))
    return run_model(hub.model, task, split)


def write_finetuning(folder: Path, predictor: Path, metrics: dict[str, Any]) -> Path:
    """A predictor as the best run of a `roberta finetune` in `folder`, with these metrics of the development set."""
    checkpoints = folder / "runs" / "lr-1" / "seed-2" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (folder / "results").mkdir()
    shutil.copytree(predictor, folder / "data")
    (folder / "data" / "model.pt").rename(checkpoints / "checkpoint_best.pt")
    ensemble = [{"run": "lr-1/seed-2", "checkpoint": "elsewhere/checkpoint_best.pt"}]
    (folder / "runs" / "report.json").write_text(json.dumps({"ensemble": ensemble}))
    members = [
        {"checkpoint": f"moved/runs/lr-1/seed-{seed}/checkpoints/checkpoint_best.pt", "metrics": each}
        for seed, each in ((1, {}), (2, metrics))
    ]
    (folder / "results" / "evaluation_valid.json").write_text(json.dumps({"ensemble": {}, "members": members}))
    return folder
