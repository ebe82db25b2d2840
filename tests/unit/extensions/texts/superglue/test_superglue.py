"""SuperGLUE from official files to records, scores, official prediction files and grids."""

import json
import re
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import f1_score

from roberta_plugin.cli import main
from roberta_plugin.extensions.choices.sentences import SLOT, read_commonsense_qa, read_copa, read_record
from roberta_plugin.extensions.pronouns.options import WinoGrandeOptions
from roberta_plugin.extensions.pronouns.schemas import read_winogrande, read_wsc, training_rows
from roberta_plugin.finetuning.benchmarks import benchmark_of, options_for
from roberta_plugin.finetuning.benchmarks.base import read_rows
from roberta_plugin.finetuning.benchmarks.submission import find_leaderboard, write_submission
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.tables import Row
from tests import tiny_benchmarks
from tests.real_data import unpack
from tests.tiny_superglue import TASKS, write_lines, write_task
from tests.unit.extensions.texts.glue.test_prepare import texts

LEADERBOARD = find_leaderboard("superglue")

COPA = {
    "premise": "I ran. ",
    "choice1": "It rained.",
    "choice2": "I was wet.",
    "question": "cause",
    "label": 0,
    "idx": 0,
}


TEXT = "Ann met Bob in Rome\n@highlight\nBob (Robert) won!\n@highlight\nAnn lost"
QA = {"stem": "Who?", "choices": [{"label": "A", "text": "Ann"}, {"label": "B", "text": "Bob"}]}


def record(*answers):
    spans = [{"start": TEXT.index(name), "end": TEXT.index(name) + len(name) - 1} for name in ("Ann", "Bob", "Robert")]
    given = [{"start": 0, "end": 2, "text": answer} for answer in answers]
    qas = [{"query": "@placeholder won", "answers": given, "idx": 9}]
    return {"passage": {"text": TEXT, "entities": [*spans, spans[0]]}, "qas": qas, "idx": 1}


def seconds(example):
    return [example.texts[1].replace(SLOT, option) for option in example.choices]


def rows(read, content, *, split="valid"):
    return list(read(Row(Path("train.jsonl"), 2, content), split))


def test_copa_asks_for_the_cause_or_the_result():
    (row,) = rows(read_copa, COPA)
    assert (row.texts[0], row.target, row.choices) == ("I ran.", 0, ("It rained.", "I was wet."))
    assert seconds(row) == ["What was the CAUSE of this? It rained.", "What was the CAUSE of this? I was wet."]
    (row,) = rows(read_copa, {**COPA, "question": "effect"}, split="test")
    assert seconds(row)[1] == "What happened as a RESULT? I was wet." and row.target == -1


def test_several_right_entities_of_record_are_rows_of_their_own_in_training_alone():
    (row,) = rows(read_record, record("Robert", "Bob"))
    assert row.texts[0] == "Ann met Bob in Rome. Bob (Robert) won! Ann lost"
    assert (row.id, row.choices, row.target) == (9, ("Ann", "Bob", "Robert"), 1)
    assert set(row.record["right"]) == {"Bob", "Robert"}
    first, second = rows(read_record, record("Robert", "Bob"), split="train")
    assert (seconds(first), first.target) == (["Bob won", "Ann won"], 0)
    assert (seconds(second), second.target) == (["Robert won", "Ann won"], 0)
    assert str(first.id) != str(second.id)


def test_a_bad_query_of_record_is_named():
    for place, change, message in (
        (lambda content: content["qas"][0], {"query": "nobody won"}, "line 2, qas 1: the query has no @placeholder"),
        (lambda content: content["qas"][0]["answers"][0], {"text": "Eve"}, "line 2, qas 1: none of the answers 'Eve'"),
        (lambda content: content["passage"]["entities"][0], {"end": 900}, "entities 1: start 0 and end 900"),
    ):
        content = record("Bob")
        place(content).update(change)
        with pytest.raises(ValueError, match=message):
            rows(read_record, content)


