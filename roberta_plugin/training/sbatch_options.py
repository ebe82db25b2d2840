"""Texts about GPUs and options of sbatch -> sbatch's arguments; used by `resources.py`.

gpus_per_node: h100:8                                                 # type as SLURM names it, and number
gpu_request: none                                                     # a cluster without GRES
sbatch: {reservation: night, exclusive: true, mail-type: FAIL}        # any other option of sbatch
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

GPU_REQUESTS = ("gpus-per-node", "gres", "none")
# Options that follow from other settings.
SET_BY_US = {
    *("nodes", "ntasks", "ntasks-per-node", "gpus-per-node", "gpus", "gpus-per-task", "cpus-per-task", "mem", "time"),
    *("partition", "account", "qos", "constraint", "exclude", "signal", "requeue", "no-requeue", "distribution"),
    *("output", "error", "open-mode", "job-name", "array", "wrap"),
}
# Options that would break our handling of the job, with the reason.
_REFUSED = {
    **dict.fromkeys(("export", "export-file"), "the settings env and inherit choose the job's environment"),
    **dict.fromkeys(
        ("parsable", "quiet", "test-only", "wait"),
        "it changes what sbatch prints or when, which gives the job's number",
    ),
}
_UNSAFE = re.compile(r"[\x00-\x1f\x7f]")


class Gpus(NamedTuple):
    """GPUs of a node."""

    num: int
    type: str | None


def parse_gpus(text: str | int, *, name: str = "--gpus-per-node") -> Gpus:
    """Read `8` or `h100:8`.

    Raises:
        ValueError: for anything else.
    """
    match = re.fullmatch(r"(?:([A-Za-z][\w.-]*):)?(\d+)", str(text).strip())
    if match is None:
        raise ValueError(f"{name} is {text!r}: write how many GPUs a node has, as 8, or with their type, as h100:8.")
    return Gpus(int(match.group(2)), match.group(1))


def gpu_option(gpus: Gpus, *, request: str, sbatch: Mapping[str, Any]) -> dict[str, str]:
    """The option that requests the GPUs; none if `sbatch` already requests them by its own gres.

    Raises:
        ValueError: for another `request` than GPU_REQUESTS.
    """
    if request not in GPU_REQUESTS:
        raise ValueError(f"--gpu-request must be one of {', '.join(GPU_REQUESTS)}, got {request!r}.")
    if gpus.num == 0 or request == "none" or "gpu" in str(sbatch.get("gres", "")):
        return {}
    amount = f"{gpus.type}:{gpus.num}" if gpus.type else str(gpus.num)
    return {"gres": f"gpu:{amount}"} if request == "gres" else {"gpus-per-node": amount}


def parse_sbatch(texts: Iterable[str], *, name: str = "--sbatch") -> dict[str, Any]:
    """Read NAME=VALUE, or NAME alone for an option without a value (True).

    Raises:
        ValueError: for a bad name, one that follows from other settings, or one that is given twice.

    Example:
        parse_sbatch(["reservation=night", "exclusive"])  ->  {"reservation": "night", "exclusive": True}
    """
    options: dict[str, Any] = {}
    for text in texts:
        key, _, value = text.partition("=")
        key = key.strip().lstrip("-").replace("_", "-")
        if not re.fullmatch(r"[A-Za-z][\w-]*", key):
            raise ValueError(f"{name} {text!r} must be NAME=VALUE, or the NAME of an option without a value.")
        if key in SET_BY_US:
            raise ValueError(f"{name} {text!r}: --{key} follows from other settings, use those.")
        if key in _REFUSED:
            raise ValueError(f"{name} {text!r}: --{key} cannot be given, because {_REFUSED[key]}.")
        if key in options:
            raise ValueError(f"{name} {text!r}: {key} is given twice.")
        if value.lower() in ("false", "null", "~"):
            continue
        options[key] = True if value.lower() in ("", "true") else value
    check_text({f"{name} {key}": value for key, value in options.items()})
    return options


def check_text(texts: Mapping[str, Any]) -> None:
    """Refuse line breaks and other control characters: each text becomes a line of the batch script.

    Raises:
        ValueError: naming the option.
    """
    for name, text in texts.items():
        if text is not None and _UNSAFE.search(str(text)):
            raise ValueError(f"{name} is {str(text)!r}: it must not hold a line break or another control character.")
