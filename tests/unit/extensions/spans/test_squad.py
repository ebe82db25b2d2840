"""SQuAD: official files, preparation in windows."""

import json
import logging
import re

import pytest

from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.extensions.spans.answers import NO_PLACE, SquadAnswer, locate
from roberta_plugin.extensions.spans.options import SquadOptions
from roberta_plugin.extensions.spans.questions import Questions
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.layouts.texts import Encoder
from roberta_plugin.finetuning.preparation import remarks
from tests.needed_extensions import needs
from tests.tiny_benchmarks import examples_of, words_tokenizer
from tests.tiny_squad import question, write_json, write_prepared
from tests.tiny_tokenizers import train_tokenizer

CONTEXT = "The cat sat. A cat ran."


def answer(text, start):
    return {"text": text, "answer_start": start}


def read(tmp_path, entries, *, task="squad2", **how):
    path = write_json(tmp_path / "train.json", [{"context": CONTEXT, "qas": entries}], task=task)
    return read_file(task, path, **how)


def read_file(task, path, *, split="train", strict=False):
    found, _ = benchmark_of(task).records({split: [path]}, SquadOptions(strict=strict), {})
    return list(found[split])


def files_of(task, raw, **named):
    return benchmark_of(task).files(raw, SquadOptions(**named))


def test_files_are_found_by_their_official_names_or_by_options(tmp_path):
    for name in ("train-v1.1.json", "dev-v1.1.json", "dev-v2.0.json", "COVID-QA.json", "held-out.json"):
        (tmp_path / name).write_text("{}")

    def names(task, **named):
        return {split: path.name for split, (path,) in files_of(task, tmp_path, **named).items()}

    assert names("squad1") == {"train": "train-v1.1.json", "valid": "dev-v1.1.json"}
    assert names("squad2") == {"valid": "dev-v2.0.json"}
    own = {"train": "COVID-QA.json", "valid": "held-out.json"}
    assert names("squad1", **own) == own
    with pytest.raises(FileNotFoundError, match=r"--test .*none\.json does not exist"):
        names("squad1", test="none.json")
    with pytest.raises(FileNotFoundError, match=r"looked for train-v2\.0\.json, dev-v2\.0\.json.*--train FILE\.json"):
        files_of("squad2", tmp_path / "none")


def test_questions_keep_their_order(tmp_path):
    first = {"context": CONTEXT, "qas": [question("squad2", "a", [answer("cat", 4), answer("The cat", 0)])]}
    second = {"context": "other", "qas": [question("squad2", "b", [])]}
    third = {"context": CONTEXT, "qas": [question("squad2", "c", [answer("ran", 19)], text="")]}
    found = read_file("squad2", write_json(tmp_path / "x.json", [first, second, third]))
    assert [(each.id, *each.texts, [answer[:2] for answer in each.target]) for each in found] == [
        ("a", CONTEXT, "What?", [("cat", 4), ("The cat", 0)]),
        ("b", "other", "What?", []),
        ("c", CONTEXT, "", [("ran", 19)]),
    ]


def test_a_misplaced_answer_is_looked_for_nearby_or_refused(tmp_path):
    texts = {"near": ("cat", 14), "nowhere": ("dog", 4), "negative": ("cat", -3)}
    entries = [question("squad2", name, [answer(*given)]) for name, given in texts.items()]
    found = [each.target[0] for each in read(tmp_path, entries)]
    assert found == [SquadAnswer("cat", 15, 14), SquadAnswer("dog", NO_PLACE, 4), SquadAnswer("cat", 4, -3)]
    for entry, message in (
        (entries[0], r"train\.json, question 'near': the answer 'cat' is not at .* 14, but at 15"),
        (entries[1], "'dog' is not at its answer_start 4, nor anywhere in the passage"),
    ):
        with pytest.raises(ValueError, match=message):
            read(tmp_path, [entry], strict=True)
    assert len(read(tmp_path, [question("squad2", "q", [answer("cat", 15)])], strict=True)) == 1
    assert [locate("abcabcabc", "abc", start) for start in (0, 1, 2, 3, 5, 6, 100, -7)] == [0, 0, 3, 3, 6, 6, 6, 0]
    assert locate("xx ab", "ab", 0) == 3
    assert locate("abc", "z", 1) == NO_PLACE


