"""A model answers the same in every format."""

from __future__ import annotations

import json
import shutil
import tarfile

import pytest

from roberta_plugin.cli import main
from roberta_plugin.conversion.convert import ExportSettings, ImportSettings, export_model, import_model
from tests.tiny_predictors import LABELS, write_predictor

PAIR = {"text": "good bad", "text_pair": "bad good"}


RECORDS = {  # short enough for all lengths that a model may have been fine-tuned with
    "fill_mask": [{"text": "good <mask> bad"}, {"text": "<mask> good"}],
    "pronoun": [{"text": "A dog, and [it] is bad.", "candidates": ["a dog", "a hen"]}],
    "embedding": [{"text": "good"}, PAIR],
    "classification": [PAIR, {"text": "good", "text_pair": "bad bad bad"}],
    "regression": [PAIR, {"text": "good", "text_pair": "bad bad bad"}],
    "multiple_choice": [{"context": "good bad", "question": "so", "options": ["bad", "good", "a"]}],
    "question_answering": [{"question": "so", "context": "bad good bad"}, {"question": "a", "context": "a good b"}],
    "tagging": [{"text": "bad good, so"}, {"words": ["good", "bad"] * 30}],
}


ENCODER, LANGUAGE_MODEL = ("embedding",), ("fill_mask", "pronoun")


HEADS = ("fill_mask", "classification", "regression", "multiple_choice", "question_answering", "tagging")


FORMATS = ("run", "huggingface", "imported", "fairseq", "archive")


def ask(model, kind, tmp_path, *, default=False):
    """What `roberta predict` writes; with `default`, without --task-kind."""
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in RECORDS[kind]))
    words = ["predict", str(model), "--input", str(source), "--output", str(output), "--device", "cpu", "--no-progress"]
    code = main(words if default else [*words, "--task-kind", kind])
    if code:
        return code
    return [json.loads(line) for line in output.read_text().splitlines()]


def close(found, expected):
    """The same structure and texts, and numbers that differ by rounding only."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            close(found[name], expected[name])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            close(one, other)
    else:
        assert found == (pytest.approx(expected, abs=1e-4) if isinstance(expected, float) else expected)


@pytest.fixture(scope="module", params=HEADS)
def models(request, tmp_path_factory):
    """The kind of its head, and a model in each format: path by name."""
    root = tmp_path_factory.mktemp(request.param)
    folder = write_predictor(root / "files", request.param)
    (root / "run" / "checkpoints").mkdir(parents=True)  # a run folder; dict.txt is where it was trained
    shutil.move(folder / "model.pt", root / "run" / "checkpoints" / "checkpoint_best.pt")
    paths = {"run": root / "run"}
    how = {"to": "huggingface", "output_dir": root / "huggingface"}
    paths["huggingface"] = export_model(ExportSettings(checkpoint=paths["run"], **how)).folder
    paths["imported"] = import_model(ImportSettings(source=paths["huggingface"], output_dir=root / "imported")).folder
    if request.param not in ("question_answering", "tagging"):  # which fairseq's model has no head for
        how = {"to": "fairseq", "layout": "2019", "output_dir": root / "roberta.tiny"}
        paths["fairseq"] = export_model(ExportSettings(checkpoint=paths["run"], **how)).folder
        paths["archive"] = root / "roberta.tiny.tar.gz"
        with tarfile.open(paths["archive"], "w:gz") as out:
            out.add(paths["fairseq"], "roberta.tiny")
    return request.param, paths


@pytest.mark.parametrize("format_", FORMATS)
def test_a_model_answers_in_every_format(models, tmp_path, format_, capsys):
    head, paths = models
    if format_ not in paths:
        pytest.skip("fairseq has no such head")
    expected = ask(paths["run"], head, tmp_path, default=True)
    assert len(expected) == len(RECORDS[head])
    says_its_kind = format_ not in ("fairseq", "archive") or head in ("fill_mask", "classification")
    if not says_its_kind:  # fairseq's checkpoints do not say whether one output is a score or an option's
        assert ask(paths[format_], head, tmp_path, default=True) == 2
        assert "was trained for: give --task-kind" in capsys.readouterr().err
    found = ask(paths[format_], head, tmp_path, default=says_its_kind)
    if format_ in ("fairseq", "archive") and head == "classification":  # without names of labels
        assert [answer["label"] for answer in found] == [str(LABELS.index(answer["label"])) for answer in expected]
    elif format_ in ("fairseq", "archive") and head == "regression":  # and without the limits of STS-B
        clipped = [min(max(answer["score"], 0.0), 5.0) for answer in found]
        assert clipped == pytest.approx([answer["score"] for answer in expected], abs=1e-4)
    else:
        close(found, expected)
    for kind in ENCODER:
        vectors = ask(paths[format_], kind, tmp_path)
        assert [len(answer["embedding"]) for answer in vectors] == [24] * len(RECORDS[kind])


@pytest.mark.parametrize("format_", FORMATS)
def test_masks_are_filled_where_the_model_has_the_head_for_it(models, tmp_path, format_, capsys):
    """Hugging Face's classes have one head each, so that of the masked LM stays behind."""
    head, paths = models
    if format_ not in paths:
        pytest.skip("fairseq has no such head")
    lacks_head = head != "fill_mask" and format_ in ("huggingface", "imported")
    for kind in LANGUAGE_MODEL:
        found = ask(paths[format_], kind, tmp_path)
        if lacks_head:
            assert found == 2
            assert "came without a masked-LM head" in capsys.readouterr().err
        else:
            assert len(found) == len(RECORDS[kind])
            assert not any("error" in answer for answer in found)
