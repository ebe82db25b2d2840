"""`roberta doctor`: is everything here that the plugin needs, and if not, which command brings it.

Every check stands alone, so that a broken package is reported and not raised.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any, NamedTuple

from roberta_plugin.machine import num_cores

PROJECT = "roberta_plugin"
FAIRSEQ_FLAVOURS = {
    "ve-fairseq": "ve-fairseq, fairseq main built for Python 3.11 and 3.12",
    "fairseq-fixed": "fairseq-fixed, built from source",
    "fairseq": "fairseq, from source or from the package index",
}
SUPPORTED_PYTHON = ((3, 11), (3, 12))
BESIDE_TORCH = ("torchaudio", "torchvision")  # the first comes with ve-fairseq, which uses it for speech only
REINSTALL = "pip install -c .constraints.txt -e ."  # in a clone of the repository, as in README.md
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)\s*([^;]*)(?:;(.*))?$")


class Finding(NamedTuple):
    """One line of the report. `remedy` is empty where all is well."""

    what: str
    found: str
    remedy: str = ""
    is_needed: bool = True
    """Whether the plugin itself needs it; else the remedy is for what may be used beside it."""


def add_parser(subparsers: Any) -> None:
    """Add `roberta doctor` and its options."""
    parser = subparsers.add_parser(
        "doctor",
        help="check the installation, and say how to mend what is missing",
        description="Shows versions, device and registered names; exit code 1 if something that is needed is missing.",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the findings; 0 if nothing has to be mended."""
    findings = list(examine())
    to_mend = [finding for finding in findings if finding.remedy and finding.is_needed]
    if args.json:
        print(json.dumps({"ok": not to_mend, "findings": [finding._asdict() for finding in findings]}, indent=2))
        return int(bool(to_mend))
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        state = "ok" if not finding.remedy else "MEND" if finding.is_needed else "note"
        print(f"{state:<5} {finding.what:<{width}}  {finding.found}")
    for finding in findings:
        if finding.remedy:
            print(f"\n{finding.what}: {finding.found}\n    {finding.remedy}")
    is_noted = any(finding.remedy for finding in findings)
    well = "All that the plugin needs is well." if is_noted else "All is well."
    print(f"\n{well}" if not to_mend else f"\n{len(to_mend)} to mend.")
    return int(bool(to_mend))


def examine() -> Iterator[Finding]:
    """All findings, in the order of the report."""
    yield check_python(sys.version_info[:2])
    yield from check_dependencies(requirements())
    for what, check in (
        ("fairseq", check_fairseq),
        ("device", check_device),
        ("fused loss", check_fused_loss),
        ("registered names", check_registry),
        ("commands", check_commands),
    ):
        yield guarded(what, check)
    for name in BESIDE_TORCH:
        if _is_installed(name):
            yield check_beside_torch(name)


def guarded(what: str, check: Callable[[], Finding]) -> Finding:
    """The check's finding, or the error it ran into as one."""
    try:
        return check()
    except Exception as error:  # a broken package may raise anything: that is a finding
        return Finding(what, f"{type(error).__name__}: {error}".splitlines()[0], f"Reinstall: {REINSTALL}")


def check_python(version: tuple[int, int]) -> Finding:
    """The interpreter, which decides whether fairseq has a build for it."""
    found = platform.python_version()
    if version in SUPPORTED_PYTHON:
        return Finding("python", found)
    return Finding("python", found, "Use CPython 3.11 or 3.12: make a new virtual environment with python3.12 -m venv.")


def requirements() -> list[str]:
    """What the installed plugin says it needs; extras left out."""
    try:
        lines = metadata.requires(PROJECT) or []
    except metadata.PackageNotFoundError:
        return []
    return [line for line in lines if "extra ==" not in line]


def check_dependencies(lines: list[str]) -> Iterator[Finding]:
    """Whether each requirement is installed in a version that fits."""
    if not lines:
        yield Finding(PROJECT, "not installed in this environment", f"In the repository: {REINSTALL}")
        return
    yield Finding(PROJECT, metadata.version(PROJECT))
    for line in lines:
        match = _REQUIREMENT.match(line)
        assert match is not None, line
        name, versions = match.group(1), match.group(2).strip()
        if name not in FAIRSEQ_FLAVOURS:  # any flavour will do: see check_fairseq
            yield check_package(name, versions)


def check_package(name: str, versions: str) -> Finding:
    """One package and the versions that fit."""
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, "missing", f'pip install "{name}{versions}"')
    if fits(found, versions):
        return Finding(name, found)
    return Finding(name, f"{found}, but {versions} is needed", f'pip install "{name}{versions}"')


