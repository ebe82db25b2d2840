"""Answers to questions."""

import json
import shutil

import pytest

from roberta_plugin.extensions.spans.kind import QuestionAnswering
from roberta_plugin.extensions.spans.questions import decode
from roberta_plugin.finetuning.kinds import kind_class
from roberta_plugin.finetuning.options import CustomOptions
from roberta_plugin.hub import RobertaHub
from roberta_plugin.prediction.predict import PredictSettings
from tests.tiny_predictors import answers, new_predictors, outputs_of_evaluation, write_finetuning

models = pytest.fixture(new_predictors, scope="module")


@pytest.mark.parametrize("max_length", [12, 20])
def test_a_question_of_unknown_length_is_cut_as_tables_of_your_own_are_prepared(models, max_length):
    hub = RobertaHub.from_pretrained(models["question_answering"])
    hub.trained_on = {}  # as of an imported model
    settings = PredictSettings(model=models["question_answering"], max_length=max_length)
    predicted = kind_class("question_answering").answering(hub, settings).windows.question_length
    prepared = QuestionAnswering.settings_of(CustomOptions(kind="question-answering"), max_length=max_length)
    assert predicted == prepared["question_length"] == max_length // 4


def test_answers_in_long_contexts_are_those_of_the_evaluation(models, tmp_path):
    """The same questions through prepared windows and the evaluation's code."""
    from roberta_plugin.extensions.spans.questions import Questions
    from tests.tiny_squad import write_prepared

    prepared = write_prepared(tmp_path, task="squad2")
    split = prepared.split("valid")
    questions = Questions(split)
    hub = RobertaHub.from_pretrained(models["question_answering"])

    expected = decode(questions, [outputs_of_evaluation(hub, "question_answering", split, head="span_head")], n_best=3)
    passages = [record["text"] for record in split.records() if "question" not in record]
    asked = [
        {"id": record["id"], "question": record["text"], "context": passages[record["passage"]]}
        for record in split.records()
        if "question" in record
    ]
    assert max(len(windows) for windows in questions.windows_of) > 1
    found = answers(models["question_answering"], asked, top_k=3, null_threshold=1.0)
    assert [answer["id"] for answer in found] == questions.ids
    for answer, wanted, record in zip(found, expected, asked, strict=True):
        assert [each["text"] for each in answer["candidates"]] == [each.text for each in wanted.candidates]
        assert answer["no_answer_probability"] == pytest.approx(wanted.null_probability, abs=1e-5)
        assert record["context"][answer["start"] : answer["end"]] == answer["answer"]
    unanswered = answers(models["question_answering"], asked, null_threshold=0.0)
    assert {answer["answer"] for answer in unanswered} == {""}


def test_the_threshold_for_no_answer_is_the_one_of_the_development_set_or_the_given_one(models, tmp_path):
    """As the output folder of `roberta finetune` has it, under the names of SQuAD 2.0 and of own data."""
    asked = [{"question": "good ?", "context": "a good bad thing"}]
    (undecided,) = answers(models["question_answering"], asked)
    null = undecided["no_answer_probability"]
    for name, shift in (("null_threshold", 0.01), ("threshold", -0.01)):
        folder = write_finetuning(tmp_path / name, models["question_answering"], {name: null + shift})
        (found,) = answers(folder, asked)
        assert bool(found["answer"]) is (shift > 0)
        assert found["null_threshold"] == pytest.approx(null + shift, abs=1e-6)
        assert bool(answers(folder, asked, null_threshold=1.0)[0]["answer"]) is True
    assert "null_threshold" not in undecided
    member = json.loads((folder / "results" / "evaluation_valid.json").read_text())["members"][1]
    (folder / "results" / "evaluation_valid.json").write_text("")
    with pytest.raises(ValueError, match=r"evaluation_valid\.json is empty: evaluate again"):
        answers(folder, asked)
    for damage in (3, {}, *({**member, "metrics": {"threshold": value}} for value in ("high", 7.0))):
        (folder / "results" / "evaluation_valid.json").write_text(json.dumps({"members": [damage]}))
        with pytest.raises(ValueError, match=r"evaluation_valid\.json is not an evaluation of .*: evaluate again"):
            answers(folder, asked)
    # as `fairseq-train --save-dir` and `roberta evaluate --output-dir SAVE_DIR/results` do
    beside = shutil.copytree(models["question_answering"], tmp_path / "beside")
    (beside / "results").mkdir()
    member = {"checkpoint": "runs/squad2/model.pt", "metrics": {"null_threshold": null + 0.01}}
    (beside / "results" / "evaluation_valid.json").write_text(json.dumps({"members": [member]}))
    assert answers(beside, asked)[0]["null_threshold"] == pytest.approx(null + 0.01, abs=1e-6)
