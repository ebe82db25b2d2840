"""Exported graphs in ONNX Runtime: what our model computes, at any batch size and length, and what it answers."""

import functools
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from roberta_plugin.conversion.convert import ExportSettings, export_model
from roberta_plugin.conversion.pretrained import read_any
from roberta_plugin.extensions.onnx.model import _changes
from roberta_plugin.hub import RobertaHub
from roberta_plugin.models.state_dicts import SEGMENTS
from roberta_plugin.prediction.predict import PredictSettings, iterate_predictions
from tests.refusals import refused
from tests.tiny_conversions import batch, opened, write_checkpoint
from tests.tiny_models import SWITCHED
from tests.tiny_predictors import CLASSES, write_predictor

onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
pytest.importorskip("onnxscript", reason="needs onnxscript")
TOLERANCE = {"atol": 1e-4, "rtol": 1e-4}
HEADS = {"fill_mask": None, "classification": CLASSES, "question_answering": "span_head"}
TOKENS = {"tagging": "token_head"}  # logits of each token, as of fill_mask
INT8 = {"fill_mask": "the masked-LM loss is", "classification": "of the answers are the same"}
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


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A kind's checkpoint and its export, with 8-bit weights where `INT8` has it: an export takes seconds."""

    @functools.cache
    def of(kind):
        folder = tmp_path_factory.mktemp(kind)
        checkpoint = write_predictor(folder / "ours", kind, encoder_layers=1, layer_norm_eps=0.5)
        if kind == "classification":  # of pairs
            state = torch.load(checkpoint / "model.pt", weights_only=False)
            state["model"][SEGMENTS] = torch.randn(2, 24, generator=torch.Generator().manual_seed(3))
            torch.save(state, checkpoint / "model.pt")
        (folder / "sample.txt").write_text("so it is good\n\nbad good bad, or so\n")
        sample = folder / "sample.txt" if kind in INT8 else None
        settings = ExportSettings(checkpoint=checkpoint, to="onnx", output_dir=folder / "onnx", int8_sample=sample)
        return checkpoint, export_model(settings)

    return of


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in HEADS else pytest.mark.slow) for kind in RECORDS]
)
def test_an_exported_folder_gives_the_records_of_its_checkpoint(exported, kind):
    checkpoint, done = exported(kind)
    expected = answers(checkpoint, kind)
    away = checkpoint.rename(checkpoint.with_name("away"))  # the folder stands alone
    found = answers(done.folder, kind)
    away.rename(checkpoint)
    assert len(expected) == len(RECORDS[kind])
    assert_near(found, expected, 1e-4)


@torch.no_grad()
@pytest.mark.parametrize("kind", [*HEADS, *(pytest.param(kind, marks=pytest.mark.slow) for kind in TOKENS)])
def test_onnx_runtime_computes_what_our_model_does(exported, kind):
    ours, done = exported(kind)
    assert b".py" not in (done.folder / "model.onnx").read_bytes()  # no stack traces with paths of this machine
    session, model = onnxruntime.InferenceSession(done.folder / "model.onnx"), opened(ours)
    ids, _ = batch(ours)
    for rows, length in ((slice(None), 40), (slice(0, 1), 17), (slice(1, 4), 31), (slice(2, 3), 2)):
        part = ids[rows, :length]
        is_token = part.ne(1)
        feed = {"input_ids": part.numpy(), "attention_mask": is_token.long().numpy()}
        found = [torch.tensor(each) for each in session.run(None, feed)]
        head = (HEADS | TOKENS)[kind]
        expected = model(part, head=head)[0] if head else model(part)[0]
        if kind == "classification":
            torch.testing.assert_close(found[0], expected, **TOLERANCE)
        elif kind == "question_answering":
            for value, right in zip(found[:2], expected[:2], strict=True):
                torch.testing.assert_close(value[is_token], right[is_token], **TOLERANCE)
            torch.testing.assert_close(found[2], expected.answerable, **TOLERANCE)
        else:
            torch.testing.assert_close(found[0][is_token], expected[is_token], **TOLERANCE)
    if kind in INT8:
        assert (done.folder / "model.int8.onnx").stat().st_size < (done.folder / "model.onnx").stat().st_size
        small = onnxruntime.InferenceSession(done.folder / "model.int8.onnx")
        feed = {"input_ids": ids[:1, :17].numpy(), "attention_mask": np.ones((1, 17), dtype=np.int64)}
        assert 0 < np.abs(small.run(None, feed)[0] - session.run(None, feed)[0]).max() < 1
        assert INT8[kind] in done.notes[-1] and "2 lines" in done.notes[-1]


