"""fairseq's own options, as our tasks take them: values that no training can use are refused, and warnings name options
without effect.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from roberta_plugin.fairseq_workarounds.option_limits import check_limits, check_schedule
from roberta_plugin.optim.stages import parse

_FAIRSEQS_LR = 0.25


def check_training_options(cfg: Any) -> None:
    """Refuse values that no training can use.

    `cfg` may be the namespace of its command line, which has no sections.
    """
    check_limits(cfg)
    common = getattr(cfg, "common", cfg)
    switches = [
        name
        for name in ("cpu", "fp16", "fp16_no_flatten_grads", "memory_efficient_fp16")
        if getattr(common, name, None) is True
    ]
    if switches == ["cpu", "fp16"]:
        raise ValueError(
            "--fp16 does not work with --cpu, because fairseq collects the gradients on a GPU: give --bf16 instead, or "
            "--fp16-no-flatten-grads as well."
        )


def check_start_options(cfg: Any) -> None:
    """Refuse a training without options that fairseq does not insist on; its other programs need none of them."""
    if list(getattr(getattr(cfg, "optimization", cfg), "lr", None) or []) == [_FAIRSEQS_LR]:
        raise ValueError(
            f"--lr is missing, or is fairseq's default of {_FAIRSEQS_LR}, at which nothing is learned: give the peak "
            "learning rate, such as --lr 0.0005 for pretraining or --lr 0.00002 for fine-tuning."
        )
    check_schedule(cfg)
    dataset = getattr(cfg, "dataset", cfg)
    if dataset.max_tokens is None and dataset.batch_size is None:
        raise ValueError("The batch size is missing: give --batch-size, --max-tokens or both.")


class NoEffect(NamedTuple):
    """An option of fairseq's config, the values that change nothing anyway, and why the others have no effect."""

    section: str
    name: str
    harmless: Sequence[Any]
    reason: str


_WARM_UPS = "warmup_updates", "warmup_steps"  # tri_stage has the second
_DEFAULT_MULTIPLE = 8  # fairseq's default of --required-batch-size-multiple
_BY_VALIDATION = "patience", "keep_best_checkpoints"
_SMALLER_IS_BETTER = re.compile(r"ppl|(\w+_)?loss")
_LARGER_IS_BETTER = re.compile(r"(\w+_)?accuracy|f1|macro_f1|mcc")
_ORDER = "the order of an epoch's batches is a function of --seed and the epoch"
IGNORED = (
    NoEffect("dataset", "curriculum", (0,), f"{_ORDER}, the first epochs included"),
    NoEffect("dataset", "grouped_shuffling", (False,), f"{_ORDER}, and the GPUs of an update already get "
            "neighbouring batches, which are of similar length"),
    NoEffect("dataset", "update_ordered_indices_seed", (False,), f"{_ORDER}, so it already differs between epochs"),
    NoEffect("distributed_training", "fix_batches_to_gpus", (False,), "every epoch has new batches, and each rank "
            "reads what it needs from the memory-mapped file"),
    NoEffect("dataset", "dataset_impl", (None, "mmap"), "only mmap data can be read: binarize with `roberta binarize` "
            "or with `fairseq-preprocess --dataset-impl mmap`"),
    NoEffect("dataset", "required_seq_len_multiple", (1,), "use --pad-to-multiple"),
    NoEffect("dataset", "skip_invalid_size_inputs_valid_test", (False,), "no input is skipped: long lines are split "
            "into blocks, and blocks that the model cannot hold are refused"),
)  # fmt: skip


def ignored_options(cfg: Any) -> list[str]:
    """Warnings about options that are set in fairseq's configuration and have no effect.

    None if the task's part of it stands alone.
    """
    root = whole_config(cfg)
    texts = []
    for option in IGNORED:
        value = getattr(getattr(root, option.section, None), option.name, None)
        if value is not None and value not in option.harmless:
            texts.append(f"--{option.name.replace('_', '-')} {value} has no effect: {option.reason}")
    dataset = getattr(root, "dataset", None)
    multiple, batch_size = (getattr(dataset, name, None) for name in ("required_batch_size_multiple", "batch_size"))
    if multiple not in (None, _DEFAULT_MULTIPLE) and batch_size and batch_size > multiple and batch_size % multiple:
        texts.append(
            f"--required-batch-size-multiple {multiple} has no effect on --batch-size {batch_size}: only batches "
            "limited by --max-tokens are rounded"
        )
    if getattr(getattr(root, "optimization", None), "sentence_avg", False):
        criterion = getattr(getattr(root, "criterion", None), "_name", None)
        if criterion in ("roberta_masked_lm", "masked_lm"):
            texts.append(f"--sentence-avg has no effect on {criterion}: its loss is a mean over the predicted tokens")
    return [*texts, *unmade_decisions(root), *unreached_rates(root)]


