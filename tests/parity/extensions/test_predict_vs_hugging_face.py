"""Predictions against Hugging Face's pipelines with the same weights and the same tokenizer."""

import pytest
import torch

from roberta_plugin.hub import RobertaHub
from roberta_plugin.prediction.predict import PredictSettings, iterate_predictions
from tests.hugging_face import import_transformers
from tests.hugging_face_pipelines import classifier_of, masked_lm_of, tokenizer_of
from tests.tiny_predictors import CLASSES, LABELS, write_predictor

transformers = import_transformers()
TEXTS = ["good bad good", "bad", "It's na\u00efve, 3.14 of \u20ac2", "good good", "a bad  b"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_predictor(tmp_path_factory.mktemp("model"), "classification")
    state = torch.load(folder / "model.pt", weights_only=False)
    del state["task_state"]["data"]["task"]  # single texts, whose labels have names
    torch.save(state, folder / "model.pt")
    return folder


def answers(folder, records, **changes):
    return list(iterate_predictions(PredictSettings(model=folder, device="cpu", **changes), records))


def pipeline_of(task, model, hub):
    return transformers.pipeline(task, model=model, tokenizer=tokenizer_of(transformers, hub), device="cpu")


def test_labels_are_those_of_the_pipeline(folder):
    hub = RobertaHub.from_pretrained(folder)
    pipeline = pipeline_of("text-classification", classifier_of(transformers, hub, CLASSES, labels=LABELS), hub)
    expected = pipeline(TEXTS, top_k=None, batch_size=2)
    for answer, wanted in zip(answers(folder, TEXTS), expected, strict=True):
        probabilities = {each["label"]: each["score"] for each in wanted}
        assert answer["label"] == wanted[0]["label"]
        assert answer["probabilities"] == pytest.approx(probabilities, abs=1e-5)


def test_filled_masks_are_those_of_the_pipeline(folder):
    hub = RobertaHub.from_pretrained(folder)
    pipeline = pipeline_of("fill-mask", masked_lm_of(transformers, hub), hub)
    texts = [f"{text} <mask> good" for text in TEXTS]
    specials = {0, 1, 2, 3, hub.vocabulary.mask_id}
    found = answers(folder, texts, task_kind="fill_mask", top_k=8)
    for answer, wanted in zip(found, pipeline(texts, top_k=13), strict=True):
        wanted = [each for each in wanted if each["token"] not in specials][:8]  # we answer with no special symbol
        found = answer["masks"][0]
        assert [each["token"] for each in found] == [hub.codec.token_text(each["token"]) for each in wanted]
        assert [each["probability"] for each in found] == pytest.approx([each["score"] for each in wanted], abs=1e-5)


def test_embeddings_are_the_pipelines_features(folder):
    hub = RobertaHub.from_pretrained(folder)
    pipeline = pipeline_of("feature-extraction", masked_lm_of(transformers, hub).roberta, hub)
    features = [each[0] for each in pipeline(TEXTS, return_tensors=True)]
    found = torch.tensor([answer["embedding"] for answer in answers(folder, TEXTS, task_kind="embedding")])
    torch.testing.assert_close(found, torch.stack([each.mean(dim=0) for each in features]), atol=1e-5, rtol=1e-4)
    first = answers(folder, TEXTS, task_kind="embedding", pooling="first")
    found = torch.tensor([answer["embedding"] for answer in first])
    torch.testing.assert_close(found, torch.stack([each[0] for each in features]), atol=1e-5, rtol=1e-4)