def test_int8_needs_its_file_and_the_hub_opens_it(exported, tmp_path):
    checkpoint, done = exported("classification")
    folder = shutil.copytree(done.folder, tmp_path / "onnx")
    pairs = [("good", "bad"), ("so it is", "good or bad")]
    full = RobertaHub.from_pretrained(checkpoint).predict("sentence_classification_head", pairs)
    small = RobertaHub.from_pretrained(folder, precision="int8").predict("sentence_classification_head", pairs)
    assert 0 < (full - small).abs().max() < 0.2
    hub = RobertaHub.from_pretrained(folder)
    refused(r"only has sentence_classification_head: use the checkpoint", hub.extract_features, ["good"])
    refused("to which no head can be added: open its", hub.register_classification_head, "other", num_classes=2)
    refused(r"exported without its masked-LM head", hub.fill_mask, "a <mask>")
    message = r"--precision bf16: .* which has fp32 or int8"
    refused(message, RobertaHub.from_pretrained, folder, precision="bf16")
    (folder / "model.int8.onnx").unlink()
    message = r"has no model\.int8\.onnx: export it with --int8 TEXT"
    refused(message, RobertaHub.from_pretrained, folder, precision="int8", error=FileNotFoundError)


def test_a_folder_of_hugging_face_with_a_graph_of_its_own_stays_one(tmp_path):
    checkpoint = write_predictor(tmp_path / "ours", "fill_mask")
    folder = export_model(ExportSettings(checkpoint=checkpoint, to="huggingface", output_dir=tmp_path / "hf")).folder
    (folder / "model.onnx").write_bytes(b"another exporter's")
    assert_near(answers(folder, "fill_mask"), answers(checkpoint, "fill_mask"), 1e-4)


def test_folders_of_other_versions_damaged_ones_and_missing_files_are_named(exported, tmp_path):
    folder = shutil.copytree(exported("classification")[1].folder, tmp_path / "onnx")
    facts = (folder / "roberta.json").read_text()

    def refuse(error: type[Exception], match: str, **options) -> None:
        refused(match, RobertaHub.from_pretrained, folder, error=error, **options)

    (folder / "roberta.json").write_text(json.dumps({"version": 1, "head": {}}))  # the other keys may be others, too
    refuse(ValueError, r"is from another version .* it has version 1\. Please export the checkpoint again")
    (folder / "roberta.json").write_text(facts[:20])
    refuse(ValueError, r"roberta\.json is not valid JSON .* export the checkpoint again")
    for part, value, why in (
        ("head", {"name": "a", "kind": "token", "num_outputs": 3}, "graph does not have a head of the kind token"),
        ("head", {"name": "a", "kind": "classification", "num_outputs": 4}, "graph has 3 outputs instead of 4"),
        ("head", None, "not subscriptable"),
        ("trained_on", ["MNLI"], r"trained_on is \['MNLI'\]"),
        ("trained_on", {"settings": None}, "trained_on is {'settings': None}"),
        ("files", {"../model.pt": 0}, r"files is {'\.\./model\.pt': 0}"),
    ):
        (folder / "roberta.json").write_text(json.dumps({**json.loads(facts), part: value}))
        refuse(ValueError, rf"roberta\.json.* is damaged .*{why}.*export the checkpoint again")
    (folder / "roberta.json").write_text(facts)
    read = json.loads(facts)["files"].keys() - {"model.int8.onnx"}  # which --precision int8 reads
    written = {folder / name: (folder / name).read_bytes() for name in read}
    assert {"model.onnx", "dict.txt", "encoder.json", "vocab.bpe"} <= {path.name for path in written}
    for path, content in written.items():
        at = len(content) * 2 // 3
        for damage in (content[:at], content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]):
            path.write_bytes(damage)
            refuse(ValueError, rf"{re.escape(path.name)} is not as it was exported: export the checkpoint again")
        path.unlink()
        refuse(FileNotFoundError, rf"onnx has no {re.escape(path.name)}: export the checkpoint again")
        path.write_bytes(content)
    (folder / "roberta.json").unlink()
    refuse(ValueError, r"has a graph and no roberta\.json, as in exports of other programs: give the folder")
    (folder / "roberta.json").write_text(facts)
    refused("onnx holds a model in the format onnx, from which nothing can be converted: give", read_any, folder)
    for read in (read_any, RobertaHub.from_pretrained):
        refused("is one of several files of a model: give their folder", read, folder / "model.onnx")
    message = "has its own vocabulary and tokenizer: leave --data and --tokenizer out"
    refuse(ValueError, message, tokenizer=tmp_path)