def test_answers_of_commonsense_qa_are_named_by_letters():
    (row,) = rows(read_commonsense_qa, {"id": "x", "question": QA, "answerKey": "B"})
    assert (row.texts[0], seconds(row), row.target) == ("Q: Who?", ["A: Ann", "A: Bob"], 1)
    with pytest.raises(ValueError, match=r"line 2: answerKey is 'C', and must be one of \"A\", \"B\""):
        rows(read_commonsense_qa, {"id": "x", "question": QA, "answerKey": "C"})
    for choices in (QA["choices"][:1], QA["choices"][:1] * 2):
        with pytest.raises(ValueError, match="line 2, question: choices must be two or more with different labels"):
            rows(read_commonsense_qa, {"id": "x", "question": {**QA, "choices": choices}, "answerKey": "A"})


def test_records_for_predictions_have_the_official_fields():
    copa, commonsense_qa, of_record = (benchmark_of(name).rules.choices for name in ("COPA", "CommonsenseQA", "ReCoRD"))
    effect = {"premise": "a", "choice1": "b", "choice2": "c", "question": "effect"}
    assert copa(effect).choices == ("b", "c")
    assert seconds(commonsense_qa({"question": QA})) == ["A: Ann", "A: Bob"]
    asked = {"passage": TEXT, "query": "@placeholder won", "entities": ["Ann", "Bob"]}
    assert seconds(of_record(asked)) == ["Ann won", "Bob won"]
    with pytest.raises(ValueError, match="the record: there is no column 'premise'"):
        copa({name: value for name, value in effect.items() if name != "premise"})
    with pytest.raises(ValueError, match="the record: query needs @placeholder, and entities two texts"):
        of_record({**asked, "entities": ["Ann"]})
    assert benchmark_of("MultiRC").rules.texts({"paragraph": "a", "question": "b", "answer": "c"}) == ("a", "b c")
    assert benchmark_of("WiC").rules.texts(WIC) == ("Room and * board *.", "* Board * the bus!")


WIC = {"sentence1": "Room and board.", "start1": 9, "end1": 14, "sentence2": "Board the bus!", "start2": 0, "end2": 5}
ANSWERS = [{"text": "Yes. ", "idx": 7, "label": 1}, {"text": "", "idx": 8, "label": 0}]


@pytest.fixture
def rows_of_texts(tmp_path):
    """The examples of a file with one row."""

    def read(task, content, *, split="train"):
        path = write_lines(tmp_path / f"{split}.jsonl", [content])
        return benchmark_of(task).records({split: [path]}, WinoGrandeOptions(), {})[0][split]

    return read


def of_paragraph(*answers):
    asked = {"question": "Is it?", "idx": 3, "answers": answers}
    return {"idx": 2, "passage": {"text": "It is. ", "questions": [asked]}}


def test_a_question_of_boolq_is_followed_by_its_passage(rows_of_texts):
    content = {"question": "is it on ", "passage": "It is.", "idx": 4, "label": True}
    (row,) = rows_of_texts("BoolQ", content)
    assert (row.id, row.texts, row.target) == (4, ("is it on", "It is."), "true")
    (row,) = rows_of_texts("BoolQ", {**content, "label": "anything"}, split="test")
    assert row.target is None


def test_the_word_of_wic_is_between_asterisks_in_both_sentences(rows_of_texts):
    (row,) = rows_of_texts("WiC", {**WIC, "word": "board", "idx": 1, "label": False})
    assert (row.texts, row.target) == (("Room and * board *.", "* Board * the bus!"), "false")
    (row,) = rows_of_texts("WiC", {**WIC, "end1": 15, "idx": 1, "label": False})
    assert row.texts[0] == "Room and * board. *"


