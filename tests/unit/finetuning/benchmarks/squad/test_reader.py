import json

import pytest

from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.kinds.questions import NO_PLACE, SquadAnswer, locate
from roberta_plugin.finetuning.options import SquadOptions
from tests.tiny_squad import question, write_json

CONTEXT = "The cat sat. A cat ran."


def answer(text, start):
    return {"text": text, "answer_start": start}


def write(tmp_path, entries, *, task="squad2", context=CONTEXT):
    return write_json(tmp_path / "train.json", [{"context": context, "qas": entries}], task=task)


def read(tmp_path, entries, *, task="squad2", strict=False, split="train", **more):
    return read_file(task, write(tmp_path, entries, task=task, **more), split=split, strict=strict)


def read_file(task, path, *, split="train", strict=False):
    found, _ = benchmark_of(task).records({split: [path]}, SquadOptions(strict=strict), {})
    return list(found[split])


def files_of(task, raw, **named):
    return benchmark_of(task).files(raw, SquadOptions(**named))


def test_files_are_found_by_their_official_names(tmp_path):
    for name in ("train-v1.1.json", "dev-v1.1.json", "dev-v2.0.json"):
        (tmp_path / name).write_text("{}")
    assert files_of("squad1", tmp_path) == {
        "train": [tmp_path / "train-v1.1.json"],
        "valid": [tmp_path / "dev-v1.1.json"],
    }
    assert list(files_of("squad2", tmp_path)) == ["valid"]
    with pytest.raises(FileNotFoundError, match=r"looked for train-v2\.0\.json, dev-v2\.0\.json"):
        files_of("squad2", tmp_path / "none")


def test_questions_keep_their_order(tmp_path):
    first = {"context": CONTEXT, "qas": [question("squad2", "a", [answer("cat", 4), answer("The cat", 0)])]}
    second = {"context": "other", "qas": [question("squad2", "b", [])]}
    third = {"context": CONTEXT, "qas": [question("squad2", "c", [answer("ran", 19)], text="")]}
    found = read_file("squad2", write_json(tmp_path / "x.json", [first, second, third]))
    assert [(each.id, *each.texts) for each in found] == [
        ("a", CONTEXT, "What?"),
        ("b", "other", "What?"),
        ("c", CONTEXT, ""),
    ]
    assert [[answer[:2] for answer in each.target] for each in found] == [
        [("cat", 4), ("The cat", 0)],
        [],
        [("ran", 19)],
    ]


def test_a_misplaced_answer_is_looked_for_nearby(tmp_path):
    entries = [
        question("squad2", "near", [answer("cat", 14)]),
        question("squad2", "nowhere", [answer("dog", 4)]),
        question("squad2", "negative", [answer("cat", -3)]),
    ]
    found = [each.target[0] for each in read(tmp_path, entries)]
    assert found == [SquadAnswer("cat", 15, 14), SquadAnswer("dog", NO_PLACE, 4), SquadAnswer("cat", 4, -3)]


def test_strict_refuses_misplaced_answers(tmp_path):
    with pytest.raises(ValueError, match=r"train\.json, question 'q': the answer 'cat' is not at .* 14, but at 15"):
        read(tmp_path, [question("squad2", "q", [answer("cat", 14)])], strict=True)
    with pytest.raises(ValueError, match="'dog' is not at its answer_start 4, nor anywhere in the passage"):
        read(tmp_path, [question("squad2", "q", [answer("dog", 4)])], strict=True)
    assert len(read(tmp_path, [question("squad2", "q", [answer("cat", 15)])], strict=True)) == 1


def test_the_nearest_place_wins():
    assert [locate("abcabcabc", "abc", start) for start in (0, 1, 2, 3, 5, 6, 100, -7)] == [0, 0, 3, 3, 6, 6, 6, 0]
    assert locate("xx ab", "ab", 0) == 3
    assert locate("abc", "z", 1) == NO_PLACE


def test_a_test_file_needs_no_answers(tmp_path):
    entries = [question("squad1", "q", None)]
    assert read(tmp_path, entries, task="squad1", split="test")[0].target is None
    with pytest.raises(ValueError, match="question 'q' lacks answers"):
        read(tmp_path, entries, task="squad1")


