"""`roberta doctor` checks that everything the plugin needs is installed and works, and if not, says how to fix it;
`roberta user-dir` prints the folder that fairseq-train's --user-dir takes, from wherever it is called.

Every check runs by itself, so a broken package becomes a finding instead of an exception.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import roberta_plugin
from roberta_plugin.cli.command import command
from roberta_plugin.extras import FAIRSEQS, installed_fairseqs, version_of
from roberta_plugin.machine import num_cores
from roberta_plugin.settings import Checked, setting

PROJECT = "roberta_plugin"
PACKAGE = Path(roberta_plugin.__file__).parent
RECIPE = "slurm/pretrain.yaml"  # one of those that setup.py installs to share/roberta_plugin
BESIDE_TORCH = ("torchaudio", "torchvision")  # ve-fairseq installs the first and uses it for speech only
REINSTALL = "pip install -c .constraints.txt -e . && pip uninstall -y torchaudio"  # in a clone, as in README.md


class Finding(NamedTuple):
    """One line of the report; `remedy` is empty if nothing is wrong."""

    what: str
    found: str
    remedy: str = ""
    is_needed: bool = True  # by the plugin itself; otherwise the finding is a note


@dataclass(frozen=True, kw_only=True)
class DoctorSettings:
    """The fields are options of `roberta doctor`."""

    json: bool = setting(False, "print the findings as JSON")


@command(DoctorSettings)
def doctor(settings: DoctorSettings) -> int:
    """Checks Python, packages, fairseq, device and the plugin in fairseq, and prints a remedy for each fault. Exit code
    1 if something that the plugin needs is missing or broken.
    """
    findings = list(examine())
    faults = [finding for finding in findings if finding.remedy and finding.is_needed]
    if settings.json:
        print(json.dumps({"ok": not faults, "findings": [finding._asdict() for finding in findings]}, indent=2))
        return int(bool(faults))
    for finding in findings:
        state = "ok" if not finding.remedy else "FAULT" if finding.is_needed else "note"
        print(f"{state:<5} {finding.what}: {finding.found}" + (f"\n      {finding.remedy}" if finding.remedy else ""))
    print(
        f"\n{len(faults)} to be mended: see the remedies above." if faults else "\nEverything the plugin needs works."
    )
    return int(bool(faults))


def examine() -> Iterator[Finding]:
    """All findings, in the order of the report."""
    yield Finding("python", platform.python_version())
    yield from check_dependencies(requirements())
    for what, check in (("fairseq", check_fairseq), ("device", check_device), ("with fairseq", check_plugin)):
        yield guarded(what, check)
    for name in filter(version_of, BESIDE_TORCH):
        remedy = f"Nothing here needs it, but transformers imports it wherever it is: pip uninstall -y {name}"
        yield check_import(name, remedy=remedy, is_needed=False)
    if version_of("transformers"):  # which opens exported models
        remedy = f"If one of {', '.join(BESIDE_TORCH)} cannot be imported, remove it. Otherwise: pip install -c "
        remedy += ".constraints.txt --force-reinstall --no-deps transformers"
        yield check_import("transformers.pipelines", remedy=remedy, is_needed=True)


def guarded(what: str, check: Callable[[], Finding]) -> Finding:
    """The check's finding; an exception becomes a finding too."""
    try:
        return check()
    except Exception as error:  # a broken package may raise anything
        return Finding(what, f"{type(error).__name__}: {error}".splitlines()[0], f"Reinstall: {REINSTALL}")


def requirements() -> list[str]:
    """The requirements of the installed plugin, with those of its extras and of other platforms."""
    return (metadata.requires(PROJECT) or []) if version_of(PROJECT) else []


def check_dependencies(lines: list[str]) -> Iterator[Finding]:
    """Whether each requirement that counts here is installed in a suitable version."""
    if not lines:
        yield Finding(PROJECT, "not installed in this environment", f"In the repository: {REINSTALL}")
        return
    yield Finding(PROJECT, metadata.version(PROJECT))
    try:
        from packaging.requirements import Requirement
    except ImportError:
        yield Finding("packaging", "missing", "pip install packaging")
        return
    for needed in map(Requirement, lines):
        counts = needed.marker is None or needed.marker.evaluate({"extra": ""})
        if counts and needed.name not in FAIRSEQS:  # check_fairseq accepts any of them
            yield check_package(needed)


