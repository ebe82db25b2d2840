"""Faults 8, 15 and 24: how a training goes on from the checkpoint that it resumes from."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.trainer import Trainer

from roberta_plugin.fairseq_workarounds import starts
from roberta_plugin.fairseq_workarounds.hooks import listening, programs
from roberta_plugin.fairseq_workarounds.saved_state import check_moments, check_state
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.starting_head import starting_head, take_over_head
from roberta_plugin.models.checkpoints import saved_options
from roberta_plugin.models.config import ARCHITECTURE, SWITCHES, FastRobertaConfig
from roberta_plugin.models.head_parameters import is_of_head
from roberta_plugin.models.state_dicts import POSITIONS, ROWS_BEFORE_POSITIONS, norms_of
from roberta_plugin.record import Difference, differences, listed, option_name, refuse

logger = logging.getLogger(__name__)

PATIENCE = "patience"  # key in a checkpoint's extra_state
UNFINISHED = "unfinished_update"  # likewise, and attribute of the trainer: see `stopping.py`

_updates: list[int] = []  # one number: the progress of the last training of this process

# Class of the present training -> classes whose state has the same meaning.
_CRITERIONS = {
    "RobertaMaskedLMCriterion": {"MaskedLmLoss"},
    "MaskedLmLoss": {"RobertaMaskedLMCriterion"},  # the way back to fairseq alone
}
_OPTIMIZERS = {
    "RobertaAdamW": {"FairseqAdam"},
    # With roberta_adamw both keep fp32 masters, moments and the loss scaler under the same names.
    "FP16Optimizer": {"MemoryEfficientFP16Optimizer"},
    "MemoryEfficientFP16Optimizer": {"FP16Optimizer"},
}
_OF_NO_HEAD = {"data", "seed", "finetune_from_model", "ddp_backend"}  # options of the tasks
# Options that decide which blocks an epoch has and their order; another value is allowed, and named. So are
# options that go with an --input-format, and of those that say it themselves (`setting(..., changes_input=True)`).
_OF_TEXT = (
    "input_format",
    "sample_break_mode",
    "tokens_per_sample",
    "corpus_alpha",
    "pack_sequences",
    "seed",
)
# Options of the model without which weights have another meaning, or no place.
_OF_MODEL = tuple(name for name in ARCHITECTURE if name != "max_positions")  # of which `check_positions` speaks


def save_trainer(fairseqs: Callable[..., Any], trainer: Any, filename: str, extra_state: dict[str, Any]) -> Any:
    """fairseq's `Trainer.save_checkpoint`, with the state of --patience and a note of an unfinished update."""
    notes = {PATIENCE: patience_state(trainer.cfg.checkpoint), UNFINISHED: getattr(trainer, UNFINISHED, None)}
    return fairseqs(trainer, filename, {**extra_state, **{key: note for key, note in notes.items() if note}})


def load_trainer(
    fairseqs: Callable[..., Any], trainer: Any, filename: str, reset_optimizer: bool = False, *args: Any, **options: Any
) -> Any:
    """fairseq's `Trainer.load_checkpoint`, with a check of the checkpoint, and with the notes of `save_trainer`.

    The notes are ignored where fairseq ignores the best loss: if only the weights are used. The best loss of an earlier
    training of this process, which fairseq keeps at its function, is forgotten.
    """
    vars(checkpoint_utils.save_checkpoint).pop("best", None)

    def look(load: Callable[..., dict[str, Any]], *arguments: Any, **further: Any) -> dict[str, Any]:
        state = load(*arguments, **further)
        parameters = trainer.get_model().state_dict()
        check_state(state, Path(filename), parameters=parameters)
        if not reset_optimizer:
            moments = state.get("last_optimizer_state")
            check_moments(moments, Path(filename), parameters=list(trainer.get_model().parameters()))
        check_positions(trainer, state, Path(filename))
        if reset_optimizer:
            other.extend(warn_of_other_start(trainer, state, Path(filename)))
        else:
            check_continues(trainer, state, Path(filename))
        rename_classes(trainer, state)
        if not reset_optimizer:
            check_classes(trainer, state, Path(filename))
            forget_other_metric(trainer, state, Path(filename))
        is_resumed = not reset_optimizer and bool(state.get("last_optimizer_state"))
        name_rows(trainer, state, Path(filename), is_resumed=is_resumed)
        return state

    other: list[str] = []
    with listening(checkpoint_utils, "load_checkpoint_to_cpu", look):
        try:
            extra_state = fairseqs(trainer, filename, reset_optimizer, *args, **options)
        except Exception as error:  # fairseq's "Cannot load model parameters" does not say why
            if type(error) is Exception and other:
                remedy = "Its weights do not fit: give the options that it was trained with."
                raise ValueError(f"{' '.join(other)} {remedy}") from error
            raise
    if not reset_optimizer:
        take_up_weights(trainer, Path(filename))
    is_resumed = extra_state is not None and not reset_optimizer and not options.get("reset_meters")
    notes = extra_state if is_resumed else {}
    restore_patience(trainer.cfg.checkpoint, notes.get(PATIENCE, {}))
    setattr(trainer, UNFINISHED, notes.get(UNFINISHED))
    return extra_state