IMPOSSIBLE = question("squad2", "q", [])
BAD = {
    "no answers in 1.1": ("squad1", [question("squad1", "q", [])], r"question 'q': no answers\. Only .* SQuAD 2\.0"),
    "no answers in 2.0": ("squad2", [{**IMPOSSIBLE, "is_impossible": False}], "'q': no answers"),
    "impossible, with answers": (
        "squad2",
        [{**question("squad2", "q", [answer("cat", 4)]), "is_impossible": True}],
        "has 1 answers and is_impossible true",
    ),
    "2.0 read as 1.1": ("squad1", [IMPOSSIBLE], "use the task squad2"),
    "1.1 read as 2.0": ("squad2", [question("squad1", "q", [answer("cat", 4)])], "has no is_impossible.*task squad1"),
    "twice": ("squad2", [IMPOSSIBLE] * 2, "question 'q' is there twice"),
    "a number twice": ("squad1", [{**question("squad1", "q", [answer("cat", 4)]), "id": 262}] * 2, "'262' is there tw"),
    "no id": ("squad2", [{"question": "?"}], r"article 1, paragraph 1, question 1 lacks id"),
    "id is no text": ("squad2", [{"id": 7.5}], "id must be a text, found 7.5"),
    "no question": ("squad2", [{"id": "q"}], "question 'q' lacks question"),
    "answers lack": ("squad1", [question("squad1", "q", None)], "question 'q' lacks answers"),
    "answers is no list": ("squad2", [{**IMPOSSIBLE, "answers": "x"}], "answers must be a list"),
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON"),
        ("[]", "expected a JSON object with data"),
        ('{"x": 1}', "lacks data"),
        ('{"data": [{"paragraphs": []}]}', "holds no question"),
        ('{"data": [{"paragraphs": [{"context": "", "qas": []}]}]}', r"paragraph 1: context is empty\. Fill it in"),
        ('{"data": [{"paragraphs": [{"context": " \\n", "qas": []}]}]}', r"paragraph 1: context is empty\. Fill it"),
        (
            '{"data": [{"paragraphs": [{"context": "a \\ud800", "qas": []}]}]}',
            "context holds half of a surrogate pair at character 2",
        ),
    ],
)
def test_what_is_no_squad_file_is_refused(tmp_path, text, message):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_file("squad2", tmp_path / "x.json")


def test_a_test_file_needs_no_answers_and_whole_numbers_are_ids_too(tmp_path):
    assert read(tmp_path, [question("squad1", "q", None)], task="squad1", split="test")[0].target is None
    entry = {**question("squad1", "q", [answer("cat", 4)]), "id": 262}
    assert [found.id for found in read(tmp_path, [entry], task="squad1")] == ["262"]


def prepare_one(tmp_path, paragraphs, *, name="train-v2.0.json", **changes):
    write_json(tmp_path / "raw" / name, paragraphs)
    return write_prepared(tmp_path, raw=tmp_path / "raw", **changes)


@pytest.mark.parametrize("task", ["squad1", "squad2"])
def test_windows_are_inputs_and_targets_spell_the_answer(tmp_path, task):
    prepared = write_prepared(tmp_path, task=task)
    raw = examples_of(task, tmp_path / "raw")["valid"]
    encoder = Encoder(*words_tokenizer())
    split = prepared.split("valid")
    questions, columns = Questions(split), split.columns
    assert questions.ids == [entry.id for entry in raw]
    assert questions.is_labelled
    assert len(split) > len(raw), "no passage was cut: the test shows little"
    with_answer = set()
    for window in range(len(split)):
        number, passage, length = (int(columns[name][window]) for name in ("question", "passage", "passage_length"))
        ids, question_ids = map(encoder.ids, raw[number].texts)
        part = ids[columns["passage_token"][window] :][:length]
        expected = [0, *question_ids, 2, 2, *part, 2]
        assert split.sequences[window].tolist() == expected
        assert len(expected) <= 32 and passage == len(question_ids) + 3
        assert passage <= columns["best_start"][window] < columns["best_stop"][window] <= passage + length
        if columns["has_answer"][window]:
            with_answer.add(number)
            start, end = int(columns["start"][window]), int(columns["end"][window])
            assert passage <= start <= end < passage + length
            assert questions.text(window, start, end) == "good"
            assert questions.answers[columns["question"][window]]
        else:
            assert columns["start"][window] == columns["end"][window] == 0
    assert with_answer == {number for number, entry in enumerate(raw) if entry.target}
    assert with_answer


