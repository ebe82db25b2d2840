"""A finished training makes no update; other data, or another head, are named before a training resumes."""

import logging
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import fairseq_cli.train
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.tasks import TASK_REGISTRY
from fairseq.trainer import Trainer

from roberta_plugin.fairseq_workarounds import resuming
from roberta_plugin.fairseq_workarounds.resuming import (
    check_begins,
    check_trained,
    load_checkpoint,
    load_trainer,
    restore_patience,
    save_trainer,
    train,
    why_finished,
)
from roberta_plugin.tasks.masked_lm import RobertaMaskedLMTask
from roberta_plugin.tasks.masked_lm_options import RobertaMaskedLMConfig
from tests.made_extension.training_options import MadeConfig
from tests.refusals import refused
from tests.tiny_benchmarks import write_prepared
from tests.tiny_corpus import write_data_bin


def config(*, max_update=0, stop_time_hours=0, max_epoch=0, patience=0, metric="loss"):
    limits = SimpleNamespace(max_update=max_update, stop_time_hours=stop_time_hours, max_epoch=max_epoch)
    checkpoint = SimpleNamespace(patience=patience, best_checkpoint_metric=metric)
    checkpoint.maximize_best_checkpoint_metric = False
    return SimpleNamespace(optimization=limits, checkpoint=checkpoint)


@pytest.fixture
def validations():
    """fairseq's count of validations for --patience, empty at first and at the end."""
    restore_patience(config().checkpoint, {})
    yield fairseq_cli.train.should_stop_early
    restore_patience(config().checkpoint, {})


@pytest.mark.parametrize(
    ("limits", "updates", "hours", "said"),
    [
        ({"max_update": 90}, 89, 5, None),
        ({"max_update": 90}, 90, 5, "the checkpoint has 90 updates, and --max-update is 90"),
        ({"max_update": 90}, 91, 5, "the checkpoint has 91 updates, and --max-update is 90"),
        ({}, 91, 5, None),
        ({"stop_time_hours": 5}, 10, 5, None),
        ({"stop_time_hours": 5}, 10, 5.1, "the checkpoint has 5.1 hours of training, and --stop-time-hours is 5"),
        ({"stop_time_hours": 5}, 0, 5.1, None),  # the hours are of the model that a fine-tuning starts from
    ],
)
def test_limits_are_those_of_fairseq(limits, updates, hours, said):
    assert why_finished(config(**limits), updates=updates, hours=hours) == said


def trained(cfg, *, updates, caplog):
    calls = []
    trainer = SimpleNamespace(get_num_updates=lambda: updates, _previous_training_time=0.0)
    with caplog.at_level(logging.INFO):
        result = train(lambda *arguments: calls.append(arguments) or "an epoch", cfg, trainer, None, None)
    return calls, result


@pytest.mark.parametrize(("max_update", "num_calls", "expected"), [(90, 0, ([None], True)), (91, 1, "an epoch")])
def test_a_finished_training_skips_fairseqs_loop_and_says_so(caplog, max_update, num_calls, expected):
    calls, result = trained(config(max_update=max_update), updates=90, caplog=caplog)
    assert (len(calls), result) == (num_calls, expected)
    assert ("This training is finished" in caplog.text) is (num_calls == 0)


@pytest.mark.parametrize(("next_epoch", "is_said"), [(3, False), (4, True)])
def test_max_epoch_is_said(next_epoch, is_said, caplog):
    trainer = SimpleNamespace(cfg=config(max_epoch=3))
    loaded = ({}, SimpleNamespace(next_epoch_idx=next_epoch))
    with caplog.at_level(logging.INFO):
        assert load_checkpoint(lambda *arguments: loaded, None, trainer) == loaded
    assert ("has 3 epochs, and --max-epoch is 3" in caplog.text) == is_said


def test_a_trainer_without_options_is_loaded():
    """As in fairseq's tests/test_train.py, which pass with this plugin registered."""
    loaded = ({}, SimpleNamespace(next_epoch_idx=4))
    assert load_checkpoint(lambda *arguments: loaded, None, MagicMock()) == loaded