@torch.no_grad()
def test_what_departs_from_roberta_is_in_the_graph(tmp_path):
    """Rotary positions and windows among it: for any length, shorter than the window and several times as long."""
    ours = write_checkpoint(tmp_path / "ours", **SWITCHED, encoder_layers=2)
    done = export_model(ExportSettings(checkpoint=ours, to="onnx", output_dir=tmp_path / "onnx"))
    session, model = onnxruntime.InferenceSession(done.folder / "model.onnx"), opened(ours)
    ids, _ = batch(ours)
    for rows, length in ((slice(None), 40), (slice(0, 1), 17), (slice(2, 3), 2)):
        part = ids[rows, :length]
        is_token = part.ne(1)
        found = session.run(None, {"input_ids": part.numpy(), "attention_mask": is_token.long().numpy()})
        torch.testing.assert_close(torch.tensor(found[0])[is_token], model(part)[0][is_token], **TOLERANCE)


def test_what_8_bit_weights_change_is_said_in_the_words_of_the_head():
    full = [[np.array([[1.0]])], [np.array([[2.0]])]]
    small = [[np.array([[1.5]])], [np.array([[2.1]])]]
    assert _changes(full, small, "scores") == "the score changes by 0.3000 on average, and by at most 0.5000"
    spans = [[np.array([[0.0, 1.0]]), np.array([[0.0, 2.0]]), np.array([0.5])]] * 2
    moved = [spans[0], [np.array([[0.0, 1.0]]), np.array([[3.0, 2.0]]), np.array([0.5])]]
    said = _changes(spans, moved, "spans")
    assert said == "50.0% of the spans are the same, and logits change by at most 3.0000"
    vectors = [[np.array([[1.0, 0.0]])], [np.array([[0.0, 1.0]])]]
    turned = [[np.array([[1.0, 1.0]])], [np.array([[0.0, 2.0]])]]
    words = "vectors have a cosine of 0.8536 with their own on average, and of 0.7071 at least"
    assert _changes(vectors, turned, "vectors") == words

    tags = [[np.array([[[0.0, 1.0], [1.0, 0.0]]])]]
    other = [[np.array([[[0.0, 1.0], [1.0, 2.0]]])]]
    assert _changes(tags, other, "tags").startswith("50.0% of the tags are the same")


def test_a_model_of_vectors_has_a_graph_of_vectors(tmp_path):
    """Pooling and length are in the graph; of padding, of any batch; the folder is asked as the checkpoint is."""
    checkpoint = write_predictor(tmp_path / "ours", "fill_mask", encoder_layers=1)
    state = torch.load(checkpoint / "model.pt", weights_only=False)
    settings = {"kind": "embedding", "pooling": "max", "normalize": True, "max_length": 40, "embedding_loss": "simcse"}
    state["task_state"] = {"data": {"task": "custom", "settings": settings}}
    torch.save(state, checkpoint / "model.pt")
    folder = export_model(ExportSettings(checkpoint=checkpoint, to="onnx", output_dir=tmp_path / "onnx")).folder
    session, hub = onnxruntime.InferenceSession(folder / "model.onnx"), RobertaHub.from_pretrained(folder)
    assert [entry.name for entry in session.get_outputs()] == ["sentence_embedding"]
    wanted = RobertaHub.from_pretrained(checkpoint).embed(TEXTS)
    torch.testing.assert_close(hub.embed(TEXTS), wanted, **TOLERANCE)
    found = [each["embedding"] for each in iterate_predictions(PredictSettings(model=folder), TEXTS)]
    torch.testing.assert_close(torch.tensor(found), wanted, **TOLERANCE)
    refused("is an ONNX model with the pooling max: leave --pooling mean out", hub.embed, TEXTS, pooling="mean")
    refused(r"only has vectors of texts: use the checkpoint", hub.extract_features, TEXTS)
    refused(r"exported without its masked-LM head", hub.fill_mask, "a <mask>")
    card = (folder / "README.md").read_text()
    assert "pipeline_tag: feature-extraction" in card and "`sentence_embedding`, a vector for each text" in card