def test_an_answer_cut_by_the_edges_of_a_window_is_not_in_it(tmp_path):
    context = "x" * 22 + "goodgood" + "y" * 12
    prepared = prepare_one(tmp_path, [{"context": context, "qas": [question("squad2", "q", [answer("goodgood", 22)])]}])
    split = prepared.split("train")
    first, has = split.columns["passage_token"], split.columns["has_answer"]
    last = first + split.columns["passage_length"] - 1
    # tokens 22 and 23 are "good" each
    assert has.tolist() == ((first <= 22) & (last >= 23)).astype(int).tolist()
    assert 22 in last and 0 < has.sum() < len(has)


def test_a_target_is_what_tokens_can_spell(tmp_path, caplog):
    """Of several right answers, one that begins and ends with tokens is learned; others are listed."""
    context = "xx goods good"
    entries = [
        question("squad2", "first", [answer("ood", 4), answer("good", 9)]),
        question("squad2", "only", [answer("ood", 4)]),
    ]
    with caplog.at_level(logging.WARNING):
        prepared = prepare_one(tmp_path, [{"context": context, "qas": entries}])
    split = prepared.split("train")
    questions = Questions(split)
    spans = zip(split.columns["start"].tolist(), split.columns["end"].tolist(), strict=True)
    assert [questions.text(window, *span) for window, span in enumerate(spans)] == ["good", "good"]
    assert questions.characters(1, *[int(split.columns[name][1]) for name in ("start", "end")]) == (3, 7)
    listed = [json.loads(line) for line in (prepared.folder / "train.doubtful.jsonl").read_text().splitlines()]
    shown = [(entry["id"], entry["answer"], entry["tokens"]) for entry in listed]
    assert shown == [("first", "ood", "good"), ("only", "ood", "good")]
    assert "2 that start or end within a token" in caplog.text


def test_answers_that_are_nowhere_leave_training_and_stay_in_validation(tmp_path, caplog):
    paragraph = {
        "context": "xx good yy",
        "qas": [question("squad2", "lost", [answer("dog", 2)]), question("squad2", "kept", [answer("good", 3)])],
    }
    write_json(tmp_path / "raw" / "dev-v2.0.json", [paragraph])
    with caplog.at_level(logging.WARNING):
        prepared = prepare_one(tmp_path, [paragraph])
    train, valid = (Questions(prepared.split(name)) for name in ("train", "valid"))
    assert train.ids == ["kept"] and train.split.columns["question"].tolist() == [0]
    assert valid.ids == ["lost", "kept"]
    assert valid.answers == [["dog"], ["good"]]
    assert valid.split.columns["has_answer"].tolist() == [0, 1]
    assert "1 that are nowhere in it" in caplog.text
    for name in ("train", "valid"):
        listed = json.loads((prepared.folder / f"{name}.doubtful.jsonl").read_text())
        assert listed == {"id": "lost", "answer": "dog", "answer_start": 2, "found_at": -1}
    with pytest.raises(ValueError, match=r"question 'lost'.*nor anywhere in the passage"):
        write_prepared(tmp_path / "strict", raw=tmp_path / "raw", options=SquadOptions(strict=True, question_length=8))
    assert not (tmp_path / "strict" / "prepared").exists()


