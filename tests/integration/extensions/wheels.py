"""Packages of examples/extensions as pip installs them from their wheels, without network."""

import os
import shutil
import subprocess
import sys

from tests.conftest import REPOSITORY
from tests.tiny_corpus import environment


def install(source, folder):
    """Build the wheel of a package and install it into a new folder, which is returned."""
    shutil.copytree(source, folder / "source", ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    how = ["--no-deps", "--no-build-isolation", "--no-cache-dir"]
    subprocess.run([*pip, "wheel", *how, "--wheel-dir", folder, folder / "source"], check=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "install", *how, "--no-index", "--target", folder / "site", wheel], check=True, timeout=120)
    return folder / "site"


def environment_of(*folders):
    """The environment of a process for which the packages in these folders are installed."""
    return {**environment(), "PYTHONPATH": os.pathsep.join(map(str, [*folders, REPOSITORY]))}
