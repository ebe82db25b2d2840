"""Answers of an exported folder beside those of its checkpoint: the same records, for every kind that is exported."""

import json
import re
import shutil
from pathlib import Path

import pytest

from roberta_plugin.conversion.convert import ExportSettings, export_model
from roberta_plugin.hub import RobertaHub
from roberta_plugin.prediction.predict import PredictSettings, iterate_predictions
from tests.tiny_predictors import write_predictor

pytest.importorskip("onnxruntime", reason="needs onnxruntime")
pytest.importorskip("onnxscript", reason="needs onnxscript")

TEXTS = ["good", "so it is good, or bad", "a bad good one", "bad bad bad bad"]
RECORDS = {
    "fill_mask": [{"text": f"{text} <mask> or" + " <mask>" * (number % 2)} for number, text in enumerate(TEXTS)],
    "classification": [{"text": text, "text_pair": "it is so"} for text in TEXTS],
    "regression": [{"text": text, "text_pair": "good"} for text in TEXTS],
    "multiple_choice": [{"context": text, "question": "is it?", "options": ["good", "bad", "so so"]} for text in TEXTS],
    "question_answering": [{"context": f"{text}, so it is", "question": "good?"} for text in TEXTS],
    "tagging": [{"text": text} for text in TEXTS],
    "pronoun": [{"text": "good one or bad one, [it] is so", "candidates": ["good one", "bad one"]}],
}


def answers(model: Path, kind: str, **options):
    return list(iterate_predictions(PredictSettings(model=model, **options), RECORDS[kind]))


def assert_near(found, expected, tolerance):
    """The same record, but for rounding: keys, labels and texts are equal, numbers near."""
    if isinstance(expected, float):
        assert found == pytest.approx(expected, abs=tolerance)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_near(found[key], value, tolerance)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_near(one, other, tolerance)
    else:
        assert found == expected


FAST = ("fill_mask", "question_answering")  # an export takes seconds; classification: below
KINDS = [pytest.param(kind, marks=() if kind in FAST else pytest.mark.slow) for kind in RECORDS]


@pytest.mark.parametrize("kind", KINDS)
def test_an_exported_folder_gives_the_records_of_its_checkpoint(kind, tmp_path):
    checkpoint = write_predictor(tmp_path / "ours", kind)
    expected = answers(checkpoint, kind)
    folder = export_model(ExportSettings(checkpoint=checkpoint, to="onnx", output_dir=tmp_path / "onnx")).folder
    for path in checkpoint.iterdir():
        path.unlink()  # the folder stands alone
    assert len(expected) == len(RECORDS[kind])
    assert_near(answers(folder, kind), expected, 1e-4)


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> tuple[Path, Path]:
    """A checkpoint, and the folder that it was exported to, with 8-bit weights."""
    folder = tmp_path_factory.mktemp("exported")
    checkpoint = write_predictor(folder / "ours", "classification")
    (folder / "sample.txt").write_text("so it is good\n")
    settings = ExportSettings(
        checkpoint=checkpoint, to="onnx", output_dir=folder / "onnx", int8_sample=folder / "sample.txt"
    )
    return checkpoint, export_model(settings).folder


def test_int8_needs_its_file_and_the_hub_opens_it(exported, tmp_path):
    checkpoint, folder = exported[0], shutil.copytree(exported[1], tmp_path / "onnx")
    assert_near(answers(folder, "classification"), answers(checkpoint, "classification"), 1e-4)
    pairs = [("good", "bad"), ("so it is", "good or bad")]
    full = RobertaHub.from_pretrained(checkpoint).predict("sentence_classification_head", pairs)
    small = RobertaHub.from_pretrained(folder, precision="int8").predict("sentence_classification_head", pairs)
    assert 0 < (full - small).abs().max() < 0.2
    with pytest.raises(ValueError, match=r"answers by sentence_classification_head alone: ask the checkpoint"):
        RobertaHub.from_pretrained(folder).extract_features(["good"])
    with pytest.raises(ValueError, match=r"exported without its masked-LM head"):
        RobertaHub.from_pretrained(folder).fill_mask("a <mask>")
    with pytest.raises(ValueError, match=r"--precision bf16: .* which has fp32 or int8"):
        RobertaHub.from_pretrained(folder, precision="bf16")
    (folder / "model.int8.onnx").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no model\.int8\.onnx: export it with --int8 TEXT"):
        RobertaHub.from_pretrained(folder, precision="int8")


def test_a_folder_of_hugging_face_with_a_graph_of_its_own_stays_one(tmp_path):
    checkpoint = write_predictor(tmp_path / "ours", "fill_mask")
    folder = export_model(ExportSettings(checkpoint=checkpoint, to="huggingface", output_dir=tmp_path / "hf")).folder
    (folder / "model.onnx").write_bytes(b"another exporter's")
    assert_near(answers(folder, "fill_mask"), answers(checkpoint, "fill_mask"), 1e-4)


def test_folders_of_other_versions_damaged_ones_and_missing_files_are_named(exported, tmp_path):
    folder = shutil.copytree(exported[1], tmp_path / "onnx")
    facts = (folder / "roberta.json").read_text()

    def refused(error: type[Exception], match: str) -> None:
        with pytest.raises(error, match=match):
            RobertaHub.from_pretrained(folder)

    (folder / "roberta.json").write_text(json.dumps({"version": 1, "head": {}}))  # the other keys may be others, too
    refused(ValueError, r"is of another version .* it has version 1\. Please export the checkpoint again")
    (folder / "roberta.json").write_text(facts[:20])
    refused(ValueError, r"roberta\.json is not valid JSON .* export the checkpoint again")
    for part, value, why in (
        ("head", {"name": "a", "kind": "token", "num_outputs": 3}, "graph is not that of a head of the kind token"),
        ("head", {"name": "a", "kind": "classification", "num_outputs": 4}, "graph has 3 outputs instead of 4"),
        ("head", None, "not subscriptable"),
        ("trained_on", ["MNLI"], r"trained_on is \['MNLI'\]"),
        ("files", {"../model.pt": 0}, r"files is {'\.\./model\.pt': 0}"),
    ):
        (folder / "roberta.json").write_text(json.dumps({**json.loads(facts), part: value}))
        refused(ValueError, rf"roberta\.json.* is damaged .*{why}.*export the checkpoint again")
    (folder / "roberta.json").write_text(facts)
    read = json.loads(facts)["files"].keys() - {"model.int8.onnx"}  # which --precision int8 reads
    written = {folder / name: (folder / name).read_bytes() for name in read}
    assert {"model.onnx", "dict.txt", "encoder.json", "vocab.bpe"} <= {path.name for path in written}
    for path, content in written.items():
        at = len(content) * 2 // 3
        for damage in (content[:at], content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]):
            path.write_bytes(damage)
            refused(ValueError, rf"{re.escape(path.name)} is not as it was exported: export the checkpoint again")
        path.unlink()
        refused(FileNotFoundError, rf"onnx has no {re.escape(path.name)}: export the checkpoint again")
        path.write_bytes(content)
    (folder / "roberta.json").unlink()
    refused(ValueError, r"is of another version .* it has none\. Please export the checkpoint again")
    (folder / "roberta.json").write_text(facts)
    with pytest.raises(ValueError, match="brings its vocabulary and tokenizer along: leave --data and --tokenizer out"):
        RobertaHub.from_pretrained(folder, tokenizer=tmp_path)