def test_line_ends_are_spaces_to_the_model_and_stay_in_answers(tmp_path):
    context = "xx\ngood\r\nbad\nyy"
    entry = question("squad2", "q", [answer("good\r\nbad", 3)], text=" What\nnow? ")
    prepared = prepare_one(tmp_path, [{"context": context, "qas": [entry]}])
    split = prepared.split("train")
    encoder = Encoder(*words_tokenizer())
    expected = [0, *encoder.ids("What now?")[:8], 2, 2, *encoder.ids("xx good  bad yy"), 2]
    assert split.sequences[0].tolist() == expected
    span = int(split.columns["start"][0]), int(split.columns["end"][0])
    assert Questions(split).text(0, *span) == "good\r\nbad"


def test_long_questions_are_cut_and_passages_are_stored_once(tmp_path):
    entries = [question("squad2", str(number), [], text="x" * 10 * number) for number in range(4)]
    prepared = prepare_one(tmp_path, [{"context": "xx good", "qas": [entry]} for entry in entries])
    split = prepared.split("train")
    assert split.columns["passage"].tolist() == [0 + 3, *[8 + 3] * 3]
    assert remarks(prepared) == ["train: 3 of 4 questions are longer than 8 tokens and were cut (longest 30)"]
    assert len(split.array("char_starts")) == len(split.array("char_ends")) == 3
    assert split.array("first_token").tolist() == [0, 3]
    assert sum("text" in record and "id" not in record for record in split.records()) == 1


@needs("character_bpe")
def test_a_passage_that_the_tokenizer_changes_is_named(tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 20)
    how = {"vocab_size": 40, "folder": tmp_path, "max_characters": 20}
    tokenizer = train_tokenizer("character_bpe", [tmp_path / "text.txt"], **how)
    tools = {"tokenizer": tokenizer, "vocabulary": Vocabulary.load(tmp_path / "dict.txt")}
    for context, message in (
        ("the DOTMULTI .. cat", "begins with 'the DOTMULTI .. cat': The tokenizer's rules for words change the text"),
        ("\x01\x02", "it has no tokens. Remove it"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)) as raised:
            prepare_one(tmp_path, [{"context": context, "qas": [question("squad2", "q", [])]}], **tools)
        assert str(tmp_path / "raw" / "train-v2.0.json") in str(raised.value)


@pytest.mark.parametrize("answer_text", ["good ", " good", "  good ", "good"])
def test_white_space_around_an_answer_does_not_lengthen_its_target(tmp_path, answer_text):
    """The token of the next word begins with the space that ends the answer."""
    context = "xx bad  good bad yy"
    start = context.index("good") - (len(answer_text) - len(answer_text.lstrip()))
    assert context.startswith(answer_text, start)
    entry = question("squad2", "q", [answer(answer_text, start)])
    prepared = prepare_one(tmp_path, [{"context": context, "qas": [entry]}], max_length=64)
    split = prepared.split("train")
    questions, columns = Questions(split), split.columns
    assert columns["has_answer"].tolist() == [1]
    assert questions.text(0, int(columns["start"][0]), int(columns["end"][0])) == "good"
    assert columns["start"][0] == columns["end"][0], "good is one token"
    assert not list(prepared.folder.glob("*.doubtful.jsonl"))


def test_answers_that_fit_no_window_are_counted(tmp_path, caplog):
    words = " ".join(["xyz"] * 20)
    entries = [question("squad2", "long", [answer(words, 0)]), question("squad2", "short", [answer("xyz", 0)])]
    with caplog.at_level(logging.WARNING):
        prepare_one(tmp_path, [{"context": f"{words} good", "qas": entries}])
        dev = tmp_path / "both"
        write_json(dev / "raw" / "train-v2.0.json", [{"context": f"{words} good", "qas": entries[1:]}])
        write_json(dev / "raw" / "dev-v2.0.json", [{"context": f"{words} good", "qas": entries}])
        write_prepared(dev, raw=dev / "raw")
    train, valid = (record.message for record in caplog.records if "fit into no window" in record.message)
    assert train.startswith("train: the answers to 1 of 2 questions fit into no window, so that their windows are ")
    assert valid.startswith("valid: the answers to 1 of 2 questions fit into no window, so that no model can find them")
