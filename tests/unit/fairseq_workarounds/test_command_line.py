"""What fairseq's commands make of wrong and of removed options: one sentence."""

import traceback
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.data import data_utils
from torch._utils import ExceptionWrapper
from torch.multiprocessing.spawn import ProcessRaisedException

import roberta_plugin
from roberta_plugin.fairseq_workarounds import command_line
from roberta_plugin.fairseq_workarounds.command_line import (
    DEBUG,
    REMOVED,
    call_main,
    check_devices,
    refusal_in,
    without_removed,
)
from roberta_plugin.launch import arguments
from roberta_plugin.tasks.block_task import load_vocabulary
from roberta_plugin.tasks.masked_lm_checks import check_folders
from tests.refusals import refused
from tests.tiny_checkpoints import change_options, state_of

roberta_plugin.register()
NAMED = "does not exist: give one that `roberta binarize` or fairseq-preprocess has written."


def in_the_task(folder):
    check_folders([folder / "no"])


def while_weights_are_loaded(folder):
    """As `Trainer.load_checkpoint` does."""
    try:
        in_the_task(folder)
    except Exception:
        raise Exception("Cannot load model parameters from checkpoint")  # noqa: B904


def in_a_worker(folder):
    """As a data loader passes it on."""
    try:
        in_the_task(folder)
    except FileNotFoundError:
        wrapped = ExceptionWrapper(where="in DataLoader worker process 0")
    wrapped.reraise()


def in_fairseq(_):
    subsets = {"ignore_unused_valid_subsets": False, "combine_valid_subsets": None, "valid_subset": ""}
    dataset = SimpleNamespace(disable_validation=False, **subsets)
    cfg = SimpleNamespace(dataset=dataset, task=SimpleNamespace(data=1))
    data_utils.raise_if_valid_subsets_unintentionally_ignored(cfg)


def in_an_operation(_):
    """A ValueError that no statement of ours raises."""
    np.zeros(3).reshape(2)


def in_a_file_that_is_opened(folder):
    load_vocabulary(folder)


def error_of(cause, folder):
    try:
        cause(folder)
    except Exception as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (in_the_task, NAMED),
        (while_weights_are_loaded, NAMED),
        (in_a_worker, NAMED),
        (in_a_file_that_is_opened, "dict.txt"),
        (in_fairseq, None),
        (in_an_operation, None),
    ],
)
@pytest.mark.parametrize("is_spawned", [False, True])
def test_a_refusal_is_a_sentence_and_a_fault_is_none(cause, said, is_spawned, tmp_path):
    error = error_of(cause, tmp_path)
    if is_spawned:
        text = "".join(traceback.format_exception(error))
        error = ProcessRaisedException(f"\n\n-- Process 1 terminated with the following error:\n{text}", 1, 2)
    sentence = refusal_in(error)
    if said is None:
        assert sentence is None
    else:
        assert sentence.startswith("FileNotFoundError: ") and said in sentence and "\n" not in sentence


def main(_):
    """fairseq-train's, as far as `call_main` knows."""


@pytest.mark.parametrize(("module", "variable"), [("fairseq_cli.train", ""), ("fairseq_cli.train", "1"), ("x", "")])
def test_the_program_ends_with_the_sentence_unless_the_traceback_is_wanted_or_a_job_notes_it(
    module, variable, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv(DEBUG, variable)
    monkeypatch.setattr(main, "__module__", module)
    for check in ("check_limits", "check_writable", "check_devices", "starts.settle", "make_log_folder"):
        monkeypatch.setattr(f"{command_line.__name__}.{check}", lambda checked: None)
    cfg = SimpleNamespace(model=None, task=None, checkpoint=None, common=SimpleNamespace(log_file=None))
    is_short = module == "fairseq_cli.train" and not variable
    with pytest.raises(SystemExit if is_short else FileNotFoundError) as ended:
        call_main(lambda cfg, main: in_the_task(tmp_path), cfg, main)
    if is_short:
        assert ended.value.code == 2
        assert capsys.readouterr().err == f"FileNotFoundError: The data folder {tmp_path}/no {NAMED}\n"


def test_initial_weights_that_a_task_does_not_make_are_refused_at_its_start(tmp_path, monkeypatch):
    for check in ("check_limits", "check_writable", "check_devices"):
        monkeypatch.setattr(f"{command_line.__name__}.{check}", lambda checked: None)
    start = {"save_dir": str(tmp_path), "restore_file": "checkpoint_last.pt", "continue_once": None}
    cfg = SimpleNamespace(
        model=SimpleNamespace(_name="fast_roberta", init_attention="counts"),
        task=SimpleNamespace(_name="masked_lm"),
        checkpoint=SimpleNamespace(**start, finetune_from_model=None),
    )
    refused("--init-attention counts needs --task roberta_masked_lm", call_main, fairseqs, cfg, lambda _: None)


def fairseqs(cfg, main):
    raise AssertionError("the training has begun")


def config(**changes):
    names = ("fp16", "fp16_no_flatten_grads", "memory_efficient_fp16", "cpu", "tpu")
    common = SimpleNamespace(**{name: changes.pop(name, False) for name in names})
    ranks = {"distributed_world_size": 1, "distributed_init_method": None, **changes}
    return SimpleNamespace(common=common, distributed_training=SimpleNamespace(**ranks))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fp16": True}, "--fp16 needs a GPU"),
        ({"distributed_world_size": 8}, "--distributed-world-size 8 needs as many GPUs, and torch finds 0 here"),
        ({"fp16": True, "fp16_no_flatten_grads": True}, ""),
        ({"distributed_world_size": 8, "distributed_init_method": "tcp://127.0.0.1:30000"}, ""),
        ({}, ""),
    ],
)
def test_what_needs_gpus_is_refused_where_there_are_none(changes, said, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    for name in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=said) if said else nullcontext():
        check_devices(config(**changes))


