"""GLUE: official files, pronouns of WNLI, preparation."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.extensions.pronouns.benchmarks import TASKS as PRONOUN_TASKS
from roberta_plugin.extensions.pronouns.benchmarks import WNLI
from roberta_plugin.extensions.pronouns.kind import contains, content_words
from roberta_plugin.extensions.pronouns.schemas import align, find_schema, training_schemas
from roberta_plugin.extensions.texts.glue import FILES as GLUE_FILES
from roberta_plugin.extensions.texts.glue import TASKS as GLUE_TASKS
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.benchmarks.submission import find_leaderboard
from roberta_plugin.finetuning.benchmarks.tsv_files import read_rows
from roberta_plugin.finetuning.examples import Example
from roberta_plugin.finetuning.layouts.texts import Encoder
from roberta_plugin.finetuning.options import GlueOptions
from roberta_plugin.finetuning.preparation import DataSettings, check_same
from roberta_plugin.finetuning.prepared import NAME, Prepared
from tests.tiny_benchmarks import prepared_of
from tests.tiny_glue import unpack_glue, write_task

FILES, TASKS = {**GLUE_FILES, "WNLI": WNLI}, GLUE_TASKS | PRONOUN_TASKS
LEADERBOARD = find_leaderboard("glue")

PAIRS = "index\tsentence1\tsentence2\tlabel\n"
QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"


@pytest.fixture(scope="module")
def glue(shared_data, tmp_path_factory):
    """The real files, unpacked once."""
    return unpack_glue(shared_data, tmp_path_factory.mktemp("glue"))


def read(tmp_path, task, split, content, *, name="file.tsv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    source = next(source for source in FILES[task].sources if source.split == split)
    return read_rows(FILES[task], source, path)


def official(task, raw):
    """The examples of the official files by split; of WNLI, the rows themselves."""
    files = FILES[task].find(raw, GlueOptions())
    return {split: FILES[task].read(split, paths, GlueOptions()) for split, paths in files.items()}


@pytest.mark.parametrize(
    ("task", "split", "content", "expected"),
    [
        (
            "CoLA",  # which has a header in test only
            "train",
            "gj04\t1\t\tIt works.\ngj04\t0\t*\tWorks it.\n",
            [("0", ("It works.",), "1"), ("1", ("Works it.",), "0")],
        ),
        ("CoLA", "test", "index\tsentence\n7\tIt works.\n", [("7", ("It works.",), None)]),
        (
            "RTE",  # quotes and unusual line separators are text
            "train",
            PAIRS + '3\t"He said\tso\u2028it is "\tentailment\r\n4\ta\tb\tentailment',
            [("3", ('"He said', 'so\u2028it is "'), "entailment"), ("4", ("a", "b"), "entailment")],
        ),
        (
            "RTE",
            "train",
            "label\tsentence2\tindex\tsentence1\nentailment\tb\t9\ta\n",
            [("9", ("a", "b"), "entailment")],
        ),
        ("STS-B", "train", "sentence1\tsentence2\tscore\na\tb\t3.80\n", [("0", ("a", "b"), 3.8)]),
    ],
)
def test_rows_are_read_by_the_names_of_their_columns(tmp_path, task, split, content, expected):
    assert [(row.id, row.texts, row.target) for row in read(tmp_path, task, split, content)] == expected


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("RTE", "index\tsentence1\tlabel\n0\ta\tb\n", r"line 1: there is no column 'sentence2'; found 'index'"),
        ("RTE", "", r"line 1: there is no column .*found nothing"),
        ("RTE", PAIRS, "has no rows"),
        ("RTE", PAIRS + "0\ta\tb\tentailment\n1\ta\n", r"line 3: 2 columns instead of 4.*correct"),
        ("RTE", PAIRS + "0\ta\tb\tc\tentailment\n", "line 2: 5 columns instead of 4"),
        ("RTE", PAIRS + "0\ta\t \tentailment\n", "line 2: a sentence is empty. Correct or remove"),
        ("RTE", PAIRS + "0\ta\tb\tmaybe\n", "line 2: the label 'maybe' is none of not_entailment, entailment"),
        ("RTE", PAIRS + "0\ta\tb\tentailment\n0\tc\td\tentailment\n", r"line 3: the id '0' occurs in .*line 2 already"),
        ("STS-B", "sentence1\tsentence2\tscore\na\tb\t5.1\n", "line 2: the score '5.1' is not a number from 0 to 5"),
        ("STS-B", "sentence1\tsentence2\tscore\na\tb\tnan\n", "line 2: the score 'nan' is not a number from 0 to 5"),
        ("SST-2", "sentence\tlabel\n\n\ngood\t1\n", "line 2: 1 columns instead of 2"),
    ],
    ids=["column", "empty", "header", "short", "long", "sentence", "label", "id", "number", "nan", "blank"],
)
def test_damage_is_reported_with_file_line_and_remedy(tmp_path, task, content, message):
    with pytest.raises(ValueError, match=message) as error:
        read(tmp_path, task, "train", content)
    assert str(tmp_path / "file.tsv") in str(error.value)


def test_broken_rows_of_qqp_are_left_out_with_a_warning_but_not_of_a_test_set(tmp_path, caplog):
    content = QQP + "0\t1\t2\ta\tb\t1\n1\t1\t2\tcut off\n2\t1\t2\ta\t\t0\n3\t1\t2\tc\td\t0\n"
    with caplog.at_level(logging.WARNING):
        rows = read(tmp_path, "QQP", "train", content)
    assert [row.id for row in rows] == ["0", "3"]
    assert "2 broken rows are left out" in caplog.text
    with pytest.raises(ValueError, match="'5' is none of"):
        read(tmp_path, "QQP", "train", QQP + "0\t1\t2\ta\tb\t5\n")
    header = "id\tquestion1\tquestion2\n"
    assert len(read(tmp_path, "QQP", "test", header + "0\ta\tb\n1\ta\t\n")) == 2
    with pytest.raises(ValueError, match="line 3: 2 columns"):
        read(tmp_path, "QQP", "test", header + "0\ta\tb\n1\ta\n")


def test_a_file_of_qqp_that_is_mostly_broken_is_refused(tmp_path):
    lines = [f"{number}\t1\t2\ta\tb\t1\n" for number in range(400)]
    broken = [f"{number}\tcut off\n" for number in range(400, 405)]
    with pytest.raises(ValueError, match=r"5 rows are broken .* such as line 406, and 400 are not. .*Fetch it again"):
        read(tmp_path, "QQP", "train", QQP + "".join(lines + broken))
    assert len(read(tmp_path, "QQP", "train", QQP + "".join(lines + broken[:4]))) == 400


REAL = {
    "CoLA": {"train": 8551, "valid": 1043, "test": 1063},
    "SST-2": {"train": 67349, "valid": 872, "test": 1821},
    "MRPC": {"train": 3668, "valid": 408},
    "STS-B": {"train": 5749, "valid": 1500, "test": 1379},
    "QQP": {"train": 8999, "valid": 1000},
    "MNLI": {"train": 8999, "valid": 1000},
    "QNLI": {"train": 8999, "valid": 1000},
    "RTE": {"train": 2490, "valid": 277, "test": 3000},
    "WNLI": {"train": 635, "valid": 71, "test": 146},
}


@pytest.mark.parametrize("task", REAL)
def test_the_real_files_are_read_whole(glue, task):
    rows, files = official(task, glue), FILES[task]
    assert {split: len(part) for split, part in rows.items()} == REAL[task]
    targets = {row.target for row in rows["train"]}
    assert targets == set(files.labels) if files.labels else (min(targets), max(targets)) == files.limits
    for split in rows.keys() - {"train", "valid"}:
        assert len(rows[split]) == LEADERBOARD.files[TASKS[task].prediction_files(split)[0]]
        assert {row.target for row in rows[split]} == {None}


def test_a_missing_dev_file_is_an_error_and_a_missing_test_file_is_not(tmp_path):
    (tmp_path / "train.tsv").touch()
    with pytest.raises(FileNotFoundError, match=r"has no dev\.tsv: RTE needs the unchanged official files"):
        TASKS["RTE"].files(tmp_path, GlueOptions())
    (tmp_path / "dev.tsv").touch()
    assert list(TASKS["RTE"].files(tmp_path, GlueOptions())) == ["train", "valid"]


def test_the_diagnostic_set_with_labels_goes_before_the_one_without(tmp_path):
    for name in ("train.tsv", "dev_matched.tsv", "dev_mismatched.tsv", "diagnostic.tsv"):
        (tmp_path / name).touch()
    mnli = FILES["MNLI"]
    found = mnli.find(tmp_path, GlueOptions())
    assert list(found) == ["train", "valid", "valid_mismatched", "ax"]
    assert not mnli.source("ax", *found["ax"]).is_labelled
    (tmp_path / "diagnostic-full.tsv").touch()
    (path,) = mnli.find(tmp_path, GlueOptions())["ax"]
    assert mnli.source("ax", path).is_labelled and path.name == "diagnostic-full.tsv"


def texts(prepared, split, example):
    """The texts of an example's sequences, with | for </s>."""
    back = prepared.vocabulary.model_to_tokenizer(prepared.tokenizer)
    part = prepared.split(split)
    found = []
    for row in range(part.offsets[example], part.offsets[example + 1]):
        ids = part.sequences[row]
        assert ids[0] == prepared.vocabulary.bos_id and ids[-1] == prepared.vocabulary.eos_id
        pieces = np.split(ids[1:], np.flatnonzero(ids[1:] == prepared.vocabulary.eos_id))
        found.append("|".join(prepared.tokenizer.decode(back[piece[piece != 2]].tolist()) for piece in pieces[:-1]))
    return found


