"""The table of the tasks: complete, consistent with the other tables, and how files are found."""

import pytest

from roberta_plugin.finetuning.benchmarks import BENCHMARKS
from roberta_plugin.finetuning.glue.tasks import TASKS
from roberta_plugin.finetuning.options import GlueOptions
from roberta_plugin.kinds import metrics


def test_the_tasks_are_those_of_the_table_of_suites():
    assert set(TASKS) == set(BENCHMARKS["glue"][1])
    assert len({glue_task.folder or glue_task.name for glue_task in TASKS.values()}) == 9


@pytest.mark.parametrize("glue_task", TASKS.values(), ids=lambda glue_task: glue_task.name)
def test_every_task_has_metrics_that_fit_its_kind(glue_task):
    known = metrics.OF_PREDICTIONS if glue_task.kind == "regression" else metrics.OF_COUNTS
    assert set(glue_task.metrics) <= known.keys()
    assert glue_task.selection in glue_task.metrics
    assert bool(glue_task.labels) != (glue_task.kind == "regression")
    assert {source.split for source in glue_task.sources} >= {"train", "valid", "test"}


def test_only_the_paper_s_three_start_from_mnli():
    assert {name for name, glue_task in TASKS.items() if glue_task.starts_from} == {"RTE", "STS-B", "MRPC"}
    assert all(glue_task.starts_from in {"", "MNLI"} for glue_task in TASKS.values())


def test_a_missing_dev_file_is_an_error_and_a_missing_test_file_is_not(tmp_path):
    (tmp_path / "train.tsv").touch()
    with pytest.raises(FileNotFoundError, match=r"holds no dev\.tsv: RTE needs the official files"):
        TASKS["RTE"].files(tmp_path, GlueOptions())
    (tmp_path / "dev.tsv").touch()
    assert list(TASKS["RTE"].files(tmp_path, GlueOptions())) == ["train", "valid"]


def test_the_diagnostic_set_with_labels_goes_before_the_one_without(tmp_path):
    for name in ("train.tsv", "dev_matched.tsv", "dev_mismatched.tsv", "diagnostic.tsv"):
        (tmp_path / name).touch()
    mnli = TASKS["MNLI"]
    found = mnli.files(tmp_path, GlueOptions())
    assert list(found) == ["train", "valid", "valid_mismatched", "ax"]
    assert not mnli.source("ax", *found["ax"]).labelled
    (tmp_path / "diagnostic-full.tsv").touch()
    (path,) = mnli.files(tmp_path, GlueOptions())["ax"]
    assert mnli.source("ax", path).labelled and path.name == "diagnostic-full.tsv"


def test_names_of_the_prediction_files():
    assert TASKS["MNLI"].prediction_files("test_mismatched") == ("MNLI-mm.tsv",)
    assert TASKS["MNLI"].prediction_files("valid_mismatched") == ("MNLI.valid_mismatched.tsv",)
    assert TASKS["QNLI-ranking"].prediction_files("test") == ("QNLI.tsv",)