def test_a_training_that_has_ended_without_an_update_is_not_called_done(tmp_path):
    for counts, is_refused in (([0, 0], True), ([0, 3], False), ([7, 7], False)):  # at the load, after the epoch
        trainer = MagicMock(spec=Trainer)
        trainer.cfg, trainer._previous_training_time = config(max_epoch=3), 0.0
        trainer.cfg.optimization.stop_min_lr, trainer.get_lr.return_value = -1.0, 0.0
        trainer.cfg.checkpoint.save_dir = str(tmp_path)  # whose last checkpoint is loaded
        (tmp_path / "checkpoint_last.pt").touch()
        trainer.get_num_updates.side_effect = [counts[0]] * 4 + [counts[1]]
        load_checkpoint(lambda *arguments: ({}, SimpleNamespace(next_epoch_idx=4)), None, trainer)
        train(lambda *arguments: "an epoch", trainer.cfg, trainer, None, None)
        if is_refused:
            refused("without a single update", check_trained)
        else:
            check_trained()


@pytest.mark.parametrize(
    ("limits", "said"),
    [({"max_update": 7}, "has 7 updates, and --max-update is 7"), ({"max_epoch": 3}, "has 3 epochs, and --max-epoch")],
)
def test_a_training_that_would_add_nothing_to_the_one_that_it_continues_is_refused(limits, said, tmp_path):
    trainer = MagicMock(spec=Trainer)
    trainer.cfg, trainer._previous_training_time = config(**limits), 0.0
    trainer.cfg.optimization.stop_min_lr, trainer.get_lr.return_value = -1.0, 0.1
    trainer.get_num_updates.return_value = 7
    old, new = (tmp_path / name / "checkpoint_last.pt" for name in ("old", "new"))
    for path in (old, new):
        path.parent.mkdir()
    old.touch()
    starts = {"save_dir": str(new.parent), "restore_file": str(old), "continue_once": None, "finetune_from_model": None}
    vars(trainer.cfg.checkpoint).update(starts)

    def load():
        load_checkpoint(lambda *arguments: ({}, SimpleNamespace(next_epoch_idx=4)), None, trainer)

    refused(rf"Nothing would be trained after {old}: the checkpoint {said}.*--finetune-from-model {old}", load)
    new.touch()  # its own last checkpoint: the training is finished
    load()


def test_a_rate_that_ends_the_training_before_its_first_update_is_refused():
    trainer = SimpleNamespace(cfg=config(), get_lr=lambda: 0.0, get_num_updates=lambda: 0)
    trainer.cfg.optimization.stop_min_lr = 1e-9
    refused("--stop-min-lr 1e-09 ends this training before its first update", check_begins, trainer)
    trainer.get_num_updates = lambda: 4  # it has come to its end
    check_begins(trainer)


def kept(trainer, filename, extra_state):
    """As fairseq's `save_checkpoint` of the trainer, which writes the state."""
    return extra_state


def test_the_note_of_an_unfinished_update_is_saved_and_loaded_where_the_training_is_resumed():
    trainer = SimpleNamespace(cfg=config())
    assert save_trainer(kept, trainer, "a.pt", {"best": 2}) == {"best": 2}
    trainer.unfinished_update = note = {"epoch": 1, "end_of_epoch": False}
    saved = save_trainer(kept, trainer, "a.pt", {"best": 2})
    assert saved == {"best": 2, "unfinished_update": note}
    for options, expected in [({}, note), ({"reset_optimizer": True}, None), ({"reset_meters": True}, None)]:
        assert load_trainer(lambda *arguments, **options: saved, trainer, "a.pt", **options) == saved
        assert trainer.unfinished_update == expected
    load_trainer(lambda *arguments, **options: None, trainer, "a.pt")
    assert trainer.unfinished_update is None


