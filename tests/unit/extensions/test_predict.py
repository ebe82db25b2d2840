"""What models of all kinds have in common, and what some of them share."""

import json
import logging

import numpy as np
import pytest
import torch

from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.finetuning.identity import KEY
from roberta_plugin.finetuning.kinds import KINDS, kind_class, task_kinds
from roberta_plugin.hub import RobertaHub
from roberta_plugin.prediction.predict import PredictSettings, iterate_predictions, kind_of_training
from tests.needed_extensions import needs
from tests.tiny_conversions import exported, write_checkpoint
from tests.tiny_predictors import CLASSES, PAIRS, TRAINED, answers, new_predictors, retold

models = pytest.fixture(new_predictors, scope="module")


def test_the_kind_is_that_of_the_training(models):
    for name, trained in TRAINED.items():
        expected = {"fill_mask": None, "single": "classification", "made_three": "made"}.get(name, name)
        assert kind_of_training(trained) == task_kinds().get(expected)
    assert all(kind_class(name).name == name for name in KINDS)
    with pytest.raises(ValueError, match=r"'translation'; there are fill_mask"):
        kind_class("translation")


ODD = [" good", "bad\n", "\u3000good bad\u00a0", "good <mask> bad", " <mask>", "good\n\nbad"]


def test_the_hub_reads_odd_texts_as_predict_does(models):
    single, plain = RobertaHub.from_pretrained(models["single"]), RobertaHub.from_pretrained(models["fill_mask"])
    found = [list(answer["probabilities"].values()) for answer in answers(models["single"], ODD)]
    torch.testing.assert_close(single.predict(CLASSES, ODD).exp(), torch.tensor(found), atol=1e-5, rtol=0)
    found = [answer["embedding"] for answer in answers(models["fill_mask"], ODD, task_kind="embedding")]
    torch.testing.assert_close(plain.embed(ODD), torch.tensor(found), atol=1e-5, rtol=0)
    without_masks = [text for text in ODD if "<mask>" not in text]
    found = [answer["score"] for answer in answers(models["fill_mask"], without_masks, score="pll")]
    assert [each.score for each in plain.score(without_masks)] == pytest.approx(found, abs=1e-4)


HOSTILE = {
    "fill_mask": [
        *("no mask", "", "\ud83d <mask>", "<mask> " + "x" * 90),
        *({"id": "\udc00", "text": "<mask>"}, {"txt": "<mask>"}, {"text": 5}),
    ],
    "classification": [{"text": "good"}, {"text": "good", "text_pair": ""}, {"text": None, "text_pair": "a"}],
    "single": [{"text": "good", "text_pair": "bad"}],
    "multiple_choice": [
        {"context": "a", "question": "b", "options": ["c"]},
        {"context": "a", "question": 1, "options": ["c", "d"]},
        {"question": "b", "options": ["c", "d"]},
    ],
    "question_answering": [{"question": "Who?"}, {"question": " ", "context": "a"}],
    "tagging": [{"words": "a b"}, {"words": []}, {"words": ["a", 1]}, " ", {"words": ["\ud83d"]}],
    "summary": [" ", {"txt": "a"}, {"text": 5}, {"text": []}, {"text": ["a", " "]}, {"text": ["a", 1]}, "\ud83d"],
    "pronoun": ["no pronoun", {"text": "[it] is", "candidates": "a dog"}],
}