def train(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
    """Run fairseq's epoch, unless the training is finished; see fault 8.

    Then nothing is touched. The last update of a training is never left unfinished (`stopping.finish_update`), so a
    note of one belongs to another start, with options of its own: a later part of a training in parts.
    """
    # This run's time does not count: ranks may differ in it, and fairseq checks it after each update.
    hours = trainer._previous_training_time / 3600
    reason = why_finished(cfg, updates=trainer.get_num_updates(), hours=hours)
    if reason is None:
        result = fairseqs(cfg, trainer, task, epoch_itr)
        _updates[:] = [trainer.get_num_updates()]
        return result
    logger.info(f"This training is finished: {reason}. Nothing to do; raise that limit to continue.")
    return [None], True


def load_checkpoint(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, **options: Any) -> Any:
    """fairseq's `load_checkpoint`. Also lets the task count updates, and logs if --max-epoch leaves nothing to do."""
    if hasattr(getattr(trainer, "task", None), "count_updates"):  # trainers of fairseq's own tests have no task
        trainer.task.count_updates = trainer.get_num_updates
    extra_state, epoch_itr = fairseqs(cfg, trainer, **options)
    max_epoch, epochs, reason = trainer.cfg.optimization.max_epoch, epoch_itr.next_epoch_idx - 1, None
    if isinstance(max_epoch, int) and 0 < max_epoch <= epochs:  # trainers of fairseq's own tests have no options
        reason = f"the checkpoint has {epochs:,} epochs, and --max-epoch is {max_epoch:,}"
    if isinstance(trainer, Trainer):
        _updates[:] = [trainer.get_num_updates()]
        check_begins(trainer)
        check_goes_on(trainer, reason)
    if reason is not None:
        logger.info(f"This training is finished: {reason}. Nothing to do; raise that limit to continue.")
    return extra_state, epoch_itr


def check_begins(trainer: Any) -> None:
    """Refuse a training that fairseq would end before its first update, without a word of it."""
    stop_min_lr, rate = trainer.cfg.optimization.stop_min_lr, trainer.get_lr()
    if not trainer.get_num_updates() and rate <= stop_min_lr:
        raise ValueError(
            f"--stop-min-lr {stop_min_lr:g} ends this training before its first update, at which the learning rate is "
            f"{rate:g}: lower it, or begin the warm-up above it (--warmup-init-lr, where the scheduler has it)."
        )


def check_goes_on(trainer: Any, reason: str | None) -> None:
    """Refuse the first start of a training that continues another one and would add nothing to it.

    `reason` is why no epoch is left, None if one is left.
    """
    checkpoint = trainer.cfg.checkpoint
    if not (updates := trainer.get_num_updates()) or os.path.exists(starts.own_checkpoint(checkpoint)):
        return
    reason = reason or why_finished(trainer.cfg, updates=updates, hours=trainer._previous_training_time / 3600)
    file = starts.start_file(checkpoint)
    if reason is not None and file is not None and file.resolve().parent != Path(checkpoint.save_dir).resolve():
        raise ValueError(
            f"Nothing would be trained after {file}: {reason}. Raise that limit, which includes what the checkpoint "
            f"already has, or begin anew with its weights: --finetune-from-model {file}."
        )


def check_trained() -> None:
    """Refuse to call a training done that ends in this process without any update, now or before; see fault 8."""
    if _updates == [0]:
        raise ValueError(
            "The training has ended without a single update, and nothing was trained: see the last lines of its log "
            "for the reason, such as --max-epoch at or below the epoch that it begins with, or batches that do not fit "
            "into memory."
        )


def why_finished(cfg: Any, *, updates: int, hours: float) -> str | None:
    """The reason why a training with this number of updates and hours is finished; None if it is not."""
    max_update, stop_hours = cfg.optimization.max_update, cfg.optimization.stop_time_hours
    if 0 < max_update <= updates:
        return f"the checkpoint has {updates:,} updates, and --max-update is {max_update:,}"
    if updates and 0 < stop_hours < hours:
        return f"the checkpoint has {hours:.3g} hours of training, and --stop-time-hours is {stop_hours:g}"
    patience, validations = cfg.checkpoint.patience, patience_state(cfg.checkpoint).get("num_runs", 0)
    if 0 < patience <= validations:
        return f"early stop: no improvement in the last {validations:,} validations, and --patience is {patience:,}"
    return None


def patience_state(checkpoint: Any) -> dict[str, Any]:
    """Attributes of fairseq's `should_stop_early`, with the name of its metric; empty before the first validation."""
    for program in programs():
        if hasattr(program.should_stop_early, "best"):
            remembered = program.should_stop_early
            return {"best": remembered.best, "num_runs": remembered.num_runs, **_metric(checkpoint)}
    return {}


def restore_patience(checkpoint: Any, state: dict[str, Any]) -> None:
    """Set these attributes; reset them if `state` belongs to another metric."""
    is_of_metric = bool(state) and state.items() >= _metric(checkpoint).items()
    for program in programs():
        for name in ("best", "num_runs"):
            if is_of_metric:
                setattr(program.should_stop_early, name, state[name])
            elif hasattr(program.should_stop_early, name):
                delattr(program.should_stop_early, name)


def _metric(checkpoint: Any) -> dict[str, Any]:
    return {
        "metric": checkpoint.best_checkpoint_metric,
        "is_maximized": bool(checkpoint.maximize_best_checkpoint_metric),
    }


def forget_other_metric(trainer: Any, state: Mapping[str, Any], path: Path) -> None:
    """Drop the best value of another --best-checkpoint-metric, which values of this one would be compared with.

    Raises:
        ValueError: if the learning rate follows that metric.
    """
    config = state.get("cfg")
    saved = config.get("checkpoint") if isinstance(config, Mapping) else None
    ours = _metric(trainer.cfg.checkpoint)
    names = ("best_checkpoint_metric", "maximize_best_checkpoint_metric")
    if not isinstance(saved, Mapping) or [saved.get(name) for name in names] == list(ours.values()):
        return
    theirs = f"{saved.get(names[0])}, {'largest' if saved.get(names[1]) else 'smallest'} first"
    if getattr(trainer.cfg.lr_scheduler, "_name", None) == "reduce_lr_on_plateau" and (
        not trainer.cfg.checkpoint.reset_lr_scheduler
    ):
        raise ValueError(
            f"the learning rate of {path} follows another metric ({theirs}): give the same "
            "--best-checkpoint-metric and --maximize-best-checkpoint-metric, or --reset-lr-scheduler."
        )
    extra_state: dict[str, Any] = state.get("extra_state") or {}
    extra_state["val_loss"] = None
    if extra_state.pop("best", None) is not None:
        logger.warning(
            f"{path} was trained with another --best-checkpoint-metric ({theirs}): checkpoint_best.pt is from "
            f"here on the best by {ours['metric']}."
        )


def rename_classes(trainer: Any, state: Mapping[str, Any]) -> None:
    """Write into a loaded state the class names that this training expects, if their states fit; see fault 15."""
    history = state.get("optimizer_history")
    if history:
        _rename(history[-1], "criterion_name", type(trainer.get_criterion()).__name__, _CRITERIONS)
        if getattr(trainer.cfg.optimizer, "_name", None) == "roberta_adamw":
            _rename(history[-1], "optimizer_name", _optimizer_class(trainer.cfg), _OPTIMIZERS)


def _rename(entry: dict[str, Any], key: str, ours: str, taken_over: dict[str, set[str]]) -> None:
    saved = entry.get(key)
    if saved in taken_over.get(ours, ()):
        logger.info(f"The checkpoint's {key} is {saved}: {ours} takes over its state.")
        entry[key] = ours


def _optimizer_class(cfg: Any) -> str:
    """Name of the class that `Trainer._build_optimizer` will build; building it here would double its memory."""
    if cfg.common.fp16 or cfg.common.bf16:
        is_efficient = cfg.common.memory_efficient_fp16 or cfg.common.memory_efficient_bf16
        return "MemoryEfficientFP16Optimizer" if is_efficient else "FP16Optimizer"
    return "AMPOptimizer" if cfg.common.amp else str(OPTIMIZER_REGISTRY[cfg.optimizer._name].__name__)


def check_classes(trainer: Any, state: Mapping[str, Any], path: Path) -> None:
    """Refuse the optimizer's state of another optimizer or precision, or of a criterion with another meaning."""
    if state.get("last_optimizer_state") is None:  # fairseq then takes the weights only
        return
    saved = (state.get("optimizer_history") or [{}])[-1]
    ours = {"optimizer": _optimizer_class(trainer.cfg), "criterion": type(trainer.get_criterion()).__name__}
    before = {option: saved.get(f"{option}_name", now) for option, now in ours.items()}
    names = {"optimizer": "optimizer (by --optimizer and --bf16, --fp16, --amp or none)", "criterion": "--criterion"}
    refuse(
        f"{path} was written with another optimizer, precision or criterion",
        differences(before, ours, named=names.__getitem__),
        f"Give what it was started with. To begin anew with its weights, give --finetune-from-model {path} and another "
        "--save-dir: moments, count of updates and learning rate begin anew.",
    )


def take_up_weights(trainer: Any, path: Path) -> None:
    """Count the updates of a finished training whose last checkpoint has lost the optimizer's state (a sweep's, or by
    --no-save-optimizer-state), and refuse to go on with another: fairseq trains its weights from update 0 again.
    """
    updates = (getattr(trainer, "_optim_history", None) or [{}])[-1].get("num_updates", 0)
    if not updates or trainer.get_num_updates() or path.parent != Path(trainer.cfg.checkpoint.save_dir):
        return
    if why_finished(trainer.cfg, updates=updates, hours=0.0) is None:
        raise ValueError(
            f"{path} has no state of the optimizer, so that the training cannot go on after its {updates:,} updates: "
            "delete the folder to train from the start. To begin anew with its weights, give --finetune-from-model "
            f"{path} and another --save-dir."
        )
    trainer.set_num_updates(updates)


def name_rows(trainer: Any, state: Mapping[str, Any], path: Path, *, is_resumed: bool) -> None:
    """Let the head begin with the rows of the checkpoint that have the names of its labels (`starting_head`).

    A training that is resumed goes on with its own head. Its optimizer's state has the order of the checkpoint's rows.
    """
    task = trainer.task
    if getattr(task, "prepared", None) is None:
        return
    name = task.cfg.classification_head_name
    if is_resumed:
        found = starting_head(state, task.kind, name, checkpoint=path)
        if found is not None and found.rows and not found.is_unchanged:
            raise ValueError(f"{found.line} The state of its optimizer is not: give --finetune-from-model {path}.")
        return
    fresh = trainer.get_model().state_dict()
    found = take_over_head(state, task.kind, name, fresh=fresh, checkpoint=path)
    if found is not None and found.line:
        logger.warning(found.line)


def check_positions(trainer: Any, state: Mapping[str, Any], path: Path) -> None:
    """Refuse weights of another number of positions, which follows --tokens-per-sample where it is not given."""
    model = trainer.get_model().state_dict()
    if POSITIONS in state["model"] and POSITIONS in model:
        theirs, ours = (len(some[POSITIONS]) - ROWS_BEFORE_POSITIONS for some in (state["model"], model))
        if theirs != ours:
            longer = f" Longer blocks need a training that began with --max-positions {ours}." if ours > theirs else ""
            raise ValueError(
                f"{path} has {theirs:,} positions, and this model has {ours:,}: give --max-positions {theirs}, and "
                f"--tokens-per-sample of no more.{longer}"
            )


def check_continues(trainer: Any, state: Mapping[str, Any], path: Path) -> None:
    """Refuse to resume from a checkpoint with different data, heads or another model; see fault 24."""
    remedy = "To continue, give the options that it was started with; to train something else, give another --save-dir"
    try:
        _check_words(trainer.task, state, path)
        remedy += f", and --finetune-from-model {path} to begin with these weights"
        if prepared := getattr(trainer.task, "prepared", None):
            identity.check_task(state, prepared, checkpoint=path)
            split = trainer.cfg.dataset.train_subset
            identity.check_examples(state, prepared, split=split, checkpoint=path)
        _check_heads(trainer, state, path)
        _check_model(trainer, state, path)
    except ValueError as error:
        raise ValueError(f"{error} {remedy}.") from None
    saved = saved_options(state)[0]
    names = (*_OF_TEXT, *_of_input(getattr(type(trainer.task), "__dataclass", None)))
    if different := _different_options({name: saved.get(name) for name in names}, trainer.cfg.task):
        logger.warning(f"{path} was trained with other options: {listed(different)}. {remedy}.")


def _of_input(options: Any) -> list[str]:
    """The fields of a task's options that change its inputs."""
    return [
        item.name
        for item in (fields(options) if options else ())
        if item.metadata.get("changes_input") or "input_format" in item.metadata.get("goes_with", {})
    ]


def warn_of_other_start(trainer: Any, state: Mapping[str, Any], path: Path) -> list[str]:
    """Warn if a training begins with weights of another vocabulary or model, which may be intended; return how."""
    said = []
    for check, ours in ((_check_words, trainer.task), (_check_foreign, trainer.task), (_check_model, trainer)):
        try:
            check(ours, state, path)
        except ValueError as error:
            logger.warning(str(error))
            said.append(f"{str(error).rstrip('.')}.")
    return said


def _check_words(task: Any, state: Mapping[str, Any], path: Path) -> None:
    ours = (task.state_dict() or {}).get(identity.KEY)
    if isinstance(ours, Mapping):  # not in tasks of fairseq
        identity.check_same_words(state, ours, checkpoint=path, data=str(task.cfg.data))


def _check_foreign(task: Any, state: Mapping[str, Any], path: Path) -> None:
    if prepared := getattr(task, "prepared", None):
        identity.check_foreign(state, prepared, checkpoint=path)


def _check_heads(trainer: Any, state: Mapping[str, Any], path: Path) -> None:
    if getattr(trainer.cfg.model, "load_checkpoint_heads", False):  # from the checkpoint
        return
    theirs, ours = _head_shapes(state["model"]), _head_shapes(trainer.get_model().state_dict())
    if theirs and theirs != ours:
        saved = saved_options(state)[0]
        head_options = {name: saved[name] for name in saved.keys() - _OF_NO_HEAD}
        different = [*_different_options(head_options, trainer.cfg.task), differences(theirs, ours, named=str)[0]]
        refuse(f"{path} was trained with another head", different, "")


def _check_model(trainer: Any, state: Mapping[str, Any], path: Path) -> None:
    """Refuse another model: its weights may fit, as with other heads, or torch would name parameters only.

    The optimizer's state has an entry for each parameter, so for a shared layer only one.
    """
    defaults = {name: str(getattr(FastRobertaConfig, name)) for name in ("share_layers", "share_parts", *SWITCHES)}
    theirs, ours = (
        defaults | {name: str(options[name]) for name in _OF_MODEL if options.get(name) is not None}
        for options in (
            {**saved_options(state)[1], **norms_of(state["model"])},
            {name: getattr(trainer.cfg.model, name, None) for name in _OF_MODEL},
        )
    )
    refuse(f"{path} was trained with a different architecture", _different_options(theirs, ours), "")


def _head_shapes(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Names of the heads' parameters -> shapes, as in "3 x 8"."""
    return {name: " x ".join(map(str, value.shape)) for name, value in parameters.items() if is_of_head(name)}


def _different_options(saved: Mapping[str, Any], present: Any) -> list[Difference]:
    """Differences in the options that both have."""
    if not isinstance(present, Mapping):  # fairseq's older tasks have the options of everything
        return []
    return differences(
        saved,
        present,
        free=lambda name: not isinstance(saved.get(name), str | int | float) or name not in present,
        named=lambda name: "--task" if name == "_name" else option_name(name),
    )
