"""RACE: official files, preparation, metrics."""

import json
import shutil

import numpy as np
import pytest

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.extensions.choices.kind import NO_ANSWER, question_with_option
from roberta_plugin.extensions.choices.options import RaceOptions
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.preparation import remarks
from roberta_plugin.finetuning.prepared import Prepared
from tests import tiny_benchmarks
from tests.real_data import unpack
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
    names = [f"{level}{number}.txt" for first, level in enumerate(("middle", "high")) for number in range(first, 24, 2)]
    assert list(dict.fromkeys(each.id for each in questions)) == names
    assert [each.columns["level"] for each in questions] == [0] * 24 + [1] * 24
    raw = json.loads((tmp_path / "train" / "high" / "3.txt").read_text())
    found = [each for each in questions if each.id == "high3.txt"]
    assert [each.texts for each in found] == [(raw["article"], question) for question in raw["questions"]]
    assert [list(each.choices) for each in found] == raw["options"]
    assert ["ABCD"[each.target] for each in found] == raw["answers"]
    assert {each.target for each in questions} == {0, 1, 2, 3}


def test_lines_may_have_any_number_of_options_an_empty_question_and_in_a_test_no_answer(tmp_path):
    """Line separators inside texts do not end a line."""
    two = {"id": "2", "context": "a\u2028b\x85c", "question": "", "options": ["a", "b"]}
    lines = [json.dumps(line, ensure_ascii=False) for line in (LINE, {**two, "answer": 0}, two)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines[:2]) + "\n\n")
    first, second = read("multiple_choice", tmp_path)
    assert (first.choices, first.target) == (("sun", "snow", "fog"), 2)
    assert (second.texts, len(second.choices)) == (("a\u2028b\x85c", ""), 2)
    for split in ("train", "test"):
        (tmp_path / f"{split}.jsonl").write_text(lines[2])
    assert read("multiple_choice", tmp_path, "test")[0].target == NO_ANSWER
    with pytest.raises(ValueError, match=r"train\.jsonl, line 1, id '2' lacks answer"):
        read("multiple_choice", tmp_path)


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


def prepared_of(task, raw, output, **options):
    return tiny_benchmarks.prepared_of(task, raw, output, **{"max_length": 120, "question_length": 60, **options})


def texts_of(prepared, sequence):
    """The two texts of a model input."""
    ids = prepared.vocabulary.model_to_tokenizer(prepared.tokenizer)[sequence]
    ends = np.flatnonzero(ids < 0).tolist()
    assert (len(ends), ends[0], ends[-1]) == (4, 0, len(ids) - 1)
    return [prepared.tokenizer.decode(ids[a + 1 : b]) for a, b in ((ends[0], ends[1]), (ends[2], ends[3]))]


@pytest.mark.parametrize("order", ["passage", "question"])
def test_every_question_is_there_with_its_options_in_order(tmp_path, order):
    raw = write_race(tmp_path / "raw", train=20, dev=6)
    prepared = prepared_of("race", raw, tmp_path / "set", max_length=512, order=order)
    assert prepared.task == "race"
    assert prepared.settings == {"max_length": 512, "question_length": 60, "order": order}
    assert set(prepared.splits) == {"train", "valid"}
    for split, questions in examples_of("race", raw).items():
        opened, records = prepared.split(split), list(prepared.split(split).records())
        assert len(questions) == len(opened) == {"train": 40, "valid": 12}[split]
        for example, question in enumerate(questions):
            assert opened.columns["label"][example] == question.target
            assert opened.columns["level"][example] == question.columns["level"]
            assert records[example] == {"id": question.id, **question.record, "options": list(question.choices)}
            rows = range(*opened.offsets[example : example + 2])
            passage, asked = question.texts
            expected = [[passage, question_with_option(asked, option)] for option in question.choices]
            if order == "question":
                expected = [pair[::-1] for pair in expected]
            assert [texts_of(prepared, opened.sequences[row]) for row in rows] == expected


