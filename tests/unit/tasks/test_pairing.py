"""Every pair of --task and --criterion works or is refused with both names, before anything is built."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.options import get_training_parser, parse_args_and_arch

from roberta_plugin.criterions.finetuning import (
    RaceCriterion,
    RobertaSentencePredictionCriterion,
    Squad2Criterion,
    SummarizationCriterion,
)
from roberta_plugin.criterions.masked_lm import RobertaMaskedLMCriterion
from roberta_plugin.tasks.finetuning import (
    FineTuningConfig,
    RaceTask,
    RobertaSentencePredictionTask,
    Squad2Config,
    Squad2Task,
)
from roberta_plugin.tasks.masked_lm import RobertaMaskedLMConfig, RobertaMaskedLMTask
from tests.tiny_benchmarks import write_prepared
from tests.tiny_corpus import write_data_bin

CRITERIONS = {
    "roberta_masked_lm": RobertaMaskedLMCriterion,
    "roberta_sentence_prediction": RobertaSentencePredictionCriterion,
    "race": RaceCriterion,
    "squad2": Squad2Criterion,
    "roberta_summarization": SummarizationCriterion,
    "masked_lm": None,
    "cross_entropy": None,
}
TASKS = ("roberta_masked_lm", "roberta_sentence_prediction", "race", "squad2")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    data_bin = write_data_bin(folder / "text", num_documents=3, valid_documents=2)
    kinds = {
        "roberta_sentence_prediction": (RobertaSentencePredictionTask, FineTuningConfig, "RTE"),
        "race": (RaceTask, FineTuningConfig, "race"),
        "squad2": (Squad2Task, Squad2Config, "squad2"),
    }
    found = {"roberta_masked_lm": RobertaMaskedLMTask.setup_task(RobertaMaskedLMConfig(data=str(data_bin), seed=1))}
    for name, (task, config, prepared_for) in kinds.items():
        data = write_prepared(folder / name, task=prepared_for).folder
        found[name] = task.setup_task(config(data=str(data), seed=1))
    return found


@pytest.mark.parametrize("criterion", CRITERIONS)
@pytest.mark.parametrize("task", TASKS)
def test_a_task_takes_its_own_criterion_and_refuses_others_by_name(tasks, task, criterion):
    options = {"max_answer_length": 30} if criterion == "squad2" else {}
    cfg = SimpleNamespace(criterion=criterion, **options)
    if criterion == task or (task, criterion) == ("roberta_masked_lm", "masked_lm"):
        if criterion == task:
            assert isinstance(tasks[task].build_criterion(cfg), CRITERIONS[criterion])
        return
    with pytest.raises(
        ValueError, match=rf"--task .*--criterion .*{criterion}|--criterion {criterion} .*--task {task}"
    ):
        tasks[task].build_criterion(cfg)


@pytest.mark.parametrize("criterion", [name for name, of_ours in CRITERIONS.items() if hasattr(of_ours, "config")])
def test_a_fine_tuning_criterion_refuses_fairseq_s_own_tasks(criterion):
    task = SimpleNamespace(target_dictionary=None, cfg=SimpleNamespace(_name="sentence_prediction"))
    with pytest.raises(
        ValueError, match=f"--criterion {criterion} goes with --task {criterion} .* sentence_prediction"
    ):
        CRITERIONS[criterion].build_criterion(SimpleNamespace(max_answer_length=30), task)


@pytest.mark.parametrize(
    ("task", "options", "sentence"),
    [
        ("race", ("accuracy_middle",), ""),
        ("race", ("loss", 0), ""),
        ("squad2", ("span_loss", 3), ""),
        ("squad2", ("accuracy",), "--best-checkpoint-metric accuracy is not logged .* loss, span_loss, .* tuned_f1,"),
        ("race", ("micro_f1",), "--best-checkpoint-metric micro_f1 is not logged .* choose by loss, accuracy, "),
        ("squad2", ("f1", 0), "f1 is measured on a whole split, but --max-valid-steps 0 .* by the loss"),
        ("squad2", ("f1", 0, "--disable-validation"), ""),
    ],
)
def test_checkpoints_are_chosen_by_what_every_validation_logs(tasks, task, options, sentence):
    args = ["data", "--task", task, "--criterion", task, "--arch", "fast_roberta_tiny", "--optimizer", "roberta_adamw"]
    for option, value in zip(("--best-checkpoint-metric", "--max-valid-steps"), options, strict=False):
        args += [option, str(value)]
    args += options[2:]
    cfg = convert_namespace_to_omegaconf(parse_args_and_arch(get_training_parser(), args)).criterion
    with pytest.raises(ValueError, match=sentence) if sentence else nullcontext():
        tasks[task].build_criterion(cfg)
