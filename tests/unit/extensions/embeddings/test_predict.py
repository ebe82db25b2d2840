"""Vectors of texts."""

import json

import numpy as np
import pytest

from roberta_plugin.hub import RobertaHub
from roberta_plugin.prediction.predict import PredictSettings, predict
from tests.tiny_predictors import answers, new_predictors, retold

models = pytest.fixture(new_predictors, scope="module")


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_embeddings_are_those_of_the_hub(models, tmp_path, pooling):
    texts = ["good", "bad " * 5, "good bad"]
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    settings = {"task_kind": "embedding", "pooling": pooling, "input": tmp_path / "in.txt", "device": "cpu"}
    result = predict(PredictSettings(model=models["single"], output=tmp_path / "out.jsonl", **settings))
    assert (result.num_answers, result.num_errors) == (3, 0)
    expected = RobertaHub.from_pretrained(models["single"]).embed([text.strip() for text in texts], pooling)
    found = [json.loads(line)["embedding"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


def test_a_model_of_vectors_gives_one_to_a_text_and_a_cosine_to_two(models, tmp_path):
    settings = {"kind": "embedding", "embedding_loss": "simcse", "pooling": "max", "normalize": True, "max_length": 6}
    settings |= {"text_column": "said", "text_pair_column": None, "label_column": []}
    folder = retold(models["fill_mask"], tmp_path / "vectors", task="custom", settings=settings)
    records = [{"text": "good"}, {"said": "good", "text_pair": "bad"}, {"text": "bad"}, {"text": "bad " * 9}]
    good, both, bad, cut = answers(folder, records)
    vectors = [np.array(each["embedding"]) for each in (good, bad, cut)]
    np.testing.assert_allclose(vectors[:2], RobertaHub.from_pretrained(folder).embed(["good", "bad"]), atol=1e-6)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1])
    assert both == {"score": pytest.approx(vectors[0] @ vectors[1], abs=2e-6)}
    assert [answer.get("truncated", False) for answer in (good, bad, cut)] == [False, False, True]
    plain = answers(folder, records[:1], pooling="first")
    assert not np.allclose(plain[0]["embedding"], vectors[0])
