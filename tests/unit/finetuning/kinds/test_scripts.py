"""Answers in scripts without spaces, compared by characters."""

import numpy as np
import pytest

from roberta_plugin.extensions.spans.options import SquadOptions
from roberta_plugin.extensions.spans.questions import Questions
from roberta_plugin.finetuning.benchmarks import kind_of
from roberta_plugin.finetuning.kinds.metrics import answer_score
from roberta_plugin.finetuning.kinds.outputs import Decisions, RawOutputs
from roberta_plugin.finetuning.kinds.scripts import has_characters, is_of_characters, segments, segments_of_match
from roberta_plugin.finetuning.options import CustomOptions
from roberta_plugin.finetuning.preparation import PrepareSettings, prepare, remarks
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_tables import write_json_lines

ANSWERS = {
    "Chinese": ("\u5317\u4eac\u5927\u5b66", "\u5728\u5317\u4eac\u5927\u5b66"),
    "Japanese": ("\u6771\u4eac\u30bf\u30ef\u30fc", "\u6771\u4eac\u306e\u30bf\u30ef\u30fc"),
    "Thai": ("\u0e01\u0e23\u0e38\u0e07\u0e40\u0e17\u0e1e", "\u0e17\u0e35\u0e48\u0e01\u0e23\u0e38\u0e07\u0e40\u0e17\u0e1e"),
    "Lao": ("\u0ea7\u0ebd\u0e87\u0e88\u0eb1\u0e99", "\u0e97\u0ebd\u0e87\u0e88\u0eb1\u0e99"),
    "Khmer": ("\u1797\u17d2\u1793\u17c6\u1796\u17c1\u1789", "\u1793\u17c5\u1797\u17d2\u1793\u17c6\u1796\u17c1\u1789"),
    "Burmese": ("\u101b\u1014\u103a\u1000\u102f\u1014\u103a", "\u1019\u103c\u102d\u102f\u101b\u1014\u103a\u1000\u102f\u1014\u103a"),
    "Korean": ("\uc11c\uc6b8", "\uc11c\uc6b8\uc5d0\uc11c"),
}  # fmt: skip


@pytest.mark.parametrize("language", ANSWERS)
def test_a_part_of_an_answer_counts_in_every_script_without_spaces(language):
    right, given = ANSWERS[language]
    assert has_characters(right) and is_of_characters(right)
    assert answer_score("squad2", given, [right]) == (0, 0), "words are whole phrases"
    score = answer_score("squad2", given, [right], by_characters=True)
    assert score.exact == 0 and 0.5 < score.f1 < 1
    assert answer_score("squad2", f"\u300c{right}\u300d.", [right], by_characters=True) == (1, 1)


@pytest.mark.parametrize("text", ["New York", "\u041c\u043e\u0441\u043a\u0432\u0430", "\u0627\u0644\u0642\u0627\u0647\u0631\u0629", "\u0939\u093f\u0928\u094d\u0926\u0940", "1998"])  # fmt: skip
def test_scripts_with_spaces_stay_by_words(text):
    assert not has_characters(text) and not is_of_characters(text)
    assert segments(text) == text.lower().split()


def test_other_letters_and_digits_stay_words_and_korean_keeps_its_spaces_where_all_must_match():
    assert segments("1998\u5e74 the Olympics\uff01") == ["1998", "\u5e74", "the", "olympics"]
    assert segments("\uc11c\uc6b8 \uc2dc") == ["\uc11c", "\uc6b8", "\uc2dc"]
    assert segments_of_match("\uc11c\uc6b8 \uc2dc") == ["\uc11c\uc6b8", "\uc2dc"]
    assert answer_score("squad1", "\uc11c\uc6b8\uc2dc", ["\uc11c\uc6b8 \uc2dc"], by_characters=True) == (0, 1)


def test_a_table_says_how_its_answers_are_compared_and_compares_them_so(tmp_path):
    context = "\u5317\u4eac\u5927\u5b66\u5728\u4e2d\u56fd\u7684\u9996\u90fd"
    rows = [{"context": f"{context} NBA {n}", "question": f"{n}?", "answer": ("\u4e2d\u56fd", "NBA")[n % 2]} for n in range(20)]  # fmt: skip
    rows += [{"context": f"It is the capital {n}.", "question": "?", "answer": "the capital"} for n in range(20)]
    write_json_lines(tmp_path / "my.jsonl", rows)
    where = {"raw": tmp_path, "tokenizer": write_tokenizer(tmp_path / "t"), "output_dir": tmp_path / "data"}
    options = CustomOptions(kind="question-answering", train="my.jsonl", valid="my.jsonl")
    prepared = prepare(PrepareSettings(task="custom", max_length=64, options=options, **where))
    said = (
        "valid: 20 of 40 questions are in a script without spaces, or in Korean: exact and f1 compare their characters"
    )
    assert any(remark.startswith(said) for remark in remarks(prepared))
    split = prepared.split("valid")
    scores = [np.zeros(len(split.sequences[row]), dtype=np.float32) for row in range(len(split.sequences))]
    ends = [np.arange(len(each), dtype=np.float32) for each in scores]  # a long answer
    raw = RawOutputs(start_logits=scores, end_logits=ends, answerable_logits=np.full(len(scores), 9, np.float32))
    decisions = Decisions("valid", {"threshold": 1.0, "max_answer_length": 40})
    outcome = kind_of(prepared).judged(split, [raw], decisions)
    entries = list(outcome.entries())
    expected = [
        answer_score("squad2", entry["prediction"], entry["label"], by_characters=number < 20).f1
        for number, entry in enumerate(entries)
    ]
    assert outcome.measure(np.ones(40))["f1"] == pytest.approx(100 * np.mean(expected))
    by_words = [answer_score("squad2", entry["prediction"], entry["label"]).f1 for entry in entries]
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