def test_each_answer_of_multirc_is_a_row_that_knows_paragraph_question_and_answer(rows_of_texts):
    found = rows_of_texts("MultiRC", of_paragraph(*ANSWERS))
    assert [row.id for row in found] == [[2, 3, 7], [2, 3, 8]]
    assert [row.texts for row in found] == [("It is.", "Is it? Yes."), ("It is.", "Is it?")]
    assert [row.target for row in found] == ["1", "0"] and {row.question for row in found} == {(2, 3)}


MARKS = r"start1 \d+ and end1 \d+ mark no word of sentence1, which has 15"
TWICE = of_paragraph(ANSWERS[0], {**ANSWERS[1], "label": 2})


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("CB", {"premise": "a", "hypothesis": "b", "idx": 0, "label": "yes"}, r"label is 'yes', .*one of \"contradict"),
        ("WiC", {**WIC, "end1": 16, "idx": 1, "label": False}, MARKS),
        ("WiC", {**WIC, "start1": 14, "idx": 1, "label": False}, MARKS),
        ("MultiRC", TWICE, "passage, questions 1, answers 2: label is 2, and must be one of 0, 1"),
    ],
)
def test_a_bad_row_is_named(rows_of_texts, task, content, message):
    with pytest.raises(ValueError, match=rf"train\.jsonl, line 1(: |, ){message}"):
        rows_of_texts(task, content)


def wsc(text, phrase, index, pronoun, *, label=True):
    target = {"span1_text": phrase, "span1_index": 0, "span2_index": index, "span2_text": pronoun}
    content = {"text": text, "target": target, "idx": 3, "label": label}
    (row,) = read_wsc(Row(Path("val.jsonl"), 4, content), labelled=True)
    return row


def winogrande(**changes):
    content = {"qID": "Q1-1", "sentence": "The cup would not fit as the _ was big.", "option1": "cup", "option2": "box"}
    (row,) = read_winogrande(Row(Path("dev.jsonl"), 1, {**content, "answer": "2", **changes}), labelled=True)
    return row


def test_the_phrase_fills_the_gap_of_the_pronoun_in_text_without_extra_spaces():
    row = wsc("Mr. Singer 's cup did not fit the box , so it was big.", "Mr. Singer 's cup", 11, "it", label=False)
    assert (row.id, row.label) == (3, 0)
    assert row.schema.before == "Mr. Singer's cup did not fit the box, so "
    assert row.schema.after == " was big."
    assert row.schema.phrase == "Mr. Singer 's cup"
    assert "the box" in row.schema.rivals
    assert not any("cup" in rival for rival in row.schema.rivals)


def test_punctuation_stays_in_the_text_and_the_word_before_is_forgiven():
    said = "The man saw a dog with "
    for index, pronoun, before, after in ((6, "him.", said, "."), (5, "him", said, "."), (0, "The", "", " man saw")):
        schema = wsc("The man saw a dog with him.", "The man.", index, pronoun).schema
        assert schema.before == before and schema.after.startswith(after) and schema.phrase == "The man"


def test_a_pronoun_elsewhere_is_an_error_that_names_file_line_and_word():
    for index, word in ((1, "'cup'. Correct"), (40, "'missing'")):
        said = (
            rf"val.jsonl, line 4, target: span2_text is 'it', and word {index} of the text, counted from 0, is {word}"
        )
        with pytest.raises(ValueError, match=said):
            wsc("The cup was big and it fell.", "The cup", index, "it")


def test_winogrande_s_first_option_is_the_phrase():
    row = winogrande()
    assert (row.id, row.label, winogrande(answer="1").label) == ("Q1-1", 0, 1)
    assert (row.schema.before, row.schema.after) == ("The cup would not fit as the ", " was big.")
    assert (row.schema.phrase, row.schema.rivals) == ("cup", ("box",))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answer": "3"}, r"dev.jsonl, line 1: answer is '3', and must be one of \"1\", \"2\". Correct it."),
        ({"sentence": "No gap."}, "dev.jsonl, line 1: the sentence has no gap '_'"),
        ({"option2": "cup "}, "dev.jsonl, line 1: both options are 'cup'"),
        ({"option1": 7}, "dev.jsonl, line 1: the column 'option1' must be a text, found 7"),
    ],
)
def test_a_bad_row_of_winogrande_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        winogrande(**changes)