def fits(found: str, versions: str) -> bool:
    """Whether a version is in a range such as `>=2.6`; True where `packaging`, which can tell, is missing."""
    try:
        specifiers = importlib.import_module("packaging.specifiers")
    except ImportError:
        return True
    return bool(specifiers.SpecifierSet(versions).contains(found, prereleases=True))


def check_fairseq() -> Finding:
    """Which fairseq it is, and whether it can be imported."""
    installed = [name for name in FAIRSEQ_FLAVOURS if _is_installed(name)]
    if not installed:
        return Finding("fairseq", "missing", REINSTALL)
    found = ", ".join(f"{metadata.version(name)} ({FAIRSEQ_FLAVOURS[name]})" for name in installed)
    if len(installed) > 1:
        remedy = f"Keep one: pip uninstall {' '.join(installed)}; {REINSTALL}"
        return Finding("fairseq", f"several at once: {found}", remedy)
    importlib.import_module("roberta_plugin.fairseq_workarounds")  # imports fairseq, and keeps its logging quiet
    importlib.import_module("fairseq.tasks")
    return Finding("fairseq", found)


def check_beside_torch(name: str) -> Finding:
    """Whether a package that is compiled against torch can be loaded beside the torch that is installed."""
    import torch

    found = f"{metadata.version(name)} beside torch {torch.__version__}"
    try:
        importlib.import_module(name)
    except Exception as error:  # an undefined symbol, a missing CUDA library, another torch than it was built for
        build = "cpu" if torch.version.cuda is None else "cu" + torch.version.cuda.replace(".", "")
        return Finding(
            name,
            f"{found} cannot be loaded ({type(error).__name__})",
            f"Training does not need it, but transformers imports it: `from transformers import RobertaForMaskedLM` "
            f"fails. Take the build for this torch: pip install --force-reinstall --no-deps {name} --index-url "
            f"https://download.pytorch.org/whl/{build}; or remove it: pip uninstall {name}",
            is_needed=False,
        )
    return Finding(name, found)


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def check_device() -> Finding:
    """Where training will run."""
    import torch

    cores = num_cores()
    if not torch.cuda.is_available():
        return Finding("device", f"CPU, {cores} cores, {torch.get_num_threads()} threads; no CUDA device")
    names = {torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())}
    return Finding("device", f"{torch.cuda.device_count()} x {', '.join(sorted(names))}; {cores} cores")


def check_fused_loss() -> Finding:
    """Whether torch computes the loss without forming the logits; ours falls back to a plain one."""
    import torch.nn.functional as F

    if hasattr(F, "linear_cross_entropy"):
        return Finding("fused loss", "torch.nn.functional.linear_cross_entropy is there")
    return Finding("fused loss", "not in this torch: the plain loss is used, which needs more memory")


def check_registry() -> Finding:
    """Whether each of our names leads to our class: for a taken name fairseq silently returns its own."""
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.optim import OPTIMIZER_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    import roberta_plugin

    roberta_plugin.register()
    wanted = {
        "task roberta_masked_lm": TASK_REGISTRY.get("roberta_masked_lm"),
        "criterion roberta_masked_lm": CRITERION_REGISTRY.get("roberta_masked_lm"),
        "optimizer roberta_adamw": OPTIMIZER_REGISTRY.get("roberta_adamw"),
    } | {
        f"arch fast_roberta_{size}": ARCH_MODEL_REGISTRY.get(f"fast_roberta_{size}")
        for size in ("tiny", "small", "base", "large")
    }
    foreign = [name for name, cls in wanted.items() if not getattr(cls, "__module__", "").startswith(f"{PROJECT}.")]
    if foreign:
        return Finding(
            "registered names",
            f"not ours: {', '.join(foreign)}",
            "Another plugin took the name, or the installation is broken: start without it, or " + REINSTALL,
        )
    return Finding("registered names", f"all {len(wanted)} lead to this plugin")


def check_commands() -> Finding:
    """Whether fairseq's commands are beside this Python, where the demo looks for them."""
    folder = os.path.dirname(sys.executable)
    missing = [name for name in ("fairseq-train", "fairseq-validate") if not os.path.isfile(os.path.join(folder, name))]
    if missing:
        return Finding("commands", f"missing beside Python: {', '.join(missing)}", REINSTALL)
    return Finding("commands", "fairseq-train and fairseq-validate are beside this Python")
