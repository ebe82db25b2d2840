"""GLUE's files as they are: every oddity of the official ones, and every kind of damage."""

import logging

import pytest

from roberta_plugin.finetuning.benchmarks.glue import FILES, TASKS, read_rows
from roberta_plugin.finetuning.benchmarks.submission import GLUE as LEADERBOARD
from roberta_plugin.finetuning.options import GlueOptions

PAIRS = "index\tsentence1\tsentence2\tlabel\n"


def read(tmp_path, task, split, content, *, name="file.tsv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    source = next(source for source in FILES[task].sources if source.split == split)
    return read_rows(FILES[task], source, path)


def official(task, raw):
    """The examples of the official files by split; of WNLI, the rows themselves."""
    files = FILES[task].find(raw, GlueOptions())
    return {split: FILES[task].read(split, paths, GlueOptions()) for split, paths in files.items()}


def test_cola_has_a_header_in_test_only(tmp_path):
    rows = read(tmp_path, "CoLA", "train", "gj04\t1\t\tIt works.\ngj04\t0\t*\tWorks it.\n")
    assert [(row.id, row.texts, row.target) for row in rows] == [
        ("0", ("It works.",), "1"),
        ("1", ("Works it.",), "0"),
    ]
    rows = read(tmp_path, "CoLA", "test", "index\tsentence\n7\tIt works.\n")
    assert [(row.id, row.texts, row.target) for row in rows] == [("7", ("It works.",), None)]


def test_quotes_and_unusual_line_separators_are_text(tmp_path):
    rows = read(tmp_path, "RTE", "train", PAIRS + '3\t"He said\tso\u2028it is "\tentailment\r\n4\ta\tb\tentailment')
    assert rows[0].texts == ('"He said', 'so\u2028it is "')
    assert [row.id for row in rows] == ["3", "4"]


def test_columns_are_found_by_name(tmp_path):
    rows = read(tmp_path, "RTE", "train", "label\tsentence2\tindex\tsentence1\nentailment\tb\t9\ta\n")
    assert (rows[0].id, rows[0].texts, rows[0].target) == ("9", ("a", "b"), "entailment")


def test_regression_reads_numbers(tmp_path):
    assert read(tmp_path, "STS-B", "train", "sentence1\tsentence2\tscore\na\tb\t3.80\n")[0].target == 3.8


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        (
            "RTE",
            "index\tsentence1\tlabel\n0\ta\tentailment\n",
            r"line 1: there is no column 'sentence2'; found 'index'",
        ),
        ("RTE", "", r"line 1: there is no column .*found nothing"),
        ("RTE", PAIRS, "has no rows"),
        ("RTE", PAIRS + "0\ta\tb\tentailment\n1\ta\n", r"line 3: 2 columns where there should be 4.*correct"),
        ("RTE", PAIRS + "0\ta\tb\tc\tentailment\n", "line 2: 5 columns where there should be 4"),
        ("RTE", PAIRS + "0\ta\t \tentailment\n", "line 2: a sentence is empty. Correct or remove"),
        ("RTE", PAIRS + "0\ta\tb\tmaybe\n", "line 2: the label 'maybe' is none of not_entailment, entailment"),
        ("RTE", PAIRS + "0\ta\tb\tentailment\n0\tc\td\tentailment\n", r"line 3: the id '0' occurs in .*line 2 already"),
        ("STS-B", "sentence1\tsentence2\tscore\na\tb\t5.1\n", "line 2: the score '5.1' is not a number from 0 to 5"),
        ("STS-B", "sentence1\tsentence2\tscore\na\tb\tnan\n", "line 2: the score 'nan' is not a number from 0 to 5"),
        ("SST-2", "sentence\tlabel\n\n\ngood\t1\n", "line 2: 1 columns where there should be 2"),
    ],
    ids=["column", "empty", "header", "short", "long", "sentence", "label", "id", "number", "nan", "blank"],
)
def test_damage_is_reported_with_file_line_and_remedy(tmp_path, task, content, message):
    with pytest.raises(ValueError, match=message) as error:
        read(tmp_path, task, "train", content)
    assert str(tmp_path / "file.tsv") in str(error.value)


def test_broken_rows_of_qqp_are_left_out_with_a_warning(tmp_path, caplog):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    content = header + "0\t1\t2\ta\tb\t1\n1\t1\t2\tcut off\n2\t1\t2\ta\t\t0\n3\t1\t2\tc\td\t0\n"
    with caplog.at_level(logging.WARNING):
        rows = read(tmp_path, "QQP", "train", content)
    assert [row.id for row in rows] == ["0", "3"]
    assert "2 broken rows are left out" in caplog.text
    with pytest.raises(ValueError, match="'5' is none of"):
        read(tmp_path, "QQP", "train", header + "0\t1\t2\ta\tb\t5\n")


def test_a_file_of_qqp_that_is_mostly_broken_is_refused(tmp_path):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    lines = [f"{number}\t1\t2\ta\tb\t1\n" for number in range(400)]
    broken = [f"{number}\tcut off\n" for number in range(400, 405)]
    with pytest.raises(ValueError, match=r"5 rows are broken, .* such as line 406, and 400 are not; .*Fetch it again"):
        read(tmp_path, "QQP", "train", header + "".join(lines + broken))
    assert len(read(tmp_path, "QQP", "train", header + "".join(lines + broken[:4]))) == 400


def test_no_row_of_a_test_set_is_left_out(tmp_path):
    header = "id\tquestion1\tquestion2\n"
    assert len(read(tmp_path, "QQP", "test", header + "0\ta\tb\n1\ta\t\n")) == 2
    with pytest.raises(ValueError, match="line 3: 2 columns"):
        read(tmp_path, "QQP", "test", header + "0\ta\tb\n1\ta\n")


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
    with pytest.raises(FileNotFoundError, match=r"holds no dev\.tsv: RTE needs the official files"):
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
