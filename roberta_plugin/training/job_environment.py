"""The environment of a job: inherited variables, its own variables, modules, conda.

Values of secrets in `env` (`is_secret`) are written to no file: `keep_secrets` leaves them in the environment of this
process, from which sbatch gives them to the job. SLURM keeps a job's environment for its restarts. Files that hold
`setup` and `sbatch` can be read by their owner alone.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from roberta_plugin.training.options_file import read_yaml

ALL, NONE = "all", "none"
# Variables that a job needs on any cluster; always inherited.
ALWAYS = (
    *("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LC_*", "TZ", "MODULEPATH", "MUNGE_*"),
    *("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SBATCH_*", "PYTHONPATH", "VIRTUAL_ENV"),
)
_SECRET = re.compile("TOKEN(?!IZER)|KEY|SECRET|PASS|CREDENTIAL|AUTH|SESSION")
_ASSIGNED = re.compile(rf"\b[A-Z0-9_]*(?:{_SECRET.pattern})[A-Z0-9_]*=")
_LEAST_SECRET = 6  # characters: a shorter value stands elsewhere for other reasons
_PATTERN = re.compile(r"[A-Za-z_*][\w*]*")
_MODULE_FILES = ("modules.sh", "lmod.sh", "z00_lmod.sh")  # in /etc/profile.d; a batch shell reads none of them


def is_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret, as HF_TOKEN, WANDB_API_KEY or DB_PASS."""
    return _SECRET.search(name.upper()) is not None


def keep_secrets(env: Iterable[str]) -> tuple[str, ...]:
    """Set the secrets among NAME=VALUE texts in this process's environment, and return the texts without their values.

    Example:
        keep_secrets(["HF_TOKEN=hf_abc", "NCCL_DEBUG=WARN"])  ->  ("HF_TOKEN", "NCCL_DEBUG=WARN")
    """
    texts = []
    for text in env:
        name, equals, value = text.partition("=")
        is_kept = bool(equals) and name.isidentifier() and is_secret(name)
        if is_kept:
            os.environ[name] = value
        texts.append(name if is_kept else text)
    return tuple(texts)


def check_environment(env: Collection[str], inherit: str) -> None:
    """Check `--env` and `--inherit`.

    Raises:
        ValueError: naming the option, never a value, which may be a secret.
    """
    names = [text.partition("=")[0] for text in env]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--env {name!r} is given twice.")
    for text in env:
        name, equals, _ = text.partition("=")
        if not name.isidentifier() or (not equals and name not in os.environ):
            raise ValueError(f"--env {name!r} must have the form NAME=VALUE, or name a variable that is set here.")
    for pattern in _patterns(inherit):
        if not _PATTERN.fullmatch(pattern):
            raise ValueError(f"--inherit {inherit!r} must be all, none, or names of variables such as NCCL_*,HF_HOME.")


def written_variables(env: Iterable[str]) -> dict[str, str]:
    """The variables that a file for the batch script may hold; one without a value has that of this process."""
    pairs = (text.partition("=") for text in env)
    return {name: value if equals else os.environ.get(name, "") for name, equals, value in pairs if not is_secret(name)}


def dropped_variables(env: Iterable[str], inherit: str) -> set[str]:
    """Variables of this process that a job must not inherit, by `--inherit`; those of `--env` always go along.

    Example:
        dropped_variables(["HF_TOKEN"], "NCCL_*")  ->  all but HF_TOKEN, NCCL_..., HOME, PATH and others
    """
    if inherit == ALL:
        return set()
    patterns = (*ALWAYS, *_patterns(inherit), *(text.partition("=")[0] for text in env))
    return {name for name in os.environ if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)}


def activation_lines(modules: Collection[str], conda: str | None) -> list[str]:
    """Lines of the batch script that load modules and activate a conda environment; a failure is only reported.

    The ranks then fail without it, and the restart policy decides: a slow file server must not end a run of weeks.
    """
    lines = []
    if modules:
        files = " ".join(f"/etc/profile.d/{name}" for name in _MODULE_FILES)
        lines += [
            f'type module >/dev/null 2>&1 || for file in {files}; do [ -r "$file" ] && . "$file"; done',
            f"module load {shlex.join(modules)} || "
            f"echo {shlex.quote(f'the modules {shlex.join(modules)} cannot be loaded')} >&2",
        ]
    if conda:
        lines += [
            '. "$("${CONDA_EXE:-conda}" info --base)/etc/profile.d/conda.sh" && '
            f"conda activate {shlex.quote(conda)} || echo {shlex.quote(f'{conda} cannot be activated')} >&2"
        ]
    return lines


def redacted_copy(path: Path, env: Iterable[str] = ()) -> str:
    """The YAML of a recipe or grid file without comments and the values of secrets.

    In a shell line that assigns a secret, everything after the = is removed.

    Example:
        env: {HF_TOKEN: hf_abc, NCCL_DEBUG: WARN}  ->  env: {HF_TOKEN: ..., NCCL_DEBUG: WARN}
    """
    names = {name for item in env if is_secret(name := item.partition("=")[0])}
    values = [value for value in map(os.environ.get, names) if value and len(value) >= _LEAST_SECRET]

    def clean(item: Any, key: str = "") -> Any:
        if isinstance(item, Mapping):
            return {name: clean(value, name) for name, value in item.items()}
        if isinstance(item, list):
            return [clean(value, key) for value in item]
        if key in names or (key.isupper() and is_secret(key)):
            return "..."
        found = _ASSIGNED.search(item)
        item = item if found is None else f"{item[: found.end()]}..."
        for value in values:
            item = item.replace(value, "...")
        return item

    copy: str = yaml.safe_dump(clean(read_yaml(path)), sort_keys=False, allow_unicode=True)
    return copy


def _patterns(inherit: str) -> list[str]:
    return [] if inherit in (ALL, NONE) else [part.strip() for part in inherit.split(",")]
