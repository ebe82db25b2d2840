"""A training that is started again with other data, or another head, in the same folder."""

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils

from roberta_plugin.fairseq_workarounds import resumed_training
from roberta_plugin.tasks.masked_lm import RobertaMaskedLMTask
from roberta_plugin.tasks.masked_lm_options import RobertaMaskedLMConfig
from roberta_plugin.tasks.summarization import SummarizationConfig, SummarizationTask
from tests.tiny_corpus import write_data_bin
from tests.tiny_summaries import write_prepared, write_raw

PATH = Path("runs/checkpoint_last.pt")
SIZES = {"encoder_layers": 1, "encoder_embed_dim": 8, "encoder_ffn_embed_dim": 8, "encoder_attention_heads": 2}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("summaries"))


def trainer_of(prepared, **options):
    config = SummarizationConfig(data=str(prepared.folder), seed=3, **options)
    task = SummarizationTask.setup_task(config)
    model = task.build_model(Namespace(arch="fast_roberta_tiny", **SIZES))
    options = {**vars(config), "_name": "roberta_summarization", "max_positions": 512}
    cfg = SimpleNamespace(task=options, model=model.cfg, dataset=SimpleNamespace(train_subset="train"))
    return SimpleNamespace(task=task, cfg=cfg, get_model=lambda: model)


def state_of(trainer, **task):
    cfg = {"task": {**trainer.cfg.task, **task}, "model": {}}
    return {"model": trainer.get_model().state_dict(), "task_state": trainer.task.state_dict(), "cfg": cfg}


def test_the_same_training_goes_on(prepared):
    trainer = trainer_of(prepared)
    resumed_training.check_continues(trainer, state_of(trainer), PATH)


def test_another_head_is_named_by_its_options_before_torch_refuses_the_state(prepared, monkeypatch):
    state = state_of(trainer_of(prepared))
    trainer = trainer_of(prepared, sentence_layers=0)
    with pytest.raises(ValueError, match="is of a training with another head: --sentence-layers was 2 and is 0 now"):
        resumed_training.check_continues(trainer, state, PATH)
    # and where fairseq calls it: not if the optimizer begins anew, as with --finetune-from-model
    monkeypatch.setattr(checkpoint_utils, "load_checkpoint_to_cpu", lambda *_, **__: state)

    def fairseqs(trainer, filename, reset_optimizer=False):
        return checkpoint_utils.load_checkpoint_to_cpu(filename)

    assert resumed_training.load_checkpoint(fairseqs, trainer, str(PATH), True) is state
    with pytest.raises(ValueError, match="To continue, give the options that it was started with"):
        resumed_training.load_checkpoint(fairseqs, trainer, str(PATH), reset_optimizer=False)


def test_other_data_are_named(prepared):
    trainer = trainer_of(prepared)
    state = state_of(trainer)
    state["task_state"]["data"] = {**state["task_state"]["data"], "task": "race"}
    with pytest.raises(ValueError, match=r"was fine-tuned on race, and .* for summaries.* give another --save-dir"):
        resumed_training.check_continues(trainer, state, PATH)


def test_other_examples_of_the_same_number_are_named(prepared, tmp_path):
    state = state_of(trainer_of(prepared))
    other = write_prepared(tmp_path, raw=write_raw(tmp_path / "raw", seed=1))
    assert len(other.split("train")) == len(prepared.split("train")) > 0
    with pytest.raises(
        ValueError, match=r"'train' has other examples than runs/checkpoint_last\.pt .* another --save-"
    ):
        resumed_training.check_continues(trainer_of(other), state, PATH)
    del state["task_state"]["data"]["examples"]  # a checkpoint of an earlier version goes on as before
    resumed_training.check_continues(trainer_of(other), state, PATH)


def test_another_vocabulary_of_the_same_size_is_named(prepared, monkeypatch, caplog):
    trainer = trainer_of(prepared)
    state = state_of(trainer)
    state["task_state"]["data"] = {**state["task_state"]["data"], "vocabulary": "0"}
    with pytest.raises(ValueError, match=r"another dict\.txt than that of .*give another --save-dir\.$"):
        resumed_training.check_continues(trainer, state, PATH)
    # a training that begins with such weights may mean it
    monkeypatch.setattr(checkpoint_utils, "load_checkpoint_to_cpu", lambda *_, **__: state)
    resumed_training.load_checkpoint(lambda *_: checkpoint_utils.load_checkpoint_to_cpu(PATH), trainer, str(PATH), True)
    assert "was trained with another dict.txt than that of" in caplog.text


def test_so_it_is_in_pretraining(tmp_path):
    task = RobertaMaskedLMTask.setup_task(RobertaMaskedLMConfig(data=str(write_data_bin(tmp_path)), seed=1))
    model = SimpleNamespace(state_dict=dict)
    cfg = SimpleNamespace(task={}, model=SimpleNamespace())
    trainer = SimpleNamespace(task=task, cfg=cfg, get_model=lambda: model)
    state = {"model": {}, "task_state": task.state_dict(), "cfg": {}}
    for unknown in ({}, None):
        resumed_training.check_continues(trainer, {**state, "task_state": unknown}, PATH)
    resumed_training.check_continues(trainer, state, PATH)
    state["task_state"]["data"]["vocabulary"] = "0"
    with pytest.raises(ValueError, match=rf"another dict\.txt than that of {tmp_path}, so ids stand for other words"):
        resumed_training.check_continues(trainer, state, PATH)


@pytest.mark.parametrize("is_older", [False, True])
def test_heads_of_fairseq_s_own_models_and_tasks_are_compared_too(is_older):
    """roberta_adamw would take over the moments of a head of another shape, and write beyond their ends."""
    head = {"classification_heads.mnli.out_proj.weight": torch.zeros(3, 8)}
    saved, given = ({"_name": "sentence_prediction", "num_classes": number} for number in (3, 2))
    model = SimpleNamespace(state_dict=lambda: {name: value[:2] for name, value in head.items()})
    cfg = SimpleNamespace(task=Namespace(**given) if is_older else given, model=Namespace(load_checkpoint_heads=False))
    trainer = SimpleNamespace(task=SimpleNamespace(state_dict=dict), cfg=cfg, get_model=lambda: model)
    options = "" if is_older else "--num-classes was 3 and is 2 now; "
    shapes = r"classification_heads\.mnli\.out_proj\.weight was 3 x 8 and is 2 x 8 now\."
    with pytest.raises(ValueError, match=f"with another head: {options}{shapes}"):
        resumed_training.check_continues(trainer, {"model": head, "cfg": {"task": saved}}, PATH)
    cfg.model.load_checkpoint_heads = True
    resumed_training.check_continues(trainer, {"model": head, "cfg": {"task": saved}}, PATH)
