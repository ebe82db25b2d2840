"""Both raw forms are read in full, and whatever is wrong in them is named with its file, its id and what to do."""

import json
import re

import numpy as np
import pytest

from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.kinds.multiple_choice import NO_ANSWER
from tests.tiny_benchmarks import examples_of
from tests.tiny_race import passage, write_lines, write_passage, write_race

LINE = {"id": "1", "context": "It rained .", "question": "Then", "options": ["sun", "snow", "fog"], "answer": 2}


def race_content(**changes):
    return {**passage("middle1.txt", 2, np.random.default_rng(0)), **changes}


def read(task, raw, split="train"):
    return examples_of(task, raw, split)[split]


def test_race_is_read_with_its_levels_in_the_order_of_the_numbers(tmp_path):
    write_race(tmp_path, train=24, dev=4)
    found = examples_of("race", tmp_path)
    assert found.keys() == {"train", "valid"}
    questions = found["train"]
    middle = [f"middle{number}.txt" for number in range(0, 24, 2)]
    names = [*middle, *(name.replace("middle", "high") for name in _odd(middle))]
    assert list(dict.fromkeys(each.id for each in questions)) == names
    assert [each.columns["level"] for each in questions] == [0] * 24 + [1] * 24
    raw = json.loads((tmp_path / "train" / "high" / "3.txt").read_text())
    found = [each for each in questions if each.id == "high3.txt"]
    assert {each.texts[0] for each in found} == {raw["article"]}
    assert [each.texts[1] for each in found] == raw["questions"]
    assert [list(each.choices) for each in found] == raw["options"]
    assert ["ABCD"[each.target] for each in found] == raw["answers"]
    assert {each.target for each in questions} == {0, 1, 2, 3}


def _odd(names):
    return [re.sub(r"\d+", lambda match: str(int(match.group()) + 1), name) for name in names]


def test_lines_may_have_any_number_of_options_and_an_empty_question(tmp_path):
    two = {**LINE, "id": "2", "question": "", "options": ["a", "b"], "answer": 0}
    write_lines(tmp_path / "train.jsonl", [LINE, two])
    first, second = read("multiple_choice", tmp_path)
    assert (first.choices, first.target) == (("sun", "snow", "fog"), 2)
    assert second.texts[1] == ""
    assert len(second.choices) == 2


def test_the_test_split_of_lines_alone_may_lack_answers(tmp_path):
    bare = {key: value for key, value in LINE.items() if key != "answer"}
    for split in ("train", "test"):
        write_lines(tmp_path / f"{split}.jsonl", [bare])
    assert read("multiple_choice", tmp_path, "test")[0].target == NO_ANSWER
    with pytest.raises(ValueError, match=r"train\.jsonl, line 1, id '1' lacks answer"):
        read("multiple_choice", tmp_path)


def test_line_separators_inside_texts_do_not_end_a_line(tmp_path):
    (tmp_path / "train.jsonl").write_text(json.dumps({**LINE, "context": "a\u2028b\x85c"}, ensure_ascii=False) + "\n\n")
    assert read("multiple_choice", tmp_path)[0].texts[0] == "a\u2028b\x85c"


BAD_FILES = {
    "missing key": ({"article": None}, r"1\.txt, id 'middle1.txt': article must be a text, found None"),
    "empty passage": ({"article": " \n"}, r"1\.txt, id 'middle1.txt': article is empty. Fill it in"),
    "one option": ({"options": [["x"], ["a", "b"]]}, r"id 'middle1.txt', question 1: only one option"),
    "no options": ({"options": [["a", "b", "c", "d"], []]}, r"id 'middle1.txt', question 2: no options"),
    "empty option": ({"options": [["a", "b", " ", "d"]] * 2}, r"question 1: option 3 is empty"),
    "answer outside": ({"answers": ["E", "A"]}, r"question 1: the answer 'E' is none of A, B, C, D"),
    "answer a number": ({"answers": [0, 1]}, r"question 1: the answer 0 is none of A, B, C, D"),
    "few answers": ({"answers": ["A"]}, r"2 questions, 2 lists of options and 1 answers. Every question needs"),
    "many questions": ({"questions": ["a", "b", "c"]}, r"3 questions, 2 lists of options and 2 answers"),
    "options as text": ({"options": ["abcd", "abcd"]}, r"question 1: options must be a list, found 'abcd'"),
    "id a number": ({"id": 7}, r"id 7: id must be a text, found 7"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_named_with_what_is_wrong(tmp_path, name):
    changes, message = BAD_FILES[name]
    write_passage(tmp_path / "train/middle/1.txt", race_content(**changes))
    with pytest.raises(ValueError, match=message) as error:
        read("race", tmp_path)
    assert str(tmp_path / "train/middle/1.txt") in str(error.value)


def test_keys_that_are_missing_are_listed(tmp_path):
    content = race_content()
    del content["options"], content["answers"]
    path = write_passage(tmp_path / "train/middle/1.txt", content)
    with pytest.raises(ValueError, match=r"1\.txt, id 'middle1.txt' lacks options, answers: an entry needs article"):
        read("race", tmp_path)
    write_passage(path, ["no object"])
    with pytest.raises(ValueError, match=r"expected a JSON object with article, .* found \['no object'\]"):
        read("race", tmp_path)


BAD_LINES = {
    "no context": ({"context": ""}, "context is empty"),
    "answer too large": ({"answer": 3}, "the answer 3 is none of the options 0 to 2"),
    "answer negative": ({"answer": -1}, "the answer -1 is none of the options 0 to 2"),
    "answer a letter": ({"answer": "A"}, "the answer 'A' is none of the options 0 to 2"),
    "answer a truth value": ({"answer": True}, "the answer True is none of the options"),
    "one option": ({"options": ["a"], "answer": 0}, "only one option, so there is nothing to choose"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_bad_lines_are_named_with_what_is_wrong(tmp_path, name):
    changes, message = BAD_LINES[name]
    write_lines(tmp_path / "valid.jsonl", [LINE, {**LINE, "id": "x", **changes}])
    with pytest.raises(ValueError, match=rf"valid\.jsonl, line 2, id 'x': {message}"):
        read("multiple_choice", tmp_path, "valid")


def test_ids_that_occur_twice_are_named_with_both_places(tmp_path):
    write_lines(tmp_path / "train.jsonl", [LINE, {**LINE, "id": "2"}, LINE])
    with pytest.raises(ValueError, match=r"train\.jsonl, line 3, id '1': .*train\.jsonl, line 1, id '1' already"):
        read("multiple_choice", tmp_path)
    for level in ("middle", "high"):
        write_passage(tmp_path / f"train/{level}/1.txt", race_content())
    with pytest.raises(ValueError, match=r"high/1\.txt, id 'middle1.txt': .*middle/1\.txt, id 'middle1.txt' already"):
        read("race", tmp_path)


def test_a_folder_without_data_says_what_was_looked_for(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"looked for train, dev or test with middle/\*\.txt and high/\*\.txt"):
        benchmark_of("race").files(tmp_path, None)
    with pytest.raises(FileNotFoundError, match=r"looked for train\.jsonl or valid\.jsonl or test\.jsonl"):
        benchmark_of("multiple_choice").files(tmp_path, None)
