"""A script of the documents, run line by line: bash, and commands of ours that need not import fairseq once more."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from itertools import groupby
from pathlib import Path

from tests.forked_training import run_forked
from tests.tiny_corpus import environment, imports_fairseq

_OF_BASH = re.compile(r"[|<>&;$*?~`#{}()\\]")  # what bash gives a meaning
_CHANGES_BASH = re.compile(r"^(cd|export|set|source|\w+=)", re.MULTILINE)  # what the lines after it depend on


def shell(script: str, folder: Path, *, timeout: float = 300) -> str:
    """Run `script` as `bash -eu` does in `folder`, with the commands of this environment; return what it printed."""
    lines = script.replace("\\\n", " ").splitlines()
    if _CHANGES_BASH.search(script):
        return _run(["bash", "-euo", "pipefail", "-c", script], folder, timeout)
    printed = []
    for is_plain, group in groupby(lines, lambda line: bool(_plain_command(line))):
        if is_plain:
            printed += [_run(_plain_command(line), folder, timeout) for line in group]
        else:
            printed.append(_run(["bash", "-euo", "pipefail", "-c", "\n".join(group)], folder, timeout))
    return "".join(printed)


def _run(words: list[str], folder: Path, timeout: float) -> str:
    bin_folder = Path(sys.executable).parent
    setting = {**environment(), "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    if words[0] == "bash":
        done = subprocess.run(
            words, cwd=folder, env=setting, capture_output=True, text=True, timeout=timeout, check=False
        )
    else:
        done = run_forked([str(bin_folder / words[0]), *words[1:]], cwd=folder, environment=setting, timeout=timeout)
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def _plain_command(line: str) -> list[str]:
    """The words of a line that is a call of fairseq-train or of a heavy verb, and nothing else; else none."""
    if line[:1].isspace() or _OF_BASH.search(line):
        return []
    try:
        words = shlex.split(line)
    except ValueError:  # a quote that is closed in another line
        return []
    return words if words and "/" not in words[0] and imports_fairseq(words) else []
