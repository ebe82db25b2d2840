"""Options of fairseq that have no effect on our tasks: each is said so, with what to use instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Ignored(NamedTuple):
    """An option of fairseq's config, the values that ask for nothing, and why the others are not followed."""

    section: str
    name: str
    harmless: Sequence[Any]
    reason: str


_DEFAULT_MULTIPLE = 8  # fairseq's --required-batch-size-multiple where nobody asked for one
_ORDER = "the order of an epoch's batches is a function of --seed and the epoch"
IGNORED = (
    Ignored("dataset", "curriculum", (0,), f"{_ORDER}, the first epochs included"),
    Ignored("dataset", "grouped_shuffling", (False,), f"{_ORDER}, and neighbouring batches, of similar length, go to "
            "the GPUs of one update already"),
    Ignored("dataset", "update_ordered_indices_seed", (False,), f"{_ORDER}, so every epoch has another already"),
    Ignored("distributed_training", "fix_batches_to_gpus", (False,), "batches are made anew for every epoch, and each "
            "rank reads what it needs from the memory-mapped file"),
    Ignored("dataset", "dataset_impl", (None, "mmap"), "data are read as mmap: binarize them with `roberta binarize` "
            "or with `fairseq-preprocess --dataset-impl mmap`"),
    Ignored("dataset", "required_seq_len_multiple", (1,), "use --pad-to-multiple"),
    Ignored("dataset", "skip_invalid_size_inputs_valid_test", (False,), "nothing is ever skipped: long lines are split "
            "into blocks, and blocks that the model cannot hold are refused"),
)  # fmt: skip


def ignored_options(cfg: Any) -> list[str]:
    """What to say about the options of fairseq's whole configuration that are given and have no effect.

    Args:
        cfg: the task's part of the configuration; nothing is said where it is no part of a whole.
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
            f"--required-batch-size-multiple {multiple} has no effect on --batch-size {batch_size}, which is kept: "
            "only batches that are cut by --max-tokens are rounded"
        )
    if getattr(getattr(root, "optimization", None), "sentence_avg", False):
        criterion = getattr(getattr(root, "criterion", None), "_name", None)
        if criterion in ("roberta_masked_lm", "masked_lm"):
            said.append(f"--sentence-avg has no effect on {criterion}: its loss is a mean over the predicted tokens")
    return said


def token_limit_name(cfg: Any, max_tokens: int) -> str:
    """The option that a limit of `max_tokens` comes from: validation may have one of its own."""
    dataset = getattr(whole_config(cfg), "dataset", None)
    of_training, of_validation = (getattr(dataset, name, None) for name in ("max_tokens", "max_tokens_valid"))
    return "--max-tokens-valid" if max_tokens == of_validation != of_training else "--max-tokens"


def whole_config(cfg: Any) -> Any:
    """fairseq's whole configuration, of which `cfg` is a part; `cfg` itself where it is no omegaconf node."""
    return cfg._get_root() if hasattr(cfg, "_get_root") else cfg
