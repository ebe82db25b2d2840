"""Resources and environment of a SLURM job: one vocabulary for `roberta launch`, `roberta sweep`, `roberta finetune`.

The fields of `Resources` are the keys of a recipe, of the section `slurm` in a grid file and of `--slurm NAME=VALUE`;
slurm/README.md has the formats.

    gpus_per_node: h100:8                                             type as SLURM names it, and number
    gpu_request: none                                                 a cluster without GRES
    sbatch: {reservation: night, exclusive: true, mail-type: FAIL}    any other option of sbatch

    texts --read_resources--> Resources --submitit_parameters--> options of sbatch

A job's environment: variables of the submitting shell (`inherit`) and its own (`env`), modules, conda. Values of
secrets in `env` (`is_secret`) are written to no file: `keep_secrets` leaves them in the environment of this process,
from which sbatch gives them to the job. SLURM keeps a job's environment for its restarts. Files that hold `setup` and
`sbatch` can be read by their owner alone.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from roberta_plugin.launch.options_file import read_yaml
from roberta_plugin.settings import BAGS, check_names, check_values, convert, is_null, setting, short

# Options of sbatch that follow from other settings, and from which.
SET_BY_US = {
    **dict.fromkeys(("ntasks", "ntasks-per-node"), "gpus_per_node: each GPU has a process"),
    **dict.fromkeys(("gpus", "gpus-per-task", "gpus-per-node"), "gpus_per_node"),
    "cpus-per-task": "cpus_per_gpu, or cpus_per_task without GPUs",
    "mem": "mem_gb",
    "signal": "signal_delay",
    **{name: name for name in ("nodes", "time", "partition", "account", "qos", "constraint", "exclude")},
    **dict.fromkeys(("requeue", "no-requeue"), "the restart policy: jobs are requeued"),
    "distribution": "the order of ranks, which is fixed",
    **dict.fromkeys(("output", "error", "open-mode"), "--output-dir: logs are written there"),
    "job-name": "--job-name, or the name of --output-dir",
    "array": "the runs and --parallel",
    "wrap": "the program that the job runs",
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
ALL, NONE = "all", "none"
# Variables that a job needs on any cluster; always inherited.
ALWAYS = (
    *("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LC_*", "TZ", "MODULEPATH", "MUNGE_*"),
    *("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SBATCH_*", "PYTHONPATH", "VIRTUAL_ENV"),
)
_SECRET = re.compile("TOKEN(?!IZER)|KEY|SECRET|PASS|CREDENTIAL|AUTH|SESSION")
_ASSIGNED = re.compile(rf"\b[A-Z0-9_]*(?:{_SECRET.pattern})[A-Z0-9_]*=")
_LEAST_SECRET = 6  # characters: a shorter value may occur elsewhere for other reasons
_PATTERN = re.compile(r"[A-Za-z_*][\w*]*")
_MODULE_FILES = ("modules.sh", "lmod.sh", "z00_lmod.sh")  # in /etc/profile.d, which a batch shell does not read


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources of one job; None and empty leave the choice to the cluster."""

    nodes: int = setting(1, "nodes", smallest=1, road="slurm")
    gpus_per_node: int = setting(0, "GPUs per node, as 8 or h100:8", smallest=0, road="slurm")
    gpu_type: str | None = setting(
        None, "type of the GPUs as SLURM names it (gpus_per_node: h100:8 says both)", road="slurm"
    )
    gpu_request: str = setting(
        "gpus-per-node",
        "option that requests GPUs; none: for clusters without GRES",
        choices=("gpus-per-node", "gres", "none"),
        road="slurm",
    )
    cpus_per_gpu: int = setting(4, "processor cores per GPU; without GPUs, per node", smallest=1, road="slurm")
    mem_gb: int | None = setting(
        None, "memory of a node in GB", default_text="the partition's", smallest=1, road="slurm"
    )
    partition: str | None = setting(None, "SLURM partition, or several: A,B (default: the cluster's)", road="slurm")
    time: str = setting("", "time limit: minutes, HH:MM:SS or D-HH:MM:SS", road="slurm")
    account: str | None = setting(None, "account to charge", road="slurm")
    qos: str | None = setting(None, "quality of service", road="slurm")
    constraint: str | None = setting(None, "features that the nodes must have", road="slurm")
    exclude: str | None = setting(None, "nodes that must not be used", road="slurm")
    modules: tuple[str, ...] = setting((), "environment module to load, as cuda/12.4", road="slurm")
    conda: str | None = setting(None, "conda environment to activate, by its name or folder", road="slurm")
    env: tuple[str, ...] = setting((), "NAME=VALUE, or the NAME of a variable set here: variable of every process")
    inherit: str = setting(
        "all",
        "variables of the submitting shell that the job gets: all, none, or names such as NCCL_*,HF_HOME",
        road="slurm",
    )
    setup: tuple[str, ...] = setting((), "shell line of the batch script before the job starts", road="slurm")
    sbatch: tuple[str, ...] = setting(
        (), "any other option of sbatch: NAME=VALUE, or NAME for one without a value", road="slurm"
    )
    signal_delay: int = setting(
        120, "seconds before the time limit at which the job saves and stops", smallest=0, road="slurm"
    )

    @property
    def sbatch_options(self) -> dict[str, Any]:
        """Further options of sbatch by name; True for those without a value."""
        return parse_sbatch(self.sbatch)

    @property
    def activation(self) -> list[str]:
        """Lines of the batch script: modules, conda and `setup`. A failure of the first two is only reported.

        The ranks then fail without it, and the restart policy decides: a slow file server must not end a run of weeks.
        """
        lines = []
        if self.modules:
            files, names = " ".join(f"/etc/profile.d/{name}" for name in _MODULE_FILES), shlex.join(self.modules)
            lines += [
                f'type module >/dev/null 2>&1 || for file in {files}; do [ -r "$file" ] && . "$file"; done',
                f"module load {names} || echo {shlex.quote(f'the modules {names} cannot be loaded')} >&2",
            ]
        if self.conda:
            failed = shlex.quote(f"{self.conda} cannot be activated")
            lines += [
                '. "$("${CONDA_EXE:-conda}" info --base)/etc/profile.d/conda.sh" && '
                f"conda activate {shlex.quote(self.conda)} || echo {failed} >&2"
            ]
        return [*lines, *self.setup]