BAD = {
    "no answers in 1.1": ("squad1", [question("squad1", "q", [])], r"question 'q': no answers\. Only .* SQuAD 2\.0"),
    "no answers in 2.0": ("squad2", [{**question("squad2", "q", []), "is_impossible": False}], "'q': no answers"),
    "impossible, with answers": (
        "squad2",
        [{**question("squad2", "q", [answer("cat", 4)]), "is_impossible": True}],
        "has 1 answers and is_impossible true",
    ),
    "2.0 read as 1.1": ("squad1", [question("squad2", "q", [])], "use the task squad2"),
    "1.1 read as 2.0": ("squad2", [question("squad1", "q", [answer("cat", 4)])], "lacks is_impossible.*task squad1"),
    "twice": ("squad2", [question("squad2", "q", []), question("squad2", "q", [])], "question 'q' is there twice"),
    "no id": ("squad2", [{"question": "?"}], r"article 1, paragraph 1, question 1 lacks id"),
    "id is no text": ("squad2", [{"id": 7.5}], "id must be a text, found 7.5"),
    "no question": ("squad2", [{"id": "q"}], "question 'q' lacks question"),
    "answers is no list": ("squad2", [{**question("squad2", "q", []), "answers": "x"}], "answers must be a list"),
    "no start": ("squad1", [question("squad1", "q", [{"text": "cat"}])], "answer_start must be .* got None"),
    "start is no number": ("squad1", [question("squad1", "q", [answer("cat", "4")])], "answer_start must be .* '4'"),
    "empty answer": ("squad1", [question("squad1", "q", [answer(" ", 4)])], "text is empty"),
    "answer is no object": ("squad1", [question("squad1", "q", ["cat"])], "expected a JSON object with text"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named(tmp_path, case):
    task, entries, message = BAD[case]
    with pytest.raises(ValueError, match=message) as raised:
        read(tmp_path, entries, task=task)
    assert str(tmp_path / "train.json") in str(raised.value)


@pytest.mark.parametrize("context", ["", " \n"])
def test_an_empty_passage_is_refused(tmp_path, context):
    with pytest.raises(ValueError, match=r"paragraph 1: context is empty\. Fill it in"):
        read(tmp_path, [question("squad2", "q", [])], context=context)


def test_half_a_character_is_refused(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "a \ud800", "qas": []}]}]}))
    with pytest.raises(ValueError, match="context holds half of a surrogate pair at character 2"):
        read_file("squad2", path)


def test_what_is_no_squad_file_is_refused(tmp_path):
    path = tmp_path / "x.json"
    for text, message in (
        ("{", "is not valid JSON"),
        ("[]", "expected a JSON object with data"),
        ('{"x": 1}', "lacks data"),
        ('{"data": [{"paragraphs": []}]}', "holds no question"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_file("squad2", path)


def test_whole_numbers_are_ids_too(tmp_path):
    entry = {**question("squad1", "q", [answer("cat", 4)]), "id": 262}
    path = write_json(tmp_path / "COVID-QA.json", [{"context": "the cat", "qas": [entry]}], task="squad1")
    assert [found.id for found in read_file("squad1", path)] == ["262"]
    again = write_json(tmp_path / "twice.json", [{"context": "the cat", "qas": [entry, entry]}], task="squad1")
    with pytest.raises(ValueError, match="question '262' is there twice"):
        read_file("squad1", again)


def test_files_of_other_names_are_named_by_options(tmp_path):
    for name in ("COVID-QA.json", "held-out.json"):
        write_json(tmp_path / name, [])
    with pytest.raises(FileNotFoundError, match=r"looked for train-v1\.1\.json.*--train FILE\.json"):
        files_of("squad1", tmp_path)
    options = {"train": "COVID-QA.json", "valid": "held-out.json"}
    found = files_of("squad1", tmp_path, **options)
    assert {split: path.name for split, (path,) in found.items()} == {
        "train": "COVID-QA.json",
        "valid": "held-out.json",
    }
    with pytest.raises(FileNotFoundError, match=r"--test .*none\.json does not exist"):
        files_of("squad1", tmp_path, test="none.json")
