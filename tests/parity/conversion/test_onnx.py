"""Exported graphs in ONNX Runtime against our model, with any batch size and length."""

import numpy as np
import pytest
import torch

from roberta_plugin.conversion.convert import ExportSettings, export_model
from roberta_plugin.conversion.onnx_model import _changes
from tests.tiny_conversions import HEAD, batch, opened, write_checkpoint
from tests.tiny_models import SWITCHED

onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
pytest.importorskip("onnxscript", reason="needs onnxscript")
TOLERANCE = {"atol": 1e-4, "rtol": 1e-4}


@torch.no_grad()
@pytest.mark.parametrize(
    "kind",
    [
        "masked_lm",
        pytest.param("question_answering", marks=pytest.mark.slow),  # by default: test_predict_onnx
        "classification",
        "tagging",
    ],
)
def test_onnx_runtime_computes_what_our_model_does(tmp_path, kind):
    ours = write_checkpoint(tmp_path / "ours", kind, encoder_layers=1, layer_norm_eps=0.5)
    sample = tmp_path / "sample.txt"
    sample.write_text("so it is good\n\nbad good bad, or so\n")
    with_int8 = kind in ("masked_lm", "classification")
    done = export_model(
        ExportSettings(
            checkpoint=ours, to="onnx", output_dir=tmp_path / "onnx", int8_sample=sample if with_int8 else None
        )
    )
    assert b".py" not in (done.folder / "model.onnx").read_bytes()  # no stack traces with paths of this machine
    session = onnxruntime.InferenceSession(done.folder / "model.onnx")
    model = opened(ours)
    ids, _ = batch(ours)
    for rows, length in ((slice(None), 40), (slice(0, 1), 17), (slice(1, 4), 31), (slice(2, 3), 2)):
        part = ids[rows, :length]
        is_token = part.ne(1)
        found = session.run(None, {"input_ids": part.numpy(), "attention_mask": is_token.long().numpy()})
        if kind == "masked_lm":
            expected = model(part)[0]
            torch.testing.assert_close(torch.tensor(found[0])[is_token], expected[is_token], **TOLERANCE)
        elif kind == "tagging":
            expected = model(part, head="token_head")[0]
            torch.testing.assert_close(torch.tensor(found[0])[is_token], expected[is_token], **TOLERANCE)
        elif kind == "classification":
            expected = model(part, head=HEAD)[0]
            torch.testing.assert_close(torch.tensor(found[0]), expected, **TOLERANCE)
        else:
            expected = model(part, head="span_head")[0]
            for value, right in zip(found[:2], expected[:2], strict=True):
                torch.testing.assert_close(torch.tensor(value)[is_token], right[is_token], **TOLERANCE)
            torch.testing.assert_close(torch.tensor(found[2]), expected.answerable, **TOLERANCE)
    if with_int8:
        assert (done.folder / "model.int8.onnx").stat().st_size < (done.folder / "model.onnx").stat().st_size
        small = onnxruntime.InferenceSession(done.folder / "model.int8.onnx")
        feed = {"input_ids": ids[:1, :17].numpy(), "attention_mask": np.ones((1, 17), dtype=np.int64)}
        change = np.abs(small.run(None, feed)[0] - session.run(None, feed)[0]).max()
        assert 0 < change < 1
        said = "the masked-LM loss is" if kind == "masked_lm" else "of the answers are the same"
        assert said in done.notes[-1]
        assert "2 lines" in done.notes[-1]


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
    assert _changes(full, small, "regression") == "the score changes by 0.3000 on average, and by at most 0.5000"
    spans = [[np.array([[0.0, 1.0]]), np.array([[0.0, 2.0]]), np.array([0.5])]] * 2
    moved = [spans[0], [np.array([[0.0, 1.0]]), np.array([[3.0, 2.0]]), np.array([0.5])]]
    said = _changes(spans, moved, "question_answering")
    assert said == "50.0% of the spans are the same, and logits change by at most 3.0000"