@pytest.mark.parametrize("folder", ["checkpoints", "other"])
def test_weights_of_a_finished_training_are_not_trained_again_and_of_another_refused(folder):
    counted, updates = [], [0]  # 0: `roberta import` has written it
    trainer = SimpleNamespace(cfg=config(max_update=5), set_num_updates=counted.append, get_num_updates=lambda: 0)
    trainer.cfg.checkpoint.save_dir = "checkpoints"

    def load(trainer, filename, *_, **__):
        trainer._optim_history = [{"num_updates": updates[-1]}]
        return {}

    load_trainer(load, trainer, f"{folder}/checkpoint_last.pt")
    updates.append(5)
    load_trainer(load, trainer, f"{folder}/checkpoint_last.pt")
    assert counted == ([5] if folder == "checkpoints" else [])
    updates.append(4)
    load_trainer(load, trainer, f"{folder}/checkpoint_last.pt", reset_optimizer=True)
    with pytest.raises(ValueError, match="no state of the optimizer") if counted else nullcontext():
        load_trainer(load, trainer, f"{folder}/checkpoint_last.pt")


def saved_state(cfg):
    return save_trainer(kept, SimpleNamespace(cfg=cfg), "a.pt", {"best": 2})


def test_the_count_of_patience_is_saved_and_restored(validations, caplog):
    cfg = config(patience=2)
    assert saved_state(cfg) == {"best": 2}
    assert [validations(cfg, loss) for loss in (3.0, 2.0, 2.5)] == [False, False, False]
    state = saved_state(cfg)
    assert state["patience"] == {"best": 2.0, "num_runs": 1, "metric": "loss", "is_maximized": False}
    restore_patience(cfg.checkpoint, {})
    assert not hasattr(validations, "best")
    trainer = SimpleNamespace(cfg=cfg)
    assert load_trainer(lambda *arguments, **options: state, trainer, "a.pt", reset_meters=False) == state
    assert why_finished(cfg, updates=10, hours=1) is None
    assert validations(cfg, 2.5), "the second validation that is no better"
    assert "early stop: no improvement in the last 2 validations" in why_finished(cfg, updates=10, hours=1)
    assert why_finished(config(patience=3), updates=10, hours=1) is None
    calls, result = trained(cfg, updates=10, caplog=caplog)
    assert (calls, result) == ([], ([None], True))


@pytest.mark.parametrize("options", [{"reset_optimizer": True}, {"reset_meters": True}, {"metric": "accuracy"}])
def test_the_count_is_that_of_this_training_and_metric(validations, options):
    validations(config(patience=2), 3.0)
    state = saved_state(config(patience=2))
    cfg = config(patience=2, metric=options.pop("metric", "loss"))
    load_trainer(lambda *arguments, **options: state, SimpleNamespace(cfg=cfg), "a.pt", **options)
    assert not hasattr(validations, "best")


def test_the_best_loss_of_an_earlier_training_of_the_process_is_forgotten():
    checkpoint_utils.save_checkpoint.best = 2.5
    load_trainer(lambda *arguments, **options: None, SimpleNamespace(cfg=config()), "a.pt")
    assert not hasattr(checkpoint_utils.save_checkpoint, "best")


@pytest.mark.parametrize(("max_update", "result"), [(91, "an epoch"), (90, ([None], True))])
def test_what_a_stop_has_left_is_finished_by_a_start_that_goes_beyond_it(max_update, result):
    """A part of a training whose limit is passed leaves it to the later part."""
    trainer = SimpleNamespace(get_num_updates=lambda: 90, _previous_training_time=0.0, unfinished_update={"epoch": 1})
    assert train(lambda *arguments: "an epoch", config(max_update=max_update), trainer, None, None) == result


@pytest.mark.parametrize(
    "names", [("RobertaMaskedLMCriterion", "MaskedLmLoss"), ("MaskedLmLoss", "RobertaMaskedLMCriterion")]
)
def test_masked_lm_criterions_take_over_from_each_other_and_others_are_refused_by_name(names):
    """There and back: fairseq alone takes over what `--criterion masked_lm` has written."""
    ours, theirs = names
    names = ("fp16", "bf16", "amp", "memory_efficient_fp16", "memory_efficient_bf16")
    common = SimpleNamespace(**dict.fromkeys(names, False))
    cfg = SimpleNamespace(common=common, optimizer=SimpleNamespace(_name="adam"))
    trainer = SimpleNamespace(cfg=cfg, get_criterion=type(ours, (), {}))
    history = [{"criterion_name": theirs, "optimizer_name": "FairseqAdam"}]
    state = {"optimizer_history": history, "last_optimizer_state": {}}
    refused(f"--criterion was {theirs} and is {ours} now", resuming.check_classes, trainer, state, PATH)
    resuming.rename_classes(trainer, state)
    resuming.check_classes(trainer, state, PATH)
    common.bf16 = True
    message = r"--bf16.* was FairseqAdam and is FP16Optimizer now\..*--finetune-from-model runs/checkpoint_last\.pt and another --save-dir"
    refused(message, resuming.check_classes, trainer, state, PATH)
    resuming.check_classes(trainer, {**state, "last_optimizer_state": None}, PATH)  # as of a released model


