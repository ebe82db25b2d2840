"""fairseq's own options: values that no training can use, and options that have no effect on our tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

_FAIRSEQS_LR = 0.25
# Section of fairseq's config, option, smallest value.
_SMALLEST = (
    ("dataset", "num_workers", 0),
    ("dataset", "batch_size", 1),
    ("dataset", "batch_size_valid", 1),
    ("dataset", "max_tokens", 1),
    ("dataset", "max_tokens_valid", 1),
    ("dataset", "validate_interval", 1),
    ("checkpoint", "save_interval", 1),
    ("common", "log_interval", 1),
    ("common", "seed", 0),
    ("optimization", "update_freq", 1),
    ("optimization", "max_update", 0),
    ("optimization", "max_epoch", 0),
    ("optimization", "lr", 0.0),
    ("lr_scheduler", "total_num_update", 1),
)


def check_training_options(cfg: Any) -> None:
    """Refuse values that no training can use.

    `cfg` may be the namespace of its command line, which has no sections.
    """
    for section, name, smallest in _SMALLEST:
        value = getattr(getattr(cfg, section, None), name, getattr(cfg, name, None))
        if value is None or str(value).startswith("${"):  # a task's config of its own, without the one around it
            continue
        for number in [value] if isinstance(value, int | float | str) else value:
            if not float(number) >= smallest:  # the namespace has some as text
                raise ValueError(f"--{name.replace('_', '-')} must be {smallest:g} or more, got {float(number):g}.")
    common = getattr(cfg, "common", cfg)
    given_of_fp16 = [
        name
        for name in ("cpu", "fp16", "fp16_no_flatten_grads", "memory_efficient_fp16")
        if getattr(common, name, None) is True
    ]
    if given_of_fp16 == ["cpu", "fp16"]:
        raise ValueError(
            "--fp16 does not work with --cpu, because fairseq collects the gradients on a GPU: give --bf16 instead, or "
            "--fp16-no-flatten-grads as well."
        )


def check_start_options(cfg: Any) -> None:
    """Refuse a training without options that fairseq does not miss; other programs of fairseq need none of them."""
    if list(getattr(getattr(cfg, "optimization", cfg), "lr", None) or []) == [_FAIRSEQS_LR]:
        raise ValueError(
            f"--lr is missing, or is fairseq's default of {_FAIRSEQS_LR}, at which nothing is learned: give the peak "
            "learning rate, such as --lr 0.0005 for pretraining or --lr 0.00002 for fine-tuning."
        )
    dataset = getattr(cfg, "dataset", cfg)
    if dataset.max_tokens is None and dataset.batch_size is None:
        raise ValueError("The batch size is missing: give --batch-size, --max-tokens or both.")


class Ignored(NamedTuple):
    """An option of fairseq's config, the values that change nothing anyway, and why the others have no effect."""

    section: str
    name: str
    harmless: Sequence[Any]
    reason: str


_DEFAULT_MULTIPLE = 8  # fairseq's default of --required-batch-size-multiple
_ORDER = "the order of an epoch's batches is a function of --seed and the epoch"
IGNORED = (
    Ignored("dataset", "curriculum", (0,), f"{_ORDER}, the first epochs included"),
    Ignored("dataset", "grouped_shuffling", (False,), f"{_ORDER}, and the GPUs of an update already get "
            "neighbouring batches, which are of similar length"),
    Ignored("dataset", "update_ordered_indices_seed", (False,), f"{_ORDER}, so it already differs between epochs"),
    Ignored("distributed_training", "fix_batches_to_gpus", (False,), "every epoch has new batches, and each rank "
            "reads what it needs from the memory-mapped file"),
    Ignored("dataset", "dataset_impl", (None, "mmap"), "only mmap data can be read: binarize with `roberta binarize` "
            "or with `fairseq-preprocess --dataset-impl mmap`"),
    Ignored("dataset", "required_seq_len_multiple", (1,), "use --pad-to-multiple"),
    Ignored("dataset", "skip_invalid_size_inputs_valid_test", (False,), "no input is skipped: long lines are split "
            "into blocks, and blocks that the model cannot hold are refused"),
)  # fmt: skip


def ignored_options(cfg: Any) -> list[str]:
    """Warnings about options that are set in fairseq's configuration and have no effect.

    None if the task's part of it stands alone.
    """
    root = whole_config(cfg)
    said = []
    for option in IGNORED:
        value = getattr(getattr(root, option.section, None), option.name, None)
        if value is not None and value not in option.harmless:
            said.append(f"--{option.name.replace('_', '-')} {value} has no effect: {option.reason}")
    dataset = getattr(root, "dataset", None)
    multiple, batch_size = (getattr(dataset, name, None) for name in ("required_batch_size_multiple", "batch_size"))
    if multiple not in (None, _DEFAULT_MULTIPLE) and batch_size and batch_size > multiple and batch_size % multiple:
        said.append(
            f"--required-batch-size-multiple {multiple} has no effect on --batch-size {batch_size}: only batches "
            "limited by --max-tokens are rounded"
        )
    if getattr(getattr(root, "optimization", None), "sentence_avg", False):
        criterion = getattr(getattr(root, "criterion", None), "_name", None)
        if criterion in ("roberta_masked_lm", "masked_lm"):
            said.append(f"--sentence-avg has no effect on {criterion}: its loss is a mean over the predicted tokens")
    return [*said, *unreached_rates(root)]


def unreached_rates(cfg: Any) -> list[str]:
    """A warning if the warm-up is longer than the training."""
    warm_up = getattr(getattr(cfg, "lr_scheduler", None), "warmup_updates", None) or 0
    for section, name in (("optimization", "max_update"), ("lr_scheduler", "total_num_update")):
        end = getattr(getattr(cfg, section, None), name, None) or 0
        if 0 < end < warm_up:
            return [
                f"--lr is never reached: --warmup-updates {warm_up:g} is more than --{name.replace('_', '-')} {end:g}"
            ]
    return []


def token_limit_name(cfg: Any, max_tokens: int) -> str:
    """Name of the option that set `max_tokens`: validation may have its own limit."""
    dataset = getattr(whole_config(cfg), "dataset", None)
    of_training, of_validation = (getattr(dataset, name, None) for name in ("max_tokens", "max_tokens_valid"))
    return "--max-tokens-valid" if max_tokens == of_validation != of_training else "--max-tokens"


def whole_config(cfg: Any) -> Any:
    """fairseq's whole configuration, of which `cfg` is a part; `cfg` itself if it is not an omegaconf node."""
    return cfg._get_root() if hasattr(cfg, "_get_root") else cfg
