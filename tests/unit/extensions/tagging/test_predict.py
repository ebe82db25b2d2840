"""Tags of words."""

import json

import pytest

from roberta_plugin.hub import RobertaHub
from roberta_plugin.prediction.predict import PredictSettings, predict
from tests.tiny_predictors import answers, new_predictors, outputs_of_evaluation

models = pytest.fixture(new_predictors, scope="module")


def test_tags_of_long_texts_are_those_of_the_evaluation(models, tmp_path):
    """The same words through prepared windows and the evaluation's code."""
    from roberta_plugin.finetuning.benchmarks import benchmark_of
    from roberta_plugin.finetuning.options import TaggingOptions
    from tests.tiny_tagging import write_prepared

    prepared = write_prepared(tmp_path)
    split = prepared.split("valid")
    hub = RobertaHub.from_pretrained(models["tagging"])

    outputs = outputs_of_evaluation(hub, "tagging", split, head="token_head")
    records = list(split.records())
    assert len(split) > len(records), "no text was cut"
    for is_valid in (False, True):
        options = TaggingOptions(valid_sequences=is_valid)
        benchmark_of("tagging").score(prepared, "valid", [outputs], folder=tmp_path, options=options)
        lines = (tmp_path / "valid.predictions.conll").read_text().split("\n\n")[:-1]
        found = answers(models["tagging"], records, valid_sequences=is_valid)
        expected = [[line.split(" ")[2] for line in block.split("\n")] for block in lines]
        assert [answer["tags"] for answer in found] == expected
        assert [answer["words"] for answer in found] == [record["words"] for record in records]
        for answer in found:
            assert answer["entities"] or set(answer["tags"]) == {"O"}
            for entity in answer["entities"]:
                text = " ".join(answer["words"])
                assert text[entity["start"] : entity["end"]] == entity["text"]
                assert entity["text"] == " ".join(answer["words"][entity["first_word"] : entity["last_word"] + 1])


def test_columns_of_tagged_words_are_read_as_in_training_whatever_is_beside_the_words(models, tmp_path):
    path, output = tmp_path / "new.conll", tmp_path / "answers.jsonl"
    words = [["good", "K\u00f6ln"], ["bad"]]
    for line in ("{} B-LOC", "{} NN B-LOC", "{}"):
        path.write_text("\n\n".join("\n".join(map(line.format, text)) for text in words) + "\n")
        predict(PredictSettings(model=models["tagging"], device="cpu", input=path, output=output))
        found = [json.loads(answer) for answer in output.read_text().splitlines()]
        assert [answer["words"] for answer in found] == words
        assert [each["tags"] for each in found] == [
            each["tags"] for each in answers(models["tagging"], [{"words": text} for text in words])
        ]


def test_entities_of_a_text_are_where_its_words_are(models):
    text = "good,  bad\r\n (good) don't xyz\u200b."
    (found,) = answers(models["tagging"], [text])
    assert found["words"] == ["good", ",", "bad", "(", "good", ")", "don't", "xyz\u200b", "."]
    same = answers(models["tagging"], [{"tokens": found["words"]}])[0]
    assert found["tags"] == same["tags"]
    assert found["entities"]
    for entity, other in zip(found["entities"], same["entities"], strict=True):
        assert text[entity["start"] : entity["end"]] == entity["text"]
        assert all(entity[name] == other[name] for name in ("type", "first_word", "score"))