def test_classification_has_one_sequence_and_one_label_a_row(tmp_path):
    raw = write_task(tmp_path / "raw", "SST-2", train=9, dev=5, test=4)
    prepared = prepared_of("SST-2", raw, tmp_path / "set")
    assert prepared.splits == ("train", "valid", "test")
    assert prepared.settings == {"kind": "classification", "labels": ["0", "1"], "max_length": 60}
    lines = [line.split("\t") for line in (raw / "SST-2" / "dev.tsv").read_text().splitlines()[1:]]
    assert prepared.split("valid").columns["label"].tolist() == [int(label) for _, label in lines]
    assert [texts(prepared, "valid", row) for row in range(5)] == [[text] for text, _ in lines]
    assert prepared.split("test").columns == {}
    assert [record["id"] for record in prepared.split("test").records()] == ["0", "1", "2", "3"]


def test_regression_keeps_the_number_and_joins_the_pair(tmp_path):
    raw = write_task(tmp_path / "raw", "STS-B", train=9, dev=5, test=4)
    prepared = prepared_of("STS-B", raw, tmp_path / "set")
    lines = [line.split("\t") for line in (raw / "STS-B" / "train.tsv").read_text().splitlines()[1:]]
    assert prepared.split("train").columns["label"].tolist() == [float(line[3]) for line in lines]
    assert texts(prepared, "train", 3) == [f"{lines[3][1]}||{lines[3][2]}"]
    assert prepared.settings["labels"] == []
    assert (prepared.settings["mean"], prepared.settings["deviation"]) == (0, 5), (
        "as fairseq's preprocess_GLUE_tasks.sh"
    )
    data = identity.describe(prepared)
    before = {name: value for name, value in data["settings"].items() if name not in ("mean", "deviation")}
    for settings in (data["settings"], before):  # of an earlier version, or on the scale of the labels
        state = {"task_state": {identity.KEY: {**data, "settings": settings}}}
        identity.check_task(state, prepared, checkpoint=tmp_path)
        path = prepared.folder / NAME
        path.write_text(json.dumps({**prepared.content, "settings": settings}))
        check_same(Prepared.open(prepared.folder), DataSettings(task="STS-B", raw=raw, max_length=60))


