"""Evaluation of all splits: the threshold of the development set, and what was found before checkpoints were dropped."""

import json

import pytest

from roberta_plugin.finetuning import evaluation
from tests.tiny_squad import write_prepared


@pytest.fixture
def prepared(tmp_path):
    return write_prepared(tmp_path / "set")


@pytest.fixture
def asked(monkeypatch):
    """What `evaluate` is asked for; nothing is computed."""
    calls = []

    def evaluate(prepared, checkpoints, *, split, folder, options, **how):
        calls.append((split, options, how))
        members = [{"checkpoint": str(path), "metrics": {}} for path in checkpoints]
        found = {"split": split, "options": options, "members": members, "together": {"null_threshold": 0.25}}
        folder.mkdir(exist_ok=True)
        (folder / f"evaluation_{split}.json").write_text(json.dumps(found))
        return found

    monkeypatch.setattr(evaluation, "evaluate", evaluate)
    return calls


def test_other_splits_are_cut_at_the_threshold_of_the_development_set(prepared, asked, tmp_path):
    content = {**prepared.content, "splits": {name: {} for name in ("train", "test", "valid")}}
    found = evaluation.evaluate_splits(
        type(prepared)(prepared.folder, content), [], folder=tmp_path / "results", options={"n-best": "5"}, device="cpu"
    )
    assert [each["split"] for each in found] == ["valid", "test"]
    assert [options for _, options, _ in asked] == [{"n-best": "5"}, {"null-threshold": "0.25", "n-best": "5"}]
    assert all(how == {"device": "cpu"} for _, _, how in asked)


def test_where_checkpoints_are_gone_the_earlier_evaluation_counts_if_it_is_the_same(prepared, asked, tmp_path):
    checkpoint = tmp_path / "checkpoint_best.pt"
    checkpoint.touch()
    folder = tmp_path / "results"
    first = evaluation.evaluate_splits(prepared, [checkpoint], folder=folder)
    checkpoint.unlink()
    assert evaluation.evaluate_splits(prepared, [checkpoint], folder=folder) == first
    assert len(asked) == 1
    with pytest.raises(FileNotFoundError, match=r"checkpoint_best\.pt was not kept .*--keep weights"):
        evaluation.evaluate_splits(prepared, [checkpoint], folder=folder, options={"n-best": "5"})
    with pytest.raises(FileNotFoundError, match="was not kept"):
        evaluation.evaluate_splits(prepared, [checkpoint], folder=tmp_path / "elsewhere")


def test_prediction_files_are_named():
    found = [{"split": "test", "predictions": ["r/test.jsonl"]}, {"split": "ax", "predictions": ["r/AX.tsv", "r/b"]}]
    lines = evaluation.where_predictions_are(found).splitlines()
    assert lines == ["predictions, test: r/test.jsonl", "predictions, ax: r/AX.tsv, r/b"]
