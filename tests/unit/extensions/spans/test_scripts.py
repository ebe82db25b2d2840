"""Tables and SQuAD's tasks with answers in scripts without spaces."""

import numpy as np
import pytest

from roberta_plugin.extensions.spans.options import SquadOptions
from roberta_plugin.extensions.spans.questions import Questions
from roberta_plugin.finetuning.benchmarks import kind_of
from roberta_plugin.finetuning.kinds.answer_scores import answer_score
from roberta_plugin.finetuning.kinds.outputs import Decisions, RawOutputs
from roberta_plugin.finetuning.options import CustomOptions
from roberta_plugin.finetuning.preparation import PrepareSettings, prepare, remarks
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_tables import write_json_lines


def test_a_table_says_how_its_answers_are_compared_and_compares_them_so(tmp_path):
    context = "\u5317\u4eac\u5927\u5b66\u5728\u4e2d\u56fd\u7684\u9996\u90fd"
    rows = [{"context": f"{context} NBA {n}", "question": f"{n}?", "answer": ("\u4e2d\u56fd", "NBA")[n % 2]} for n in range(20)]  # fmt: skip
    rows += [{"context": f"It is the capital {n}.", "question": "?", "answer": "the capital"} for n in range(20)]
    write_json_lines(tmp_path / "my.jsonl", rows)
    where = {"raw": tmp_path, "tokenizer": write_tokenizer(tmp_path / "t"), "output_dir": tmp_path / "data"}
    options = CustomOptions(kind="question-answering", train="my.jsonl", valid="my.jsonl")
    prepared = prepare(PrepareSettings(task="custom", max_length=64, options=options, **where))
    said = "valid: 20 of 40 questions are in a script without spaces, or in Korean: exact_match and f1 compare their"
    assert any(remark.startswith(said) for remark in remarks(prepared))
    split = prepared.split("valid")
    scores = [np.zeros(len(split.sequences[row]), dtype=np.float32) for row in range(len(split.sequences))]
    ends = [np.arange(len(each), dtype=np.float32) for each in scores]  # a long answer
    raw = RawOutputs(start_logits=scores, end_logits=ends, answerable_logits=np.full(len(scores), 9, np.float32))
    decisions = Decisions("valid", {"threshold": 1.0, "max_answer_length": 40})
    outcome = kind_of(prepared).judged(split, [raw], decisions)
    entries = list(outcome.entries())
    expected = [
        answer_score(entry["prediction"], entry["label"], by_characters=number < 20, may_be_empty=True).f1
        for number, entry in enumerate(entries)
    ]
    assert outcome.measure(np.ones(40))["f1"] == pytest.approx(100 * np.mean(expected))
    by_words = [answer_score(entry["prediction"], entry["label"], may_be_empty=True).f1 for entry in entries]
    assert min(expected[:20]) > 0 == max(by_words[:20:2]), "of the answers in Chinese"


def test_the_official_scripts_stay_as_they_are_and_it_is_said(tmp_path):
    context = "\u5317\u4eac\u5927\u5b66\u5728\u4e2d\u56fd"
    (tmp_path / "data.json").write_text(
        '{"data": [{"paragraphs": [{"context": "%s", "qas": [{"id": "a", "question": "?", "answers": '  # noqa: UP031
        '[{"text": "%s", "answer_start": 0}]}]}]}]}' % (context, context[:4])
    )
    where = {"raw": tmp_path, "tokenizer": write_tokenizer(tmp_path / "t"), "output_dir": tmp_path / "data"}
    options = SquadOptions(train="data.json", valid="data.json", question_length=8, doc_stride=16)
    prepared = prepare(PrepareSettings(task="squad1", max_length=64, options=options, **where))
    assert any("the F1 of SQuAD's script hardly differs from an exact match" in remark for remark in remarks(prepared))
    assert kind_of(prepared)._by_characters(Questions(prepared.split("valid"))) == [False]