R = TypeVar("R", bound=Resources)


def read_resources(values: Mapping[str, Any], *, where: str, kind: type[R], hint: str = "") -> R:
    """Resources (or a dataclass that extends them) from texts by name.

    `sbatch.NAME` and `env.NAME`, as on a command line, override `sbatch` and `env`; None means an entry
    without a value. `h100:8` as gpus_per_node also sets gpu_type, and cpus_per_task is cpus_per_gpu where there are no
    GPUs. Values of secrets in `env` go into this process's environment (`keep_secrets`).

    Raises:
        ValueError: for an unknown name, or a value of another type; the message begins with `where`.

    Example:
        read_resources({"gpus_per_node": "h100:8", "sbatch.qos": "high"}, where="--slurm", kind=Resources)
        ->  Resources(gpus_per_node=8, gpu_type="h100", sbatch=("qos=high",))
    """
    values = _with_entries_in_bags(values)
    cores = values.pop("cpus_per_task", None)
    check_names(values, known=(item.name for item in dataclasses.fields(kind) if item.metadata), where=where, hint=hint)
    if "gpus_per_node" in values:
        _split_gpus(values, where)
    if cores is not None:
        if values.get("gpus_per_node") or "cpus_per_gpu" in values:
            raise ValueError(
                f"{where}: cpus_per_task is for nodes without GPUs. Write cpus_per_gpu instead, the processor cores "
                "per GPU, and leave cpus_per_task out."
            )
        values["cpus_per_gpu"] = cores
    resources = convert(kind, values, where=where)
    try:
        check_values(resources)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return dataclasses.replace(resources, env=keep_secrets(resources.env))