PATH = Path("runs/checkpoint_last.pt")
SIZES = {"encoder_layers": 1, "encoder_embed_dim": 8, "encoder_ffn_embed_dim": 8, "encoder_attention_heads": 2}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("set") / "set", task="made-other")


def trainer_of(prepared, **options):
    settings = MadeConfig(data=str(prepared.folder), seed=3, **options)
    task = TASK_REGISTRY["roberta_made"].setup_task(settings)
    model = task.build_model(Namespace(arch="fast_roberta_tiny", **SIZES))
    options = {**vars(settings), "_name": "roberta_made", "max_positions": 512}
    dataset = SimpleNamespace(train_subset="train")
    cfg = SimpleNamespace(task=options, model=model.cfg, dataset=dataset, checkpoint=config().checkpoint)
    return SimpleNamespace(task=task, cfg=cfg, get_model=lambda: model)


def state_of(trainer, **task):
    cfg = {"task": {**trainer.cfg.task, **task}, "model": {}}
    return {"model": trainer.get_model().state_dict(), "task_state": trainer.task.state_dict(), "cfg": cfg}


def test_the_same_training_goes_on_and_options_that_differ_are_named(prepared, caplog):
    """Before the optimizer's state does not fit."""
    trainer = trainer_of(prepared)
    resuming.check_continues(trainer, state_of(trainer), PATH)
    resuming.check_continues(trainer, state_of(trainer, made_switch=True), PATH)
    assert "with other options: --made-switch was True and is False now" in caplog.text


def test_another_head_is_named_by_its_options_before_torch_refuses_the_state(prepared, monkeypatch):
    state = state_of(trainer_of(prepared))
    trainer = trainer_of(prepared, made_layers=2)
    message = "was trained with another head: --made-layers was 0 and is 2 now"
    refused(message, resuming.check_continues, trainer, state, PATH)
    # and where fairseq calls it: not if the optimizer begins anew, as with --finetune-from-model
    monkeypatch.setattr(checkpoint_utils, "load_checkpoint_to_cpu", lambda *_, **__: state)

    def fairseqs(trainer, filename, reset_optimizer=False):
        return checkpoint_utils.load_checkpoint_to_cpu(filename)

    assert resuming.load_trainer(fairseqs, trainer, str(PATH), True) is state
    message = "To continue, give the options that it was started with"
    refused(message, resuming.load_trainer, fairseqs, trainer, str(PATH), reset_optimizer=False)


@pytest.mark.parametrize("arch", ["fast_roberta", "roberta"])
@pytest.mark.parametrize(
    ("name", "value", "default"),
    [("share_layers", "groups:1", "none"), ("feed_forward", "geglu", "plain"), ("qk_norm", True, False)],
)
def test_other_layers_are_named_before_torch_refuses_the_optimizer_s_state(prepared, arch, name, value, default):
    trainer = trainer_of(prepared)
    state = state_of(trainer)
    state["cfg"]["model"] = {**vars(trainer.cfg.model), name: value}
    if arch == "roberta":  # which has no such options
        trainer.cfg.model = SimpleNamespace()
    option = f"--{name.replace('_', '-')}"
    message = f"with a different architecture: {option} was {value} and is {default} now"
    refused(message, resuming.check_continues, trainer, state, PATH)


def test_a_fine_tuning_does_not_resume_with_another_activation_of_its_head(prepared):
    trainer = trainer_of(prepared)
    state = state_of(trainer)
    state["cfg"]["model"] = {**vars(trainer.cfg.model), "pooler_activation_fn": "relu"}
    trainer.cfg.model.pooler_activation_fn = "tanh"
    message = "with a different architecture: --pooler-activation-fn was relu and is tanh now"
    refused(message, resuming.check_continues, trainer, state, PATH)


