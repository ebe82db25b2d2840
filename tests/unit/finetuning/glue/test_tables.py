"""The table of the tasks: complete, consistent with the other tables, and how files are found."""

import pytest

from roberta_plugin.finetuning.glue import metrics
from roberta_plugin.finetuning.glue.tables import TABLES
from roberta_plugin.finetuning.suites import SUITES


def test_the_tasks_are_those_of_the_table_of_suites():
    assert set(TABLES) == set(SUITES["glue"][1])
    assert len({table.folder for table in TABLES.values()}) == 9


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_every_task_has_metrics_that_fit_its_kind(table):
    known = metrics.OF_PREDICTIONS if table.kind == "regression" else metrics.OF_COUNTS
    assert set(table.metrics) <= known.keys()
    assert table.selection in table.metrics
    assert bool(table.labels) != (table.kind == "regression")
    assert {source.split for source in table.sources} >= {"train", "valid", "test"}


def test_only_the_paper_s_three_start_from_mnli():
    assert {name for name, table in TABLES.items() if table.starts_from} == {"RTE", "STS-B", "MRPC"}
    assert all(table.starts_from in {"", "MNLI"} for table in TABLES.values())


def test_a_missing_dev_file_is_an_error_and_a_missing_test_file_is_not(tmp_path):
    (tmp_path / "train.tsv").touch()
    with pytest.raises(FileNotFoundError, match=r"dev\.tsv does not exist.*RTE"):
        TABLES["RTE"].found(tmp_path)
    (tmp_path / "dev.tsv").touch()
    assert list(TABLES["RTE"].found(tmp_path)) == ["train", "valid"]


def test_the_diagnostic_set_with_labels_goes_before_the_one_without(tmp_path):
    for name in ("train.tsv", "dev_matched.tsv", "dev_mismatched.tsv", "diagnostic.tsv"):
        (tmp_path / name).touch()
    found = TABLES["MNLI"].found(tmp_path)
    assert list(found) == ["train", "valid", "valid_mismatched", "ax"]
    assert not found["ax"][0].labelled
    (tmp_path / "diagnostic-full.tsv").touch()
    source, path = TABLES["MNLI"].found(tmp_path)["ax"]
    assert source.labelled and path.name == "diagnostic-full.tsv"


def test_submissions_belong_to_test_sets():
    assert TABLES["MNLI"].submission("test_mismatched").submission == "MNLI-mm"
    assert TABLES["MNLI"].submission("valid") is None