GOOD = {
    "fill_mask": "good <mask>",
    "classification": {"text": "good", "text_pair": "bad"},
    "single": "good",
    "multiple_choice": {"context": "a", "question": "", "options": ["c", "d"]},
    "question_answering": {"question": "Who?", "context": "good \U0001f642 \u6771\u4eac\r\nbad"},
    "tagging": {"words": ["", "good \U0001f642", "\u6771\u4eac"] * 20},
    "summary": {"text": ["good \U0001f642", "\u6771\u4eac", "bad. So"]},
    "pronoun": {"text": "A dog, and [it] is bad.", "candidates": ["a dog"]},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_bad_records_are_explained_and_the_others_answered(models, name):
    records = [GOOD[name], *HOSTILE[name], GOOD[name]]
    found = answers(models[name], records, on_error="skip")
    assert [answer.get("line") for answer in found] == [None, *range(2, len(HOSTILE[name]) + 2), None]
    for answer in found[1:-1]:
        assert answer["error"].endswith(".") and answer["error"].count(".") >= 2, answer  # what, and the remedy
    assert found[0] == found[-1]
    with pytest.raises(ValueError, match=r"line 2: .*Or give --on-error skip\."):
        answers(models[name], records)


@pytest.mark.parametrize("name", ["classification", "question_answering", "multiple_choice", "tagging"])
def test_columns_and_ids_may_have_any_names(models, tmp_path, name):
    """Those of another model's training, too, which here are unknown; an answer without an id names its line."""
    first, *second = kind_class(name).fields
    usual = {first: "good bad", **({second[0]: "bad good"} if second else {}), "options": ["good", "bad"]}
    (expected,) = answers(models[name], [usual])
    renamed = {"said": usual[first], "also": "bad good", "who": "w1", "options": ["good", "bad"]}
    (tmp_path / "in.jsonl").write_text(json.dumps(renamed) + "\n")
    options = {"text_column": "said", **({"text_pair_column": "also"} if second else {})}
    settings = {"model": models[name], "input": tmp_path / "in.jsonl", "device": "cpu", **options}
    for own, identity in (({"id_column": "who"}, {"id": "w1"}), ({}, {"line": 1})):
        assert list(iterate_predictions(PredictSettings(**settings, **own))) == [{**identity, **expected}]
    with pytest.raises(ValueError, match=r"line 1: .*no column 'whom'; there are said, .*--id-column"):
        list(iterate_predictions(PredictSettings(**settings, id_column="whom")))


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("regression", {"threshold": 0.4}, "--threshold goes with classification and multi_label, but this is regr"),
        ("regression", {"null_threshold": 0.4}, "--null-threshold goes with question_answering"),
        ("classification", {"threshold": 0.4}, "--threshold goes with two labels, and there are 3: "),
        ("fill_mask", {"num_sentences": 2}, "--num-sentences goes with summary, but this is fill_mask"),
        ("single", {"no_trigram_blocking": True}, "--no-trigram-blocking goes with summary"),
        ("fill_mask", {"valid_sequences": True}, "--valid-sequences goes with tagging"),
        ("fill_mask", {"head": "x"}, "--head goes with kinds that are fine-tuned"),
        ("fill_mask", {"score": "pll", "task_kind": "embedding"}, "--score goes with score, but this is embedding"),
        ("classification", {"pooling": "max"}, "--pooling goes with embedding, but this is classification"),
        ("fill_mask", {"normalize": True}, "--normalize goes with embedding, but this is fill_mask"),
        ("regression", {"top_k": 3}, "--top-k goes with fill_mask and question_answering, but this is regression"),
        ("tagging", {"text_pair_column": "also"}, "--text-pair-column goes with models of two texts"),
    ],
)
def test_options_of_other_kinds_are_refused(models, name, option, message):
    with pytest.raises(ValueError, match=message):
        answers(models[name], PAIRS[:1], **option)


def test_the_column_of_training_goes_before_another_that_is_called_text(models, tmp_path):
    settings = {**TRAINED["tagging"]["settings"], "text_column": "w"}
    model = retold(models["tagging"], tmp_path / "words", task="custom", settings=settings)
    found = answers(model, [{"w": ["a", "good"]}, {"words": ["a", "good"]}])
    assert found[0] == found[1] and found[0]["words"] == ["a", "good"]
    settings = {**TRAINED["single"]["settings"], "text_column": "title", "text_pair_column": None}
    model = retold(models["single"], tmp_path / "titles", task="custom", settings=settings)
    row, expected = {"text": "bad", "title": "good"}, [answers(model, [text])[0] for text in ("good", "bad")]
    assert [answers(model, [row])[0], answers(model, [row], text_column="text")[0]] == expected


LONG = ["good bad good so it is, or not at all, is it", "bad", "it is so good"]


@pytest.mark.parametrize(
    ("kind", "settings", "to"),
    [
        ("classification", {}, ""),
        ("classification", {"long_texts": "tail"}, ""),
        ("regression", {}, "huggingface"),
        pytest.param("regression", {}, "onnx", marks=needs("onnx")),
        ("embedding", {"pooling": "first", "normalize": True}, ""),
        pytest.param(
            *("embedding", {"pooling": "max", "normalize": False}, "sentence-transformers"),
            marks=needs("sentence_transformers"),
        ),
    ],
)
def test_texts_and_pairs_are_cut_to_the_length_of_the_training_as_by_roberta_predict(
    tmp_path, caplog, kind, settings, to
):
    model = write_checkpoint(tmp_path / "model", "masked_lm" if kind == "embedding" else kind, max_positions=40)
    state = load_state(model / "model.pt")
    trained = state.setdefault("task_state", {}).setdefault(KEY, {"settings": {}})["settings"]
    trained.update(settings, max_length=12, kind=kind)
    torch.save(state, model / "model.pt")
    if to:
        if to == "onnx":
            pytest.importorskip("onnxruntime")
            pytest.importorskip("onnxscript")
        model = exported(model, tmp_path / "exported", to).folder
    hub = RobertaHub.from_pretrained(model)
    texts = [*LONG, *([first, second] for first, second in zip(LONG, LONG[1:] + LONG[:1], strict=True))]
    records = [
        {"text": text} if isinstance(text, str) else dict(zip(("text", "text_pair"), text, strict=True))
        for text in texts
    ]
    wanted = answers(model, records, task_kind=kind)
    num_cut = sum("truncated" in answer for answer in wanted)
    assert 1 < num_cut < 6
    with caplog.at_level(logging.WARNING):
        if kind == "embedding":
            found = hub.embed(texts).tolist()
            expected = [answer["embedding"] for answer in wanted]
        else:
            (head,) = hub.heads
            logits = hub.predict(head, texts, return_logits=True)
            found = (logits.softmax(dim=-1) if kind == "classification" else logits).tolist()
            names = {"classification": lambda answer: list(answer["probabilities"].values())}
            expected = [names.get(kind, lambda answer: [answer["score"]])(answer) for answer in wanted]
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert f"{num_cut} of 6 texts were cut to 12 tokens." in caplog.text
