"""What all fine-tuning tasks refuse before any work is done: data, options, and criterions of other tasks."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from omegaconf import MISSING

import roberta_plugin
from roberta_plugin.criterions.masked_lm import RobertaMaskedLMCriterion
from roberta_plugin.tasks import finetuning as tasks
from roberta_plugin.tasks.masked_lm import RobertaMaskedLMConfig, RobertaMaskedLMTask
from tests.fairseq_tasks import check_head_above, check_selection
from tests.made_extension.training_options import MadeConfig
from tests.tiny_benchmarks import write_prepared
from tests.tiny_corpus import write_data_bin

roberta_plugin.register()
SIZES = {"encoder_layers": 1, "encoder_embed_dim": 8, "encoder_ffn_embed_dim": 8, "encoder_attention_heads": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("set") / "set").folder


def setup(folder, **options):
    return TASK_REGISTRY["roberta_sentence_prediction"].setup_task(
        tasks.FineTuningConfig(data=str(folder), seed=1, **options)
    )


def test_the_vocabulary_and_the_splits_are_those_of_the_folder(folder):
    task = setup(folder, max_positions=64)
    task.load_dataset("valid")
    assert len(task.dataset("valid")) == 40
    assert len(task.source_dictionary) == len(task.vocabulary) == len(task.prepared.vocabulary)
    assert task.source_dictionary.index("<mask>") == task.vocabulary.mask_id
    assert task.max_positions() == 64


def test_folders_for_another_task_or_none_and_a_model_that_is_too_short_are_refused(folder, tmp_path):
    other = write_prepared(tmp_path / "set", task="made-other").folder
    for data, options, error, message in (
        (folder, {"max_positions": 20}, ValueError, "of up to 30 tokens, and --max-positions is 20: prepare it again"),
        (other, {}, ValueError, "prepared for made-other: give --task roberta_made, not roberta_sentence_prediction"),
        (tmp_path, {}, FileNotFoundError, "roberta prepare TASK"),
        (MISSING, {}, ValueError, "data folder is missing"),
    ):
        with pytest.raises(error, match=message):
            setup(data, **options)
    with pytest.raises(ValueError, match="no split 'dev'; it has train, valid"):
        setup(folder).load_dataset("dev")


def test_packed_rows_of_a_kind_that_cannot_read_them_are_refused(tmp_path):
    prepared = write_prepared(tmp_path / "set", task="made-other")
    cfg = MadeConfig(data=str(prepared.folder), seed=1, pack_sequences=True)
    with pytest.raises(ValueError, match="--pack-sequences does not go with --task roberta_made"):
        TASK_REGISTRY["roberta_made"].setup_task(cfg)


def test_packed_rows_need_a_model_that_can(folder):
    from fairseq.models.roberta.model import base_architecture

    args = Namespace(arch="roberta_base", encoder_layers=1, encoder_embed_dim=8, encoder_attention_heads=2)
    args.encoder_ffn_embed_dim, args._name, args.max_positions = 8, "roberta", 64
    base_architecture(args)
    setup(folder).build_model(args)
    with pytest.raises(ValueError, match="--pack-sequences needs a model that keeps the sequences of a row apart"):
        setup(folder, pack_sequences=True).build_model(args)


def test_a_head_of_ours_is_above_all_layers_and_fairseqs_own_model_has_none(tmp_path):
    prepared = write_prepared(tmp_path / "set", task="made-other")
    task = TASK_REGISTRY["roberta_made"].setup_task(MadeConfig(data=str(prepared.folder), seed=3))
    check_head_above(task, "made_head.out_proj", "made_token")


CRITERIONS = {
    "roberta_masked_lm": RobertaMaskedLMCriterion,
    "roberta_sentence_prediction": CRITERION_REGISTRY["roberta_sentence_prediction"],
    "roberta_made": CRITERION_REGISTRY["roberta_made"],
    "masked_lm": None,
    "cross_entropy": None,
}
TASKS = {"roberta_masked_lm": "", "roberta_sentence_prediction": "made", "roberta_made": "made-other"}


@pytest.fixture(scope="module")
def all_tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    data_bin = write_data_bin(folder / "text", num_documents=3, valid_documents=2)
    found = {"roberta_masked_lm": RobertaMaskedLMTask.setup_task(RobertaMaskedLMConfig(data=str(data_bin), seed=1))}
    for name in ("roberta_sentence_prediction", "roberta_made"):
        data = write_prepared(folder / name, task=TASKS[name]).folder
        config = MadeConfig if name == "roberta_made" else tasks.FineTuningConfig
        found[name] = TASK_REGISTRY[name].setup_task(config(data=str(data), seed=1))
    return found


@pytest.mark.parametrize("criterion", CRITERIONS)
@pytest.mark.parametrize("task", TASKS)
def test_a_task_takes_its_own_criterion_and_refuses_others_by_name(all_tasks, task, criterion):
    cfg = SimpleNamespace(criterion=criterion)
    if criterion == task:
        assert isinstance(all_tasks[task].build_criterion(cfg), CRITERIONS[criterion])
    if criterion == task or (task, criterion) == ("roberta_masked_lm", "masked_lm"):
        return
    said = rf"--task .*--criterion .*{criterion}|--criterion {criterion} .*--task {task}"
    with pytest.raises(ValueError, match=said):
        all_tasks[task].build_criterion(cfg)


@pytest.mark.parametrize("criterion", [name for name, of_ours in CRITERIONS.items() if hasattr(of_ours, "config")])
def test_a_fine_tuning_criterion_refuses_fairseq_s_own_tasks(criterion):
    task = SimpleNamespace(target_dictionary=None, cfg=SimpleNamespace(_name="sentence_prediction"))
    said = f"--criterion {criterion} goes with --task {criterion} .* sentence_prediction"
    with pytest.raises(ValueError, match=said):
        CRITERIONS[criterion].build_criterion(SimpleNamespace(), task)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("accuracy",), ""),
        (("loss", 0), ""),
        (("micro_f1",), "--best-checkpoint-metric micro_f1 is not logged .* choose by loss, accuracy, "),
        (("accuracy", 0), "accuracy is measured on a whole split, but --max-valid-steps 0 .* by the loss"),
        (("accuracy", 0, "--disable-validation"), ""),
    ],
)
def test_checkpoints_are_chosen_by_what_every_validation_logs(all_tasks, options, sentence):
    check_selection(all_tasks["roberta_sentence_prediction"], options, sentence)
