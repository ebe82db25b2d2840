"""Answers of the masked LM, and scores of texts."""

import pytest

from roberta_plugin.hub import RobertaHub
from tests.tiny_predictors import answers, new_predictors

models = pytest.fixture(new_predictors, scope="module")


def test_masks_have_the_answers_of_the_hub(models):
    hub = RobertaHub.from_pretrained(models["fill_mask"])
    texts = ["good <mask> bad", "<mask> good <mask>", "bad bad <mask>"]
    found = answers(models["fill_mask"], texts, top_k=3)
    assert [len(answer["masks"]) for answer in found] == [1, 2, 1]
    for text, answer in zip(texts, found, strict=True):
        expected = hub.fill_mask(text, topk=3)
        expected = [expected] if text.count("<mask>") == 1 else expected
        for best, wanted in zip(answer["masks"], expected, strict=True):
            assert [each["text"] for each in best] == [filling.text for filling in wanted]
            assert [each["probability"] for each in best] == pytest.approx([w.probability for w in wanted], abs=1e-5)


@pytest.mark.parametrize("method", ["pll", "pll-word-l2r", "unmasked"])
def test_scores_are_those_of_the_hub_and_long_texts_are_refused(models, method):
    texts = ["a good thing", "x" * 50, "bad"]
    found = answers(models["fill_mask"], texts, score=method, per_token=True, on_error="skip")
    assert "52 tokens, and 40 is the most" in found[1]["error"]
    expected = RobertaHub.from_pretrained(models["fill_mask"]).score(texts[::2], method)
    for answer, score in zip(found[::2], expected, strict=True):
        assert answer["score"] == pytest.approx(score.score, abs=1e-5) and answer["tokens"] == score.tokens
        assert answer["log_probs"] == pytest.approx(score.log_probs, abs=1e-5)
    assert answers(models["fill_mask"], texts[:1], task_kind="score")[0].keys() == {"score", "num_tokens"}


def test_no_special_symbol_is_an_answer_however_many_are_asked_for(models):
    hub = RobertaHub.from_pretrained(models["fill_mask"])
    (found,) = answers(models["fill_mask"], ["good <mask>"], top_k=100_000)
    assert len(found["masks"][0]) == len(hub.vocabulary) - int(hub.vocabulary.never_masked().sum())
    assert all(each["probability"] > 0 for each in found["masks"][0])
