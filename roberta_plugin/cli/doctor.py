"""`roberta doctor` finds what is missing or broken in an installation, and says how to repair it.

Every check runs by itself, so a broken package becomes a fault in the list instead of an exception.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import roberta_plugin
from roberta_plugin.cli.command import command
from roberta_plugin.extras import FAIRSEQS, installed_fairseqs, version_of
from roberta_plugin.settings import setting

PROJECT = "roberta_plugin"
BESIDE_TORCH = ("torchaudio", "torchvision")  # ve-fairseq installs the first and uses it for speech only
REINSTALL = "pip install -c .constraints.txt -e . && pip uninstall -y torchaudio"  # in a clone, as in README.md


class Fault(NamedTuple):
    """A problem, and the command that repairs it."""

    what: str
    found: str
    remedy: str
    is_needed: bool = True  # by the plugin itself; otherwise the fault is a note


@dataclass(frozen=True, kw_only=True)
class DoctorSettings:
    """The fields are options of `roberta doctor`."""

    json: bool = setting(False, "print the problems as JSON")


@command(DoctorSettings)
def doctor(settings: DoctorSettings) -> int:
    """Finds what is missing or broken among packages, fairseq and the plugin in fairseq, and prints a remedy for each
    fault. Exit code 1 if the plugin needs it.
    """
    faults = [*find_package_faults(metadata.requires(PROJECT) if version_of(PROJECT) else None)]
    faults += [*find_fairseq_faults(), *find_transformers_faults()]
    faults += [] if import_error("torch") else find_device_faults()  # the first is a fault of fairseq already
    is_broken = any(fault.is_needed for fault in faults)
    if settings.json:
        print(json.dumps({"ok": not is_broken, "findings": [fault._asdict() for fault in faults]}, indent=2))
        return int(is_broken)
    for fault in faults:
        print(f"{'FAULT' if fault.is_needed else 'note '} {fault.what}: {fault.found}\n      {fault.remedy}")
    print("To be repaired: see the remedies above." if is_broken else "Everything the plugin needs works.")
    return int(is_broken)


def find_package_faults(requirements: list[str] | None) -> Iterator[Fault]:
    """Packages that are missing or have another version than this platform needs, by the lines of setup.py."""
    if not requirements:
        yield Fault(PROJECT, "not installed in this environment", f"In the repository: {REINSTALL}")
        return
    if error := import_error("packaging.requirements"):
        yield Fault("packaging", error, "pip install packaging")
        return
    from packaging.requirements import Requirement

    for needed in map(Requirement, requirements):
        if needed.name in FAIRSEQS or (needed.marker and not needed.marker.evaluate({"extra": ""})):
            continue  # each kind of fairseq will do
        version = version_of(needed.name)
        if version is None or not needed.specifier.contains(version, prereleases=True):
            found = f"{version}, but {needed.specifier} is needed" if version else "missing"
            yield Fault(needed.name, found, f'pip install "{needed.name}{needed.specifier}"')


def find_fairseq_faults() -> Iterator[Fault]:
    """No fairseq, several, or one that does not work with the plugin."""
    installed = installed_fairseqs()
    if len(installed) != 1:
        found = f"several are installed: {', '.join(installed)}" if installed else "missing"
        keep_one = f"Keep one: pip uninstall {' '.join(installed)}; " if installed else ""
        yield Fault("fairseq", found, keep_one + REINSTALL)
    # The first imports fairseq, and keeps its logging quiet.
    elif error := import_error("roberta_plugin.fairseq_workarounds", "fairseq.tasks", then=roberta_plugin.register):
        yield Fault("fairseq", error, f"Reinstall: {REINSTALL}")
    folder = Path(sys.executable).parent
    if missing := [name for name in ("fairseq-train", "fairseq-validate") if not (folder / name).is_file()]:
        yield Fault("fairseq", f"missing in {folder}: {', '.join(missing)}", f"Reinstall: {REINSTALL}")


def find_transformers_faults() -> Iterator[Fault]:
    """transformers, which opens exported models, cannot be imported; mostly because of what it imports beside torch."""
    if version_of("transformers") and (error := import_error("transformers.pipelines")):
        broken = [name for name in BESIDE_TORCH if version_of(name) and import_error(name)]
        again = "pip install -c .constraints.txt --force-reinstall --no-deps transformers"
        yield Fault("transformers", error, f"pip uninstall -y {' '.join(broken)}" if broken else again)


def find_device_faults() -> Iterator[Fault]:
    """A CUDA build of torch that finds no GPU."""
    import torch

    if torch.version.cuda is not None and not torch.cuda.is_available():
        found = f"no CUDA device, although torch {torch.__version__} is a build for CUDA {torch.version.cuda}"
        remedy = "If the machine has a GPU, `nvidia-smi` must list it: install or update the NVIDIA driver, and check "
        remedy += "CUDA_VISIBLE_DEVICES. If it has none, training works on the CPU."
        yield Fault("device", found, remedy, is_needed=False)


def import_error(*names: str, then: Callable[[], object] = lambda: None) -> str:
    """Why one of these modules cannot be imported or `then` fails, in a line; "" if all is well."""
    name = ""
    try:
        for name in names:
            importlib.import_module(name)
        then()
    except Exception as error:  # a broken package may raise anything, such as that a CUDA library is missing
        return f"{name} cannot be imported: {type(error).__name__}: {error}".splitlines()[0]
    return ""
