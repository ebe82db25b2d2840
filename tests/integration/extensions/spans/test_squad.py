"""The real `fairseq-train` on SQuAD-like data: it learns, its log has the official metrics, rates resume. Ranks: test_finetune_ranks."""

import json
from pathlib import Path

import pytest
import torch

from roberta_plugin.finetuning.benchmarks import kind_of
from tests.tiny_benchmarks import official
from tests.tiny_corpus import finetune_command, logged, run, same_weights
from tests.tiny_squad import write_prepared, write_raw

pytestmark = pytest.mark.integration

LENGTH = 32
METRICS = {"f1": "tuned_f1", "exact_match": "tuned_exact_match"}
"""Name in the log -> in an evaluation at the threshold of one half."""


@pytest.fixture(scope="module", params=["squad2", pytest.param("squad1", marks=pytest.mark.slow)])
def prepared(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    raw = write_raw(folder / "raw", task=request.param, sizes={"train": 300, "dev": 60})
    return write_prepared(folder, task=request.param, raw=raw)


def train_command(data: Path, save_dir: Path, *options: str) -> list[str]:
    how = ("--max-positions", str(LENGTH), "--batch-size", "16", "--lr", "3e-3")
    how += ("--best-checkpoint-metric", "f1", "--maximize-best-checkpoint-metric")
    return finetune_command(data, save_dir, "squad2", *how, *options)


def test_it_learns_and_the_log_has_the_official_metrics(prepared, tmp_path):
    save_dir = tmp_path / "checkpoints"
    done = run(train_command(prepared.folder, save_dir, "--max-epoch", "4"))
    assert done.returncode == 0, done.stderr[-3000:]
    options = {"null_threshold": 0.5} if prepared.task == "squad2" else {}
    found = official(prepared, save_dir / "checkpoint_last.pt", tmp_path / "files", **options)
    f1 = found["tuned_f1" if options else "f1"]
    assert f1 > 90, "one token in fifteen is the answer, and half of the questions of SQuAD 2.0 have none"
    record = logged(save_dir, "valid")[-1]
    for name in ("f1", "exact_match", "best_exact_match"):
        if (other := METRICS.get(name, name) if options else name) in found:
            assert float(record[f"valid_{name}"]) == pytest.approx(found[other], abs=1e-3)
    assert {f"valid_{name}" for name in kind_of(prepared).selectable()} <= record.keys()
    assert ("valid_tuned_f1" in record) == (prepared.task == "squad2")
    predictions = json.loads((tmp_path / "files" / "valid" / "predictions.json").read_text())
    assert len(predictions) == 60
    assert {"good"} < set(predictions.values()) if prepared.task == "squad2" else "" not in predictions.values()


@pytest.mark.parametrize("prepared", ["squad2"], indirect=True)
def test_layers_of_a_resumed_run_keep_their_rates(prepared, tmp_path):
    options = ("--layer-lr-decay", "0.5", "--disable-validation")
    for name, stop in (("at_once", "12"), ("in_two_parts", "6"), ("in_two_parts", "12")):
        done = run(train_command(prepared.folder, tmp_path / name, *options, "--max-update", stop))
        assert done.returncode == 0, done.stderr[-3000:]
        state = torch.load(tmp_path / name / "checkpoint_last.pt", weights_only=True)
        groups = state["last_optimizer_state"]["param_groups"]
        assert [group["lr"] for group in groups] == pytest.approx([3e-3 * 0.5**above for above in range(4)])
    same_weights(tmp_path / "in_two_parts", tmp_path / "at_once")