BASE = ["data-bin", "--task", "roberta_masked_lm", "--arch", "fast_roberta_tiny"]
NEAREST = {
    "--arch fast_roberta_medium": "the nearest are fast_roberta_",
    "--task roberta_masked": "roberta_masked_lm",
    "--optimizer adamw": "the nearest are roberta_adamw, adam",
    "--criterion roberta_masked": "roberta_masked_lm",
    "--mask-probs 0.2": "the nearest is --mask-prob.",
    "--ddp-backend legacy": "legacy_ddp",
    "--lr abc": "argument --lr: cannot read: 'abc'",
}


def said_of(words, capsys):
    """What the parser of fairseq-train says of words that it refuses."""
    with pytest.raises(SystemExit) as ended:
        options.parse_args_and_arch(options.get_training_parser(), input_args=words)
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("wrong", NEAREST)
def test_of_a_wrong_name_the_nearest_are_said_in_two_lines(wrong, capsys):
    said = said_of([*BASE, *wrong.split()], capsys)
    assert len(said.splitlines()) <= 2 and NEAREST[wrong] in said and len(said) < 400, said


def test_a_missing_arch_is_said(capsys):
    assert "--arch is missing" in said_of(BASE[:3], capsys)


@pytest.mark.parametrize("option", REMOVED)
def test_it_is_refused_by_name_in_one_line(option, capsys):
    said = said_of([*BASE, *option.split()], capsys)
    assert f"error: {option} was removed: {REMOVED[option]}." in said and said.count("\n") == 1
    refused(f"{option} was removed: ", arguments.parse, [*BASE, option.replace(" ", "=")])


def test_what_else_an_earlier_command_line_has_stays():
    removed = ["--bert-pairs", "10", "--background-checkpoints", "--attention-backend=nested"]
    kept = ["--adam-betas", "(0.9, 0.98)", "--attention-backend", "sdpa"]
    assert without_removed([*BASE, *removed[:2], *kept, *removed[2:], "--seed", "3"]) == [*BASE, *kept, "--seed", "3"]
    assert without_removed([*BASE, "--seed=3"]) == [*BASE, "--seed=3"]


@pytest.mark.parametrize("backend", ["nested", "varlen", "flash"])
def test_a_checkpoint_that_was_saved_with_removed_options_loads(backend, tiny_data_bin, tmp_path):
    state = state_of(tiny_data_bin)
    change_options(state, "task", background_checkpoints=True, bert_pairs=10)
    change_options(state, "model", attention_backend=backend)
    torch.save(state, tmp_path / "old.pt")
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "old.pt")])  # fairseq-validate
    assert str(model.cfg.attention_backend) == "auto"


def test_an_argument_that_is_no_text_is_left_to_fairseq():
    """As in fairseq's own tests/test_valid_subset_checks.py, which pass with this plugin registered."""
    assert command_line._words([None, "--a=b", 3]) == ["--a", "b"]


def test_ctrl_c_before_the_first_update_ends_a_program_without_a_traceback(monkeypatch, capsys):
    for check in ("check_limits", "check_writable", "check_devices", "starts.settle", "make_log_folder"):
        monkeypatch.setattr(f"{command_line.__name__}.{check}", lambda checked: None)
    cfg = SimpleNamespace(model=None, task=None, checkpoint=None, common=SimpleNamespace(log_file=None))

    def interrupted(cfg, main):
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "__module__", "fairseq_cli.train")
    with pytest.raises(SystemExit) as ended:
        call_main(interrupted, cfg, main)
    assert ended.value.code == 130 and "the same command goes on from there" in capsys.readouterr().err
    monkeypatch.setattr(main, "__module__", "x")  # as a job of `roberta launch`
    with pytest.raises(KeyboardInterrupt):
        call_main(interrupted, cfg, main)


def test_the_folder_of_a_log_file_is_made(tmp_path):
    command_line.make_log_folder(str(tmp_path / "logs" / "deep" / "x.log"))
    assert (tmp_path / "logs" / "deep").is_dir()
