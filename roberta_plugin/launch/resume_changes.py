"""Two records of a launched run -> the settings of its training that differ and must not.

`resume_policy.py` says what may change. The batch of an update is compared as a whole: by `batch_sequences` or
`batch_tokens`, which keep it on any number of GPUs, or else by the options that make it on one GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roberta_plugin.data.mixture import whole_paths
from roberta_plugin.launch.arguments import parse
from roberta_plugin.launch.recipe import BATCHES, scale_growth
from roberta_plugin.launch.resume_policy import SAME, policies
from roberta_plugin.record import Difference, differences, moved, option_name
from roberta_plugin.runs import RunRecord


def changed_settings(before: RunRecord, now: RunRecord) -> list[Difference]:
    """Differences of the training in the user's terms: in the settings from which options follow, if these differ."""
    old, new = ({name: getattr(record, name) for name in BATCHES} for record in (before, now))
    changes = differences(old, new)
    if before.arguments:
        changes += _changed_options(before, now, is_batch_set=any(new.values()))
    if changes and before.asked and now.asked:
        return differences(before.asked, now.asked, free=lambda name: not name.startswith("--")) or changes
    return changes


def _changed_options(before: RunRecord, now: RunRecord, *, is_batch_set: bool) -> list[Difference]:
    """The options of fairseq-train that differ and may not; the batch that they make, if no setting fixes it."""
    from roberta_plugin.fairseq_workarounds.command_line import without_removed

    parsed, parsed_now = parse(without_removed(before.arguments)), parse(now.arguments)
    old, new = _options(parsed, folder=before.folder, gpus=before.num_gpus), _options(parsed_now, gpus=now.num_gpus)
    # The data may have moved with the folder.
    old["data"] = moved(old["data"], before=old["save_dir"], now=Path(new["save_dir"]), among=[new["data"]])
    policy = {**policies(parsed), **policies(parsed_now)}
    changes = differences(old, new, free=lambda name: policy[name] != SAME)
    return changes if is_batch_set else changes + _changed_batch(before, old, now, new)


def _options(parsed: argparse.Namespace, *, gpus: int, folder: str = "") -> dict[str, Any]:
    """All options, by their names in fairseq's namespace; those that mean the same on other machines, as equal values.

    The data are whole paths, seen from the folder, and the growth of the batch is that on all GPUs.
    """
    options = {**vars(parsed), "data": whole_paths(parsed.data or "", seen_from=folder)}
    if growth := options.get("grow_max_tokens"):
        options["grow_max_tokens"] = scale_growth(growth, gpus * int(parsed.update_freq[0]))
    return options


def _changed_batch(
    before: RunRecord, old: Mapping[str, Any], now: RunRecord, new: Mapping[str, Any]
) -> list[Difference]:
    """The batch of an update where no setting fixes it, if it differs and not by the number of GPUs alone."""
    if old.get("update_sequences") or new.get("update_sequences"):
        return differences(_sequences(old, gpus=before.num_gpus), _sequences(new, gpus=now.num_gpus))
    sizes: list[dict[str, list[int]]] = [{}, {}]
    for name in ("batch_size", "max_tokens"):
        if _per_gpu(old, name) != _per_gpu(new, name):
            for size, options, gpus in ((sizes[0], old, before.num_gpus), (sizes[1], new, now.num_gpus)):
                size[f"{option_name(name)} x --update-freq x GPUs"] = [each * gpus for each in _per_gpu(options, name)]
    return differences(*sizes)


def _per_gpu(options: Mapping[str, Any], name: str) -> list[int]:
    """The batch of an update on one GPU, in each epoch that --update-freq has a number for."""
    return [int(options[name] or 0) * int(freq) for freq in options["update_freq"]]


def _sequences(options: Mapping[str, Any], *, gpus: int) -> dict[str, Any]:
    """The number of sequences of an update on all GPUs, which --update-sequences may give."""
    return {"update_sequences": options.get("update_sequences") or _per_gpu(options, "batch_size")[0] * gpus}