def check_package(needed: Any) -> Finding:
    """Whether one package is installed in a suitable version; `needed` is a `packaging.requirements.Requirement`."""
    version, remedy = version_of(needed.name), f'pip install "{needed.name}{needed.specifier}"'
    if version is None:
        return Finding(needed.name, "missing", remedy)
    if needed.specifier.contains(version, prereleases=True):
        return Finding(needed.name, version)
    return Finding(needed.name, f"{version}, but {needed.specifier} is needed", remedy)


def check_fairseq() -> Finding:
    """Which fairseq is installed, and whether it can be imported."""
    installed = installed_fairseqs()
    if not installed:
        return Finding("fairseq", "missing", REINSTALL)
    versions = ", ".join(f"{name} {version}" for name, version in installed.items())
    if len(installed) > 1:
        remedy = f"Keep one: pip uninstall {' '.join(installed)}; {REINSTALL}"
        return Finding("fairseq", f"several are installed: {versions}", remedy)
    importlib.import_module("roberta_plugin.fairseq_workarounds")  # imports fairseq, and keeps its logging quiet
    importlib.import_module("fairseq.tasks")
    return Finding("fairseq", versions)


def check_import(name: str, *, remedy: str, is_needed: bool) -> Finding:
    """Whether an installed package can be imported."""
    package = name.partition(".")[0]
    installed = metadata.version(package)
    try:
        importlib.import_module(name)
    except Exception as error:  # such as an undefined symbol or a missing CUDA library
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        return Finding(package, f"{installed} cannot be imported: {why}", remedy, is_needed)
    return Finding(package, installed)


def check_device() -> Finding:
    """The device that training will use; a CUDA build of torch that finds no GPU is a note."""
    import torch

    cores = num_cores()
    if not torch.cuda.is_available():
        processor = f"CPU, {cores} cores, {torch.get_num_threads()} threads; no CUDA device"
        if torch.version.cuda is None:
            return Finding("device", processor)
        return Finding(
            "device",
            f"{processor}, although torch {torch.__version__} is a build for CUDA {torch.version.cuda}",
            "If the machine has a GPU, `nvidia-smi` must list it: install or update the NVIDIA driver, and check "
            "CUDA_VISIBLE_DEVICES. If it has none, training works on the CPU; the CPU build of torch is several GB "
            "smaller: pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cpu",
            is_needed=False,
        )
    names = {torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())}
    return Finding("device", f"{torch.cuda.device_count()} x {', '.join(sorted(names))}; {cores} cores")


def check_plugin() -> Finding:
    """Whether fairseq takes the plugin's names, and its commands are in the folder of this Python."""
    import roberta_plugin

    roberta_plugin.register()
    folder = os.path.dirname(sys.executable)
    missing = [name for name in ("fairseq-train", "fairseq-validate") if not os.path.isfile(os.path.join(folder, name))]
    if missing:
        return Finding("with fairseq", f"missing in {folder}: {', '.join(missing)}", REINSTALL)
    return Finding("with fairseq", f"registered; fairseq-train and fairseq-validate are in {folder}")


@dataclass(frozen=True, kw_only=True)
class UserDirSettings(Checked):
    """The fields are options of `roberta user-dir`."""

    recipes: bool = setting(False, "print the folder that holds slurm/ and examples/, to copy recipes from")


@command(UserDirSettings)
def user_dir(settings: UserDirSettings) -> int:
    """Prints the plugin's folder: fairseq-train DATA-BIN --user-dir "$(roberta user-dir)" ..."""
    print(find_recipes() if settings.recipes else PACKAGE)
    return 0


def find_recipes() -> Path:
    """The folder with slurm/ and examples/: the clone, or what was installed from the wheel.

    Raises:
        FileNotFoundError: if there are none.
    """
    if (PACKAGE.parent / RECIPE).is_file():
        return PACKAGE.parent
    installed = metadata.files(PACKAGE.name) or []
    for path in (Path(str(file.locate())).resolve() for file in installed if str(file).endswith(RECIPE)):
        if path.is_file():
            return path.parents[1]
    raise FileNotFoundError("This installation has no recipes: install the wheel, or clone the repository.")