def test_ranking_groups_the_training_set_and_keeps_the_rows_of_the_others(tmp_path):
    raw = write_task(tmp_path / "raw", "QNLI", train=10, dev=6, test=4)
    prepared = prepared_of("QNLI-ranking", raw, tmp_path / "set")
    train = prepared.split("train")
    assert len(train) == 5
    assert np.diff(train.offsets).tolist() == [2] * 5
    assert train.columns["answer"].tolist() == [0] * 5
    right, wrong = texts(prepared, "train", 2)
    assert "good" in right and "bad" in wrong
    assert right.split("||")[0] == wrong.split("||")[0] == "is it 3 ?"
    valid = prepared.split("valid")
    assert valid.columns["question"].tolist() == [0, 0, 1, 1, 2, 2]
    labels = ["good" in texts(prepared, "valid", row)[0] for row in range(6)]
    assert valid.columns["answer"].tolist() == [int(not label) for label in labels]
    assert prepared.split("test").columns.keys() == {"question"}
    assert len(list(prepared.split("test").records())) == 4


def test_wnli_puts_every_phrase_in_the_place_of_the_pronoun(tmp_path):
    raw = write_task(tmp_path / "raw", "WNLI", train=10, dev=6, test=4)
    prepared = prepared_of("WNLI", raw, tmp_path / "set")
    train = prepared.split("train")
    assert len(train) == 5
    assert train.columns["label"].tolist() == [1] * 5
    phrases = []
    for text, row in zip(texts(prepared, "train", 1), range(*train.offsets[1:3]), strict=True):
        ids = train.sequences[row]
        span = ids[train.columns["before"][1] : len(ids) - train.columns["after"][1]]
        assert text.endswith(" ran.") and text.startswith("I saw the ")
        back = prepared.vocabulary.model_to_tokenizer(prepared.tokenizer)
        phrases.append(prepared.tokenizer.decode(back[span].tolist()))
        assert text == f"{text.split('. ')[0]}.{phrases[-1]} ran."
    assert phrases[0].startswith(" The good")
    assert any(phrase.startswith(" The bad") for phrase in phrases[1:])
    valid = prepared.split("valid")
    assert len(valid) == 6 and valid.columns["label"].sum() == 3
    assert prepared.split("test").columns.keys() == {"before", "after"}