def test_long_inputs_are_cut_and_said_so_and_a_split_without_questions_is_refused(tmp_path, caplog):
    passage = {"article": "a " * 300, "questions": ["b"], "options": [["c" * 90, "d"]], "answers": ["A"], "id": "1"}
    bare = {"article": "e", "questions": [], "options": [], "answers": [], "id": "2"}
    write_passage(tmp_path / "raw/train/high/2.txt", bare)
    with pytest.raises(ValueError, match="The split train holds no question"):
        prepared_of("race", tmp_path / "raw", tmp_path / "set")
    assert not (tmp_path / "set").exists()
    write_passage(tmp_path / "raw/train/high/1.txt", passage)
    caplog.clear()
    prepared = prepared_of("race", tmp_path / "raw", tmp_path / "set")
    opened = prepared.split("train")
    assert opened.sequences.sizes.tolist() == [120, 120]
    assert [len(texts_of(prepared, opened.sequences[row])[1]) for row in (0, 1)] == [60, 3]
    of_question, of_passage = remarks(prepared)
    assert of_question.startswith("train: 1 of 2 questions with an option are longer than 60 tokens and were cut (long")
    assert of_passage.startswith(
        "train: 2 of 2 passages with question and option are longer than 120 tokens and were c"
    )
    assert "1 passages have no question and were left out" in caplog.text


@pytest.fixture(scope="module")
def real_race(shared_data, tmp_path_factory):
    folder = unpack(shared_data, "race", tmp_path_factory.mktemp("race"))
    yield next(path.parent for path in folder.rglob("train") if path.is_dir())
    shutil.rmtree(folder)


@pytest.mark.slow  # 87,866 questions; the official counts, and the form of the files is that of the tests above
def test_real_race_is_read_and_its_dev_split_prepared_within_the_limits(real_race, shared_data, tmp_path):
    counts = {}
    for split, examples in examples_of("race", real_race).items():
        questions = [(each.id, each.columns["level"]) for each in examples]
        counts[split] = [
            (len({question for question in questions if question[1] == level}), sum(o == level for _, o in questions))
            for level in (0, 1)
        ]
    assert counts == {"train": [(6409, 25421), (18726, 62445)], "valid": [(368, 1436), (1021, 3451)]}

    shutil.rmtree(real_race / "train")
    bpe = shared_data / "gpt2_bpe"
    tokenizer, vocabulary = load_tokenizer(bpe), Vocabulary.load(bpe / "dict.txt")
    how = {"tokenizer": tokenizer, "vocabulary": vocabulary, "max_length": 512, "options": RaceOptions()}
    benchmark_of("race").prepare(real_race, tmp_path / "set", **how)
    valid = Prepared.open(tmp_path / "set").split("valid")
    assert len(valid) == 4887
    assert np.diff(valid.offsets).tolist() == [4] * 4887
    assert np.bincount(valid.columns["label"]).tolist() == [1067, 1291, 1303, 1226]
    assert np.bincount(valid.columns["level"]).tolist() == [1436, 3451]
    sequences = valid.sequences
    assert sequences.sizes.max() == 512
    assert (sequences.sizes == 512).sum() > 1000
    ends = sequences.starts + sequences.sizes - 1
    assert (sequences.tokens[ends] == vocabulary.eos_id).all()
    assert (sequences.tokens[sequences.starts] == vocabulary.bos_id).all()
    assert (sequences.tokens == vocabulary.eos_id).sum() == 3 * len(sequences)
    assert not (sequences.tokens == vocabulary.unk_id).any()


def test_scores_become_accuracies_and_a_file_of_predictions(tmp_path):
    race = prepared_of("race", write_race(tmp_path / "raw", train=101, dev=10), tmp_path / "set")
    split = race.split("valid")
    given = np.array(split.columns["label"])
    given[3] = (given[3] + 1) % 4
    assert split.columns["level"][3] == 0, "of the middle schools"
    scores = np.zeros((len(split.sequences), 1), dtype=np.float32)
    scores[split.offsets[:-1] + given] = 2.0
    outputs = [RawOutputs(logits=scores)]
    found = benchmark_of("race").score(race, "valid", outputs, folder=tmp_path, options=RaceOptions())
    assert found == {"accuracy": 95.0, "accuracy_middle": 90.0, "accuracy_high": 100.0}
    lines = [json.loads(line) for line in (tmp_path / "valid.predictions.jsonl").read_text().splitlines()]
    assert [line["answer"] for line in lines] == ["ABCD"[answer] for answer in given]
    assert [(line["id"], line["question"]) for line in lines] == [(r["id"], r["question"]) for r in split.records()]
    assert max(lines[3]["probabilities"]) == pytest.approx(np.exp(2) / (np.exp(2) + 3), abs=1e-6)