def test_training_takes_right_phrases_alone_and_turns_winogrande_s_wrong_ones_round():
    rows = [wsc("The cup and the box fell as it was big.", "The cup", 6, "it", label=label) for label in (True, False)]
    assert [schema.phrase for schema in training_rows(rows, are_rivals_options=False)] == ["The cup"]
    right = training_rows([winogrande(), winogrande(answer="1")], are_rivals_options=True)
    assert [(schema.phrase, schema.rivals) for schema in right] == [("box", ("cup",)), ("cup", ("box",))]


def test_every_official_row_of_wsc_is_read(shared_data, tmp_path):
    """All 554 + 104 rows: the pronoun is found, and all but a few have rivals."""
    folder = unpack(shared_data, "superglue", tmp_path) / "superglue" / "WSC"
    rows = {
        split: [row for each in read_rows(folder / name) for row in read_wsc(each, labelled=True)]
        for split, name in (("train", "train.jsonl"), ("valid", "val.jsonl"))
    }
    assert {split: len(found) for split, found in rows.items()} == {"train": 554, "valid": 104}
    assert {split: sum(row.label for row in found) for split, found in rows.items()} == {"train": 259, "valid": 38}
    found = [row.schema for split in rows.values() for row in split]
    assert [schema.phrase for schema in found if not schema.rivals] == []
    assert all(schema.phrase not in schema.rivals and "\n" not in schema.phrase for schema in found)
    assert len(training_rows(rows["train"], are_rivals_options=False)) == 259


prepared_of = partial(tiny_benchmarks.prepared_of, max_length=120)


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("superglue") / "raw"
    for task in TASKS:
        write_task(folder, task)
    return folder