def unmade_decisions(cfg: Any) -> list[str]:
    """Warnings about options that decide by validations where there are none, or by the wrong end of a metric."""
    checkpoint = getattr(cfg, "checkpoint", None)
    if getattr(getattr(cfg, "dataset", None), "disable_validation", False):
        decisions = {f"--{name.replace('_', '-')}": getattr(checkpoint, name, 0) > 0 for name in _BY_VALIDATION}
        schedule = getattr(getattr(cfg, "lr_scheduler", None), "_name", None)
        decisions["--lr-scheduler reduce_lr_on_plateau"] = schedule == "reduce_lr_on_plateau"
        return [
            f"{option} has no effect: it decides by validations, and --disable-validation leaves them out"
            for option, is_given in decisions.items()
            if is_given
        ]
    metric, is_maximized = (getattr(checkpoint, f"{name}best_checkpoint_metric", None) for name in ("", "maximize_"))
    if _SMALLER_IS_BETTER.fullmatch(str(metric)) and is_maximized:
        return [f"the worst checkpoint is kept as the best: leave out --maximize-best-checkpoint-metric for {metric}"]
    if _LARGER_IS_BETTER.fullmatch(str(metric)) and is_maximized is False:
        return [f"the worst checkpoint is kept as the best: give --maximize-best-checkpoint-metric for {metric}"]
    return []


def unreached_rates(cfg: Any) -> list[str]:
    """A warning if the training ends within its warm-up, which a first part of a longer training may, or if it goes on
    when its rate has fallen to 0."""
    scheduler, last = getattr(cfg, "lr_scheduler", None), getattr(getattr(cfg, "optimization", None), "max_update", 0)
    warm_up = peak_update(scheduler)
    schedule = getattr(scheduler, "total_num_update", None) or 0
    for end, option in ((schedule, "--total-num-update"), (last or 0, "--max-update")):
        if 0 < end < warm_up:
            return [f"--lr is never reached: the warm-up ends at update {warm_up:g}, and {option} is {end:g}"]
    if 0 < schedule < (last or 0) and getattr(scheduler, "end_learning_rate", None) == 0:
        return [
            f"nothing is learned after update {schedule:g}, where the learning rate is 0, and --max-update is {last}: "
            f"give --total-num-update {last} as well"
        ]
    return []


def peak_update(scheduler: Any) -> float:
    """The update at which the warm-up of a schedule ends: any of fairseq's, or linear_stages; 0 without one."""
    if stages := getattr(scheduler, "lr_stages", None):
        return float(max(parse(stages), key=lambda point: point.share).update)
    steps = next((number for name in _WARM_UPS if (number := getattr(scheduler, name, None))), 0)
    return float(steps)


def token_limit_name(cfg: Any, max_tokens: int) -> str:
    """Name of the option that set `max_tokens`: validation may have its own limit."""
    dataset = getattr(whole_config(cfg), "dataset", None)
    of_training, of_validation = (getattr(dataset, name, None) for name in ("max_tokens", "max_tokens_valid"))
    return "--max-tokens-valid" if max_tokens == of_validation != of_training else "--max-tokens"


def whole_config(cfg: Any) -> Any:
    """fairseq's whole configuration, of which `cfg` is a part; `cfg` itself if it is not an omegaconf node."""
    return cfg._get_root() if hasattr(cfg, "_get_root") else cfg


def check_launch(num_shards: int) -> None:
    """Refuse processes of torchrun that would each train alone and write the same files."""
    world_size = os.environ.get("WORLD_SIZE", "1")
    if "TORCHELASTIC_RUN_ID" in os.environ and world_size != "1" and num_shards == 1:
        raise ValueError(
            f"torchrun has started {world_size} processes, but fairseq's world size is 1, so each would train alone: "
            f"add --distributed-world-size {world_size} if each process has a GPU. On CPUs start the ranks without "
            "torchrun, as examples/README.gpu.md shows."
        )