def _with_entries_in_bags(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are given, with an entry such as "sbatch.qos" in the bag "sbatch", where it comes last."""
    entries = {name: value for name, value in values.items() if name.partition(".")[0] in BAGS and "." in name}
    given = {
        name: value
        for name, value in values.items()
        if name not in entries and value is not None and not is_null(value)
    }
    for bag in BAGS:
        further = [
            name.partition(".")[2] + ("" if value is None else f"={value}")
            for name, value in sorted(entries.items(), key=lambda pair: pair[0])
            if name.startswith(f"{bag}.")
        ]
        if further or isinstance(given.get(bag), Mapping):
            given[bag] = with_entries(given.get(bag), further, name=bag)
    return given


def _split_gpus(values: dict[str, Any], where: str) -> None:
    """Split gpus_per_node, such as h100:8, into the number and the type, in place."""
    try:
        values["gpus_per_node"], gpu_type = parse_gpus(values["gpus_per_node"])
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    if gpu_type is not None and values.setdefault("gpu_type", gpu_type) != gpu_type:
        raise ValueError(
            f"{where}: --gpus-per-node asks for GPUs of type {gpu_type} and --gpu-type for {values['gpu_type']}: "
            "leave one of them out."
        )


def given_settings(resources: Resources) -> dict[str, Any]:
    """The settings that differ from their defaults, as the section `slurm` of a grid file holds them.

    Example:
        given_settings(Resources(time="8:00:00", sbatch=("mail-type=END",)))
        ->  {"time": "8:00:00", "sbatch": ["mail-type=END"]}
    """
    values = {item.name: (getattr(resources, item.name), item.default) for item in dataclasses.fields(resources)}
    chosen = {name: value for name, (value, default) in values.items() if value != default}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in chosen.items()}


def with_entries(value: object, further: Any, *, name: str) -> list[str]:
    """The entries of `sbatch` or `env`, whichever is the `name`, overridden by `further` ones; null takes one out.

    Example:
        with_entries({"comment": "a", "mail-type": "END"}, ["mail_type=FAIL"], name="sbatch")
        ->  ["comment=a", "mail_type=FAIL"]
    """
    own, texts = _texts(further, name), _texts(value, name)
    names = {_name_of(text) for text in (further if isinstance(further, Mapping) else own)}
    return [*(text for text in texts if _name_of(text) not in names), *own]


def _texts(value: Any, name: str) -> list[str]:
    """NAME=VALUE of each entry; null means no entry.

    Examples: {"qos": "high"}, ["qos=high"] and "qos=high"  ->  ["qos=high"]
              {"qos": null, "comment": ""}                  ->  ["comment="]
    """
    if value is None or is_null(value):
        return []
    items = value.values() if isinstance(value, Mapping) else [value] if isinstance(value, str) else value
    if any(isinstance(item, list | Mapping) for item in items):
        raise ValueError(f"each value of {name} (--{name}) must be one text, got {short(value)}.")
    if isinstance(value, Mapping):
        return [f"{key}={item}" for key, item in value.items() if item == "" or not is_null(item)]
    return list(map(str, items))


def _name_of(text: str) -> str:
    return text.partition("=")[0].strip().lstrip("-").replace("_", "-")


def check_resources(resources: Resources) -> None:
    """Check all that can be known without asking SLURM."""
    check_values(resources)
    if resources.mem_gb is not None and (per := {"mem-per-cpu", "mem-per-gpu"} & resources.sbatch_options.keys()):
        raise ValueError(f"--mem-gb and --sbatch {min(per)} exclude each other in SLURM: leave one of them out.")
    check_environment(resources.env, resources.inherit)
    gpu_option(resources)
    lines = ("partition", "account", "qos", "constraint", "exclude", "gpu_type")
    check_text({f"--{name.replace('_', '-')}": getattr(resources, name) for name in (*lines, "conda")})
    check_text({"--modules": " ".join(resources.modules)})
    if resources.signal_delay >= minutes_of(resources.time) * 60:
        raise ValueError(
            f"--signal-delay ({resources.signal_delay} s) is not shorter than --time ({resources.time}): the job would "
            "be stopped before it starts. Give a longer --time, or a shorter --signal-delay."
        )


def check_slurm(resources: Resources | None) -> None:
    """Refuse resources of a sweep that cannot work, or have no time limit, before anything is written."""
    if resources is None or not resources.time:
        raise ValueError(
            "The runs have no time limit, which --slurm needs: write `slurm: {time: 8:00:00}` in the grid file, or "
            "--slurm time=8:00:00. A run that needs longer is requeued and resumes."
        )
    check_resources(resources)


def submitit_parameters(resources: Resources, *, ntasks_per_node: int, has_gpus: bool) -> dict[str, Any]:
    """The resources under the names that submitit gives them.

    The processes that SLURM starts on a node share its cores. A training on CPUs counts its processes per node as GPUs.
    """
    further, request = resources.sbatch_options, gpu_option(resources) if has_gpus else {}
    parameters: dict[str, Any] = {
        "nodes": resources.nodes,
        "ntasks_per_node": ntasks_per_node,
        "cpus_per_task": resources.cpus_per_gpu * max(1, resources.gpus_per_node) // ntasks_per_node,
        "time": minutes_of(resources.time),
        "signal_delay_s": resources.signal_delay,
        "wckey": None,  # submitit's default is one that many clusters do not know
        "additional_parameters": {"requeue": True, **further, **request},
    }
    if resources.mem_gb is not None:
        parameters["mem"] = f"{resources.mem_gb}GB"
    names = ("partition", "account", "qos", "constraint", "exclude")
    return parameters | {name: getattr(resources, name) for name in names if getattr(resources, name) is not None}


def minutes_of(time: str) -> int:
    """SLURM's time limit in whole minutes, rounded up.

    Raises:
        ValueError: if `time` does not have one of the forms minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS.

    Example:
        minutes_of("1-01:30")  ->  1530
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", time.strip())
    if match is None:
        raise ValueError(f"--time {time!r} is not a time limit: write minutes, HH:MM:SS or D-HH:MM:SS.")
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is None:
        hours, minutes, seconds = {1: [0, *numbers, 0], 2: [0, *numbers], 3: numbers}[len(numbers)]
    else:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    total = -(-(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds) // 60)
    if total < 1:
        raise ValueError(f"--time {time!r} leaves no time: give at least one minute.")
    return total


def parse_gpus(text: str | int) -> tuple[int, str | None]:
    """Read `8` or `h100:8`: how many, and their type."""
    match = re.fullmatch(r"(?:([A-Za-z][\w.-]*):)?(\d+)", str(text).strip())
    if match is None:
        raise ValueError(
            f"--gpus-per-node is {text!r}: write how many GPUs a node has, as 8, or with their type, as h100:8."
        )
    return int(match.group(2)), match.group(1)


def gpu_option(resources: Resources) -> dict[str, str]:
    """The option that requests the GPUs, with the other resources of a gres in `sbatch`.

    None if that gres requests the GPUs itself.

    Raises:
        ValueError: if it requests another number of GPUs.
    """
    wanted, gres = resources.gpus_per_node, str(resources.sbatch_options.get("gres", ""))
    amount = f"{resources.gpu_type}:{wanted}" if resources.gpu_type else str(wanted)
    further = [item for item in gres.split(",") if item]
    for item in further:  # gpu, gpu:2, gpu:h100, gpu:h100:2, gpu:2(S:0-1), gres/gpu:2
        kind, _, count = item.partition("(")[0].removeprefix("gres/").partition(":")
        if kind != "gpu":
            continue
        number = count.rpartition(":")[2]
        if (int(number) if number.isdecimal() else 1) != wanted:
            raise ValueError(
                f"--sbatch gres={gres} and --gpus-per-node {wanted} ask for different numbers of GPUs: "
                f"leave gpu out of the first (--gpu-request gres adds gpu:{amount}), or correct the second."
            )
        return {}
    if wanted == 0 or resources.gpu_request == "none":
        return {}
    is_gres = resources.gpu_request == "gres"
    return {"gres": ",".join([*further, f"gpu:{amount}"])} if is_gres else {"gpus-per-node": amount}


def parse_sbatch(texts: Iterable[str]) -> dict[str, Any]:
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
            raise ValueError(f"--sbatch {text!r} must be NAME=VALUE, or the NAME of an option without a value.")
        if key in SET_BY_US:
            raise ValueError(f"--sbatch {text!r}: --{key} follows from other settings: {SET_BY_US[key]}.")
        if key in _REFUSED:
            raise ValueError(f"--sbatch {text!r}: --{key} cannot be given, because {_REFUSED[key]}.")
        if key in options:
            raise ValueError(f"--sbatch {text!r}: {key} is given twice.")
        if value.lower() in ("false", "null", "~"):
            continue
        options[key] = True if value.lower() in ("", "true") else value
    check_text({f"--sbatch {key}": value for key, value in options.items()})
    return options


def check_text(texts: Mapping[str, Any]) -> None:
    """Refuse line breaks and other control characters: each text becomes a line of the batch script."""
    for name, text in texts.items():
        if text is not None and _UNSAFE.search(str(text)):
            raise ValueError(f"{name} is {str(text)!r}: it must not hold a line break or another control character.")


def is_secret(name: str) -> bool:
    """True if a variable of this name holds a secret, as HF_TOKEN, WANDB_API_KEY or DB_PASS."""
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
    """The variables that a file for the batch script may hold. A variable without a value gets this process's value."""
    pairs = (text.partition("=") for text in env)
    return {name: value if equals else os.environ.get(name, "") for name, equals, value in pairs if not is_secret(name)}


def dropped_variables(env: Iterable[str], inherit: str) -> set[str]:
    """Variables of this process that a job must not inherit, by `--inherit`. It always inherits variables of `--env`.

    Example:
        dropped_variables(["HF_TOKEN"], "NCCL_*")  ->  all but HF_TOKEN, NCCL_..., HOME, PATH and others
    """
    if inherit == ALL:
        return set()
    patterns = (*ALWAYS, *_patterns(inherit), *(text.partition("=")[0] for text in env))
    return {name for name in os.environ if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)}


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
        assignment = _ASSIGNED.search(item)
        item = item if assignment is None else f"{item[: assignment.end()]}..."
        for value in values:
            item = item.replace(value, "...")
        return item

    copy: str = yaml.safe_dump(clean(read_yaml(path)), sort_keys=False, allow_unicode=True)
    return copy


def _patterns(inherit: str) -> list[str]:
    return [] if inherit in (ALL, NONE) else [part.strip() for part in inherit.split(",")]