def test_a_text_that_is_too_long_loses_its_ends_and_keeps_the_phrase(tmp_path):
    raw = write_task(tmp_path / "raw", "WNLI", train=10, dev=6, test=4)
    prepared = prepared_of("WNLI", raw, tmp_path / "set", max_length=24)
    train = prepared.split("train")
    assert train.sequences.sizes.max() == 24
    whole = prepared_of("WNLI", raw, tmp_path / "whole").split("train")
    for example in range(len(train)):
        for row in range(*train.offsets[example : example + 2]):
            spans = []
            for part in (train, whole):
                ids, columns = part.sequences[row], part.columns
                spans.append(ids[columns["before"][example] : len(ids) - columns["after"][example]].tolist())
            assert spans[0] == spans[1]


def test_a_row_without_a_pronoun_keeps_its_place(tmp_path, caplog):
    raw = write_task(tmp_path / "raw", "WNLI", train=10, dev=6, test=4)
    path = raw / "WNLI" / "dev.tsv"
    path.write_text(path.read_text() + "99\tThe dog ran.\tThe cat ran.\t0\n")
    valid = prepared_of("WNLI", raw, tmp_path / "set").split("valid")
    assert len(valid) == 7
    assert "in 1 of 7 rows no pronoun was found" in caplog.text
    ids = valid.sequences[int(valid.offsets[6])]
    assert valid.columns["before"][6] == len(ids) and valid.columns["after"][6] == 0


def test_phrases_of_the_real_rows_have_the_ids_of_the_whole_text(shared_data, glue):
    """Byte-level BPE of the three parts is that of the text: parts begin where words begin."""
    if not (shared_data / "gpt2_bpe").is_dir():
        pytest.skip("needs shared/data/gpt2_bpe")
    tokenizer = load_tokenizer(shared_data / "gpt2_bpe")
    encoder = Encoder(tokenizer, Vocabulary.load(shared_data / "gpt2_bpe" / "dict.txt"))
    number = 0
    for row in official("WNLI", glue)["valid"]:
        schema = find_schema(row)
        text = schema.before.rstrip()
        space = schema.before[len(text) :]
        for phrase in (schema.phrase, *schema.rivals):
            parts = [encoder.ids(part) for part in (text, space + phrase, schema.after)]
            assert np.concatenate(parts).tolist() == encoder.ids(f"{schema.before}{phrase}{schema.after}").tolist()
            number += 1
    assert number > 300


DRAIN = "The drain is clogged with hair. It has to be cleaned."
BISHOP = "Tom talked to Ralph as he took his bishop."
NEWS = "We had hoped to place copies of our newsletter on all the chairs, but there were simply not enough of them."
WAR = "In July, Kamtchatka declared war on Yakutsk. Yakutsk's army was larger, so they were victorious within weeks."
STEVE = "Mark heard Steve's feet going down. The door closed after him. He ran to look out."


