"""The metric that chooses checkpoints, and criterions of other tasks."""

from types import SimpleNamespace

import pytest
from fairseq.tasks import TASK_REGISTRY

from roberta_plugin.tasks.finetuning import FineTuningConfig
from tests.fairseq_tasks import check_selection
from tests.tiny_benchmarks import write_prepared


@pytest.fixture
def task(tmp_path):
    prepared = write_prepared(tmp_path / "set", task="race")
    return TASK_REGISTRY["race"].setup_task(FineTuningConfig(data=str(prepared.folder), seed=1))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("accuracy_middle",), ""),
        (("loss", 0), ""),
        (("micro_f1",), "--best-checkpoint-metric micro_f1 is not logged .* choose by loss, accuracy, "),
    ],
)
def test_checkpoints_are_chosen_by_what_every_validation_logs(task, options, sentence):
    check_selection(task, options, sentence)


def test_criterions_of_other_tasks_are_refused_by_name(task):
    with pytest.raises(ValueError, match="--task race goes with --criterion race, not with --criterion"):
        task.build_criterion(SimpleNamespace(criterion="roberta_sentence_prediction"))
