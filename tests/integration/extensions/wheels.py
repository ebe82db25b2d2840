"""Packages of examples/extensions as pip installs them from their wheels, without network."""

import os
import shutil
import subprocess
import sys

from tests.conftest import REPOSITORY
from tests.forked_training import run_forked
from tests.tiny_corpus import command, environment


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


def run_with(folders, *words, cwd, code=0, fork_of="fairseq"):
    """What a command prints for which these folders are installed: a fork that imports roberta_plugin itself."""
    program = words[0] if words[0] == "python" else command(words[0])[0]
    arguments = [program, *words[1:]]
    done = run_forked(arguments, cwd=cwd, environment=environment_of(*folders), timeout=300, fork_of=fork_of)
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def run_tests(folders, tests, *, cwd):
    """Run an example's own tests where these folders are installed; return what pytest prints."""
    program = f"import pytest, sys; sys.exit(pytest.main(['-q', {str(tests)!r}, '-p', 'no:cacheprovider']))"
    return run_with(folders, "python", "-c", program, cwd=cwd, fork_of="packages")