@pytest.mark.parametrize(
    ("text", "hypothesis", "pronoun", "phrase", "cost"),
    [
        (DRAIN, "The hair has to be cleaned.", "It", "The hair", 0.0),
        (BISHOP, "Tom talked to Ralph as he took Ralph's bishop.", "his", "Ralph's", 0.0),
        ("I saw it. She likes it, as he said.", "She likes the sea, as he said.", "it", "the sea", None),
        ("John promised Bill to leave, so an hour later he left.", "Bill left.", "he", "Bill", 0.0),
        (NEWS, "There were simply not enough chairs.", "them", "chairs", 1.0),
        (WAR, "Yakutsk was victorious within weeks.", "they", "Yakutsk", 1.0),
        (STEVE, "The door closed after Mark.", "him", "Mark", 0.0),
        (STEVE, "Mark ran to look out.", "He", "Mark", 0.0),
    ],
)
def test_the_pronoun_is_found_and_what_stands_for_it(text, hypothesis, pronoun, phrase, cost):
    found = align(text, hypothesis)
    assert text[found.start : found.end] == pronoun and found.phrase == phrase
    assert found.cost == cost if cost is not None else found.cost > 0, "a phrase that the text lacks costs something"


def test_without_agreement_there_is_no_alignment():
    assert {align(DRAIN, hypothesis) for hypothesis in ("Nothing agrees here.", "It", "")} == {None}
    assert align("No word of this text stands for another.", "The text stands.") is None


def test_content_words_leave_out_determiners_and_the_possessive_ending():
    assert content_words("The old man\u2019s") == ["old", "man"]
    assert content_words("the boys'") == ["boys"]
    assert content_words("Mr. Singer") == ["mr", "singer"]
    assert contains(["a", "b", "c"], ["b", "c"]) and not contains(["a", "b", "c"], ["a", "c"]), "whole words in a row"


def test_every_real_row_aligns_and_most_of_them_to_the_letter(glue):
    for rows in official("WNLI", glue).values():
        found = [align(*row.texts) for row in rows]
        assert None not in found
        assert sum(alignment.cost == 0 for alignment in found) / len(rows) > 0.8
        for row, alignment in zip(rows, found, strict=True):
            assert alignment.phrase in row.texts[1]


def example(text, hypothesis, label=0):
    return Example(Path("train.tsv"), 2, "0", (text, hypothesis), str(label))


def test_the_phrase_takes_the_place_of_the_pronoun_and_so_do_its_rivals():
    schema = find_schema(example(DRAIN, "The hair has to be cleaned."))
    assert (schema.before, schema.after) == ("The drain is clogged with hair. ", " has to be cleaned.")
    assert (schema.phrase, schema.rivals) == ("The hair", ("The drain", "Drain"))
    assert find_schema(example("The drain is clogged.", "The hair is clogged.")) is None, "there is no pronoun"


def test_all_phrases_are_written_as_the_place_demands():
    text = "Tatyana knew that Grandma's old friends always enjoyed her soup."
    schema = find_schema(example(text, "Grandma's old friends always enjoyed Tatyana's soup."))
    assert schema.phrase == "Tatyana's"
    assert {"Grandma's", "old friends'"} <= {*schema.rivals}
    assert all(rival.endswith(("'s", "s'")) for rival in schema.rivals)


def test_a_rival_is_neither_part_of_the_phrase_nor_the_phrase_of_it():
    text = "Anna's good friend Lucy met the friend of a man because she was late."
    schema = find_schema(example(text, "Lucy was late."))
    assert not any("Lucy" in rival for rival in schema.rivals)
    assert {"Anna", "a man"} <= set(schema.rivals)


def test_phrases_of_other_rows_compete_in_training():
    rows = ("The whole hair has to be cleaned.", 0), ("The drain has to be cleaned.", 1)
    (schema,) = training_schemas([example(DRAIN, text, label) for text, label in rows])
    assert schema.phrase == "The drain" and {"The whole hair", "Hair"} <= {*schema.rivals}


def test_the_rivals_of_the_real_rows_hold_what_other_rows_ask_for(glue):
    wanted = {}  # a text and the place of its pronoun -> the phrases that its rows ask for, and their rivals
    for rows in official("WNLI", glue).values():
        for row in rows:
            schema = find_schema(row)
            assert schema.rivals
            assert schema.phrase not in schema.rivals
            rivals = [content_words(rival) for rival in schema.rivals]
            wanted.setdefault((schema.before, schema.after), {})[schema.phrase] = rivals
    hits = [
        content_words(other) in rivals
        for phrases in wanted.values()
        for one, rivals in phrases.items()
        for other in phrases.keys() - {one}
    ]
    assert len(hits) > 500
    assert sum(hits) / len(hits) > 0.75


def test_every_right_row_of_the_real_training_set_is_used(glue):
    rows = official("WNLI", glue)["train"]
    assert len(training_schemas(rows)) == sum(row.target == "1" for row in rows) == 312