@pytest.fixture(scope="module")
def prepared(raw, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    return {task: prepared_of(task, raw, folder / task) for task in TASKS}


def outputs(prepared, split, *, good=5.0, num_classes=None):
    """Logits of a model that likes what is good, and dislikes it if `good` is negative."""
    part = prepared.split(split)
    if num_classes is None:
        marks = [float(text.count("good")) for example in range(len(part)) for text in texts(prepared, split, example)]
        return RawOutputs(logits=np.array(marks, dtype=np.float32)[:, None] * good)
    logits = good * np.eye(num_classes)[np.asarray(part.columns["label"])]
    return RawOutputs(logits=logits.astype(np.float32))


def score(prepared, split, found, folder=None):
    task = prepared.task
    return benchmark_of(task).score(prepared, split, [found], folder=folder, options=options_for(task))


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_wsc_learns_from_right_phrases_and_judges_every_row(prepared, raw):
    found = prepared["WSC"]
    labels = [row["label"] for row in lines(raw / "WSC" / "train.jsonl")]
    assert len(found.split("train")) == sum(labels) > 5
    first, *rivals = texts(found, "train", 0)
    assert re.fullmatch(r"I saw the (good|bad) \w+ and the (good|bad) \w+\. the good \w+ ran\.", first)
    assert any("the bad" in rival.split(".")[1] for rival in rivals)
    assert found.split("valid").columns["label"].tolist() == [row["label"] for row in lines(raw / "WSC" / "val.jsonl")]


def test_winogrande_puts_both_options_into_the_gap_and_reads_the_size_that_is_asked_for(prepared, raw, tmp_path):
    found = prepared["WinoGrande"]
    right, wrong = texts(found, "train", 0)
    assert re.search(r", so the good \w+ ran\.$", right) and re.search(r", so the bad \w+ ran\.$", wrong)
    assert len(found.split("train")) == 24 and found.settings["size"] == "xl"
    row = lines(raw / "WinoGrande" / "dev.jsonl")[2]
    first, second = texts(found, "valid", 2)
    assert row["option1"] in first.split(", so")[1] and row["option2"] in second.split(", so")[1]

    (raw / "WinoGrande" / "train_xs.jsonl").write_text(
        "".join((raw / "WinoGrande" / "train_xl.jsonl").read_text().splitlines(keepends=True)[:5])
    )
    small = prepared_of("WinoGrande", raw, tmp_path / "xs", size="xs")
    assert len(small.split("train")) == 5 and small.settings["size"] == "xs"


MULTIRC = r'\{"idx": 0, "passage": \{"questions": \[\{"idx": 0, "answers": \[\{"idx": 0, "label": [01]\}, .*\]\}\}'


@pytest.mark.parametrize(
    ("task", "name", "first"),
    [
        ("WSC", "WSC.jsonl", r'\{"idx": 0, "label": "(True|False)"\}'),
        ("WinoGrande", "WinoGrande.lst", "[12]"),
        ("BoolQ", "BoolQ.jsonl", r'\{"idx": 0, "label": "(true|false)"\}'),
        ("CB", "CB.jsonl", r'\{"idx": 0, "label": "(contradiction|neutral|entailment)"\}'),
        ("WiC", "WiC.jsonl", r'\{"idx": 0, "label": "(true|false)"\}'),
        ("MultiRC", "MultiRC.jsonl", MULTIRC),
        ("SuperRTE", "RTE.jsonl", r'\{"idx": 0, "label": "(not_)?entailment"\}'),
        ("COPA", "COPA.jsonl", r'\{"idx": 0, "label": [01]\}'),
        ("ReCoRD", "ReCoRD.jsonl", r'\{"idx": 0, "label": "(good|bad) \w+"\}'),
        ("CommonsenseQA", "CommonsenseQA.jsonl", r'\{"id": "0{32}", "answerKey": "[A-E]"\}'),
    ],
)
def test_test_sets_get_their_official_file_and_no_metrics(prepared, tmp_path, task, name, first):
    found = prepared[task]
    width = (3 if task == "CB" else 2) if found.settings.get("kind") == "classification" else 1
    logits = np.random.default_rng(0).normal(size=(len(found.split("test").sequences), width))
    assert score(found, "test", RawOutputs(logits=logits.astype(np.float32)), tmp_path) == {}
    assert [path.name for path in tmp_path.iterdir()] == [name] == list(benchmark_of(task).prediction_files("test"))
    written = (tmp_path / name).read_text().splitlines()
    assert re.fullmatch(first, written[0])
    assert len(written) == 6


@pytest.mark.parametrize("task", ["CB", "custom"])
def test_a_label_that_is_nowhere_counts_as_0_for_cb_in_validation_and_evaluation(task):
    """SuperGLUE's baseline takes the mean over all labels; scikit-learn's default, as of own tables, over those there."""
    rng = np.random.default_rng(0)
    answers, predictions = rng.integers(0, 2, 40), rng.integers(0, 2, 40)
    part = type("Part", (), {"name": "valid", "columns": {"label": answers}, "__len__": lambda self: 40})()
    kind = benchmark_of(task).kind_for({"kind": "classification", "labels": ["a", "b", "c"]})
    outputs = RawOutputs(logits=np.eye(3, dtype=np.float32)[predictions])
    outcome = kind.outcome(part, [outputs], options={})
    labels = {"labels": [0, 1, 2], "zero_division": 0.0} if task == "CB" else {}
    expected = pytest.approx(100 * f1_score(answers, predictions, average="macro", **labels))
    assert kind.validated(part, outputs, {})["macro_f1"] == outcome.measure(np.ones(40))["macro_f1"] == expected


def test_the_answers_of_multirc_are_all_in_the_file_by_question(prepared, tmp_path):
    found = prepared["MultiRC"]
    score(found, "valid", outputs(found, "valid", num_classes=2), tmp_path)
    written = lines(tmp_path / "MultiRC.valid.jsonl")
    answers = [answer for row in written for asked in row["passage"]["questions"] for answer in asked["answers"]]
    assert [answer["idx"] for answer in answers] == list(range(32))
    assert [answer["label"] for answer in answers] == found.split("valid").columns["label"].tolist()


def test_commonsense_qa_is_written_as_fairseq_writes_it(prepared, raw):
    row = lines(raw / "CommonsenseQA" / "train_rand_split.jsonl")[0]
    expected = [f"Q: Who ran?|A: {choice['text']}" for choice in row["question"]["choices"]]
    assert texts(prepared["CommonsenseQA"], "train", 0) == expected


def test_the_grids_are_those_of_their_sources(prepared):
    recipes = {task: benchmark_of(task).recipe(prepared[task]) for task in TASKS}
    assert list(recipes["WSC"].axes["batch"]) == ["8", "16", "32"]
    expected = {"batch-size": "16", "total-num-update": "2000", "max-update": "2000", "warmup-updates": "250"}
    assert recipes["WSC"].axes["batch"]["16"] == expected
    assert recipes["WSC"].train["phrase-cross-entropy"] == "true"
    assert list(recipes["WinoGrande"].axes["lr"]) == ["1e-5"]
    assert recipes["WinoGrande"].axes["batch"]["32"]["max-update"] == "19"  # one update per epoch of 24 rows
    assert recipes["CommonsenseQA"].axes["batch"]["8"]["max-update"] == "3000"
    assert recipes["CommonsenseQA"].train["task"] == recipes["COPA"].train["criterion"] == "race"
    official = {"MultiRC": "f1", "ReCoRD": "f1"}
    assert {task: recipe.compared_by for task, recipe in recipes.items()} == {
        task: official.get(task, "accuracy") for task in TASKS
    }
    assert benchmark_of("CB").starts_from == "MNLI"
    assert recipes["MultiRC"].metric["value"] == "f1"
    assert benchmark_of("WSC").recipe(prepared["WSC"], epochs=2).axes["batch"]["8"]["max-update"] == str(
        2 * -(-len(prepared["WSC"].split("train")) // 8)
    )


def test_bad_files_are_named_with_their_line_and_leave_no_folder_behind(raw, tmp_path):
    for task, change in (("BoolQ", {"label": 1}), ("COPA", {"question": "why"})):
        rows = lines(raw / task / "train.jsonl")
        rows[3] |= change
        write_lines(tmp_path / task / "train.jsonl", rows)
        write_lines(tmp_path / task / "val.jsonl", lines(raw / task / "val.jsonl"))
        with pytest.raises(ValueError, match=f"{task}/train.jsonl, line 4: {next(iter(change))} is"):
            prepared_of(task, tmp_path, tmp_path / "set")
        assert not (tmp_path / "set").exists()


def test_wsc_without_anything_to_learn_from_is_refused(raw, tmp_path):
    rows = [{**row, "label": False} for row in lines(raw / "WSC" / "train.jsonl")]
    for name in ("train.jsonl", "val.jsonl"):
        write_lines(tmp_path / "WSC" / name, rows)
    with pytest.raises(ValueError, match="no row of the training file has a right phrase with rivals"):
        prepared_of("WSC", tmp_path, tmp_path / "set")


def test_the_diagnostic_sets_of_both_forms_are_predicted_by_the_model_of_rte(prepared, tmp_path):
    found = prepared["SuperRTE"]
    assert texts(found, "ax_b", 1) == texts(found, "ax_g", 1)
    for split, name in (("ax_b", "AX-b.jsonl"), ("ax_g", "AX-g.jsonl")):
        logits = np.tile(np.array([[0.0, 1.0]], np.float32), (6, 1))
        assert score(found, split, RawOutputs(logits=logits), tmp_path) == {}
        assert lines(tmp_path / name) == [{"idx": index, "label": "entailment"} for index in range(6)]


def test_answers_of_winogrande_may_be_in_the_list_beside_the_file(raw, tmp_path):
    expected = prepared_of("WinoGrande", raw, tmp_path / "expected")
    for name in ("train_xl", "dev", "test"):
        rows = lines(raw / "WinoGrande" / f"{name}.jsonl")
        answers = [row.pop("answer", None) for row in rows]
        write_lines(tmp_path / "raw" / f"{name}.jsonl", rows)
        if name != "test":
            (tmp_path / "raw" / f"{name}-labels.lst").write_text("".join(f"{answer}\n" for answer in answers))
    found = prepared_of("WinoGrande", tmp_path / "raw", tmp_path / "found")
    for split in expected.splits:
        assert [texts(found, split, at) for at in range(6)] == [texts(expected, split, at) for at in range(6)]
    assert found.split("valid").columns["label"].tolist() == expected.split("valid").columns["label"].tolist()
    assert found.content["source"]["files"] == 5, "a changed list is another source"
    listed = tmp_path / "raw" / "dev-labels.lst"
    listed.write_text(listed.read_text().replace("1", "3", 1))
    for change, message in (
        (lambda: None, r"dev-labels\.lst, line \d: answer is '3', and must be one of"),
        (lambda: listed.write_text("1\n"), r"dev-labels\.lst has 1 answers, and dev\.jsonl has 8 rows"),
        (listed.unlink, r"dev\.jsonl, line 1: there is no column 'answer'"),
    ):
        change()
        with pytest.raises(ValueError, match=message):
            prepared_of("WinoGrande", tmp_path / "raw", tmp_path / "wrong")


@pytest.fixture
def folder(tmp_path):
    """All files, one folder for each."""
    for file, number in LEADERBOARD.files.items():
        path = tmp_path / "runs" / file.removesuffix(".jsonl") / file
        path.parent.mkdir(parents=True)
        key = "passage" if file == "MultiRC.jsonl" else "label"
        path.write_text("".join(json.dumps({"idx": index, key: {}}) + "\n" for index in range(number)))
    return tmp_path / "runs"


def test_the_zip_has_the_ten_files_by_their_official_names(folder, tmp_path):
    found = write_submission(LEADERBOARD, tmp_path / "a.zip", [folder])
    names = ["AX-b", "AX-g", "BoolQ", "CB", "COPA", "MultiRC", "RTE", "ReCoRD", "WSC", "WiC"]
    assert sorted(found) == [f"{name}.jsonl" for name in names]
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.read("AX-b.jsonl") == (folder / "AX-b" / "AX-b.jsonl").read_bytes()


def test_a_file_that_the_server_would_refuse_is_refused(folder, tmp_path):
    (folder / "WiC" / "WiC.jsonl").write_text('{"idx": 0, "label": "true"}\n')
    with pytest.raises(ValueError, match="has 1 predictions, but the test set has 1,400 rows"):
        write_submission(LEADERBOARD, tmp_path / "a.zip", [folder])
    assert not (tmp_path / "a.zip").exists()


def test_the_command_asks_for_a_zip_and_for_results(tmp_path, capsys):
    words = ["evaluate", "--output-dir", str(tmp_path), "--leaderboard", "superglue"]
    assert main([*words, "--data", str(tmp_path), "--checkpoint", "model.pt"]) == 2
    assert "--leaderboard goes with --submission" in capsys.readouterr().err
    words = ["evaluate", "--output-dir", str(tmp_path / "new"), "--results", str(tmp_path)]
    assert main([*words, "--leaderboard", "superglue"]) == 2
    assert "--leaderboard goes with --submission" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