def test_weights_that_do_not_fit_a_new_training_are_explained_by_all_options_that_differ(prepared, monkeypatch):
    """As of an imported model, whose saved options say nothing of the places of its norms."""
    trainer = trainer_of(prepared)
    state = state_of(trainer)
    layer = "encoder.sentence_encoder.layers.0.fc2.weight"
    names = (layer, "encoder.sentence_encoder.layer_norm.weight")
    state["model"] = {**dict.fromkeys(names, torch.zeros(8)), **dict(state["model"])}
    monkeypatch.setattr(checkpoint_utils, "load_checkpoint_to_cpu", lambda *_, **__: state)

    def fairseqs(trainer, filename, reset_optimizer=False):
        checkpoint_utils.load_checkpoint_to_cpu(filename)
        raise Exception("Cannot load model parameters from checkpoint")

    message = "--encoder-normalize-before was True and is False now.* Its weights do not fit: give the options"
    refused(message, resuming.load_trainer, fairseqs, trainer, str(PATH), True)


def test_other_data_are_named(prepared):
    trainer = trainer_of(prepared)
    state = state_of(trainer)
    state["task_state"]["data"] = {**state["task_state"]["data"], "task": "made-plain"}
    message = r"was fine-tuned on made-plain, but .* for made-other.* give another --save-dir"
    refused(message, resuming.check_continues, trainer, state, PATH)


def test_other_examples_of_the_same_number_are_named(prepared, tmp_path):
    state = state_of(trainer_of(prepared))
    other = write_prepared(tmp_path / "set", task="made-other", seed=1)
    assert len(other.split("train")) == len(prepared.split("train")) > 0
    changed = r"the split train was \w{8} and is \w{8} now.* another --save-"
    message = rf"last\.pt was trained on other examples .*{changed}"
    refused(message, resuming.check_continues, trainer_of(other), state, PATH)
    del state["task_state"]["data"]["examples"]  # a checkpoint of an earlier version goes on as before
    resuming.check_continues(trainer_of(other), state, PATH)


def test_another_vocabulary_of_the_same_size_is_named(prepared, monkeypatch, caplog):
    trainer = trainer_of(prepared)
    state = state_of(trainer)
    state["task_state"]["data"] = {**state["task_state"]["data"], "vocabulary": "0"}
    message = r"dict\.txt was 0 and is \w{8} now\. .*give another --save-dir\.$"
    refused(message, resuming.check_continues, trainer, state, PATH)
    # a training that begins with such weights may mean it
    monkeypatch.setattr(checkpoint_utils, "load_checkpoint_to_cpu", lambda *_, **__: state)
    resuming.load_trainer(lambda *_: checkpoint_utils.load_checkpoint_to_cpu(PATH), trainer, str(PATH), True)
    assert "dict.txt was 0 and is " in caplog.text


def test_so_it_is_in_pretraining(tmp_path):
    task = RobertaMaskedLMTask.setup_task(RobertaMaskedLMConfig(data=str(write_data_bin(tmp_path)), seed=1))
    model = SimpleNamespace(state_dict=dict)
    cfg = SimpleNamespace(task={}, model=SimpleNamespace())
    trainer = SimpleNamespace(task=task, cfg=cfg, get_model=lambda: model)
    state = {"model": {}, "task_state": task.state_dict(), "cfg": {}}
    for unknown in ({}, None):
        resuming.check_continues(trainer, {**state, "task_state": unknown}, PATH)
    resuming.check_continues(trainer, state, PATH)
    state["task_state"]["data"]["vocabulary"] = "0"
    message = rf"dict\.txt than that of {tmp_path}: dict\.txt was 0 and is"
    refused(message, resuming.check_continues, trainer, state, PATH)


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
    saved = {"model": head, "cfg": {"task": saved}}
    refused(f"with another head: {options}{shapes}", resuming.check_continues, trainer, saved, PATH)
    cfg.model.load_checkpoint_heads = True
    resuming.check_continues(trainer, saved, PATH)
