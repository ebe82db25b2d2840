"""A training that is started again with other data, or another head, in the same folder."""

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fairseq import checkpoint_utils

from roberta_plugin.fairseq_workarounds import resumed_training
from roberta_plugin.tasks.summarization import SummarizationConfig, SummarizationTask
from tests.tiny_summaries import write_prepared

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
    return SimpleNamespace(task=task, cfg=SimpleNamespace(task=options), get_model=lambda: model)


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
    with pytest.raises(ValueError, match="To continue, give what it was started with"):
        resumed_training.load_checkpoint(fairseqs, trainer, str(PATH), reset_optimizer=False)


def test_other_data_are_named(prepared):
    trainer = trainer_of(prepared)
    state = state_of(trainer)
    state["task_state"]["data"] = {**state["task_state"]["data"], "task": "race"}
    with pytest.raises(ValueError, match=r"was fine-tuned on race, and .* for summaries.* give another --save-dir"):
        resumed_training.check_continues(trainer, state, PATH)
