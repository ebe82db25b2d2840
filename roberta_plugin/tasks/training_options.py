"""fairseq's own options whose bad values end a training late, or in words that do not name the option."""

from __future__ import annotations

from typing import Any

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
    ("optimization", "lr", 0.0),
    ("lr_scheduler", "total_num_update", 1),
)


def check_training_options(cfg: Any) -> None:
    """Refuse values that no training can use.

    Args:
        cfg: fairseq's whole configuration, or the namespace of its command line, which has no sections.

    Raises:
        ValueError: naming the option, its value and the smallest that is right.
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
    given = [
        getattr(getattr(cfg, section, None), name, getattr(cfg, name, False))
        for section, name in (("task", "background_checkpoints"), ("checkpoint", "write_checkpoints_asynchronously"))
    ]
    if all(given):
        raise ValueError(
            "--background-checkpoints and --write-checkpoints-asynchronously are both given: leave out the second."
        )
