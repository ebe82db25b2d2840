"""Summaries of texts."""

import pytest
import torch

from roberta_plugin.hub import RobertaHub
from tests.tiny_predictors import answers, new_predictors

models = pytest.fixture(new_predictors, scope="module")


def test_summaries_of_long_texts_are_those_of_the_evaluation(models, tmp_path):
    """The same documents through prepared windows and the evaluation's code."""
    from roberta_plugin.extensions.summaries.dataset import DocumentsDataset
    from roberta_plugin.extensions.summaries.documents import Length, choose
    from tests.tiny_summaries import write_prepared

    split = write_prepared(tmp_path, max_length=38).split("valid")
    dataset = DocumentsDataset(split, pad_id=1, vocab_size=1000, seed=1)
    hub = RobertaHub.from_pretrained(models["summary"])
    assert hub.model.heads["summary_head"].layers, "its layers are found in the checkpoint"
    records = list(split.records())
    found = answers(models["summary"], [{"id": record["id"], "text": record["sentences"]} for record in records])
    for number, (record, answer) in enumerate(zip(records, found, strict=True)):
        batch = dataset.__getitems__([(1, number)])
        with torch.inference_mode():
            logits = hub.model(**batch["net_input"], head="summary_head", predicted=batch["sentences"])[0]
        expected = logits.double().sigmoid().numpy()
        chosen = choose(expected, record["sentences"], Length())
        assert [each["sentence"] for each in answer["sentences"]] == chosen
        assert [each["probability"] for each in answer["sentences"]] == pytest.approx(expected[chosen], abs=1e-5)
        assert answer["summary"] == " ".join(record["sentences"][each] for each in chosen)
        assert answer["id"] == record["id"] and answer["num_sentences"] == len(record["sentences"])


def test_a_text_is_summed_up_in_its_own_sentences(models):
    text = "It was good. He said so.\n\nThen it was bad. Nobody said so."
    (found,) = answers(models["summary"], [text], num_sentences=2)
    assert found["num_sentences"] == 4
    assert len(found["sentences"]) == 2 and all(each["text"] in text for each in found["sentences"])
    (whole,) = answers(models["summary"], [text], length_share=1.0, no_trigram_blocking=True)
    assert whole["summary"] == " ".join(text.split())
    (cut,) = answers(models["summary"], ["x" * 90])
    assert cut["truncated"] is True
    with pytest.raises(ValueError, match="sentence 2 of the column 'text' is empty"):
        answers(models["summary"], [{"text": ["a", " "]}])
