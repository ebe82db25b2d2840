"""A script of the documents, run line by line: bash, and commands of ours that need not import fairseq once more."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from itertools import groupby
from pathlib import Path

from tests.forked_training import PLUGIN, run_forked
from tests.tiny_corpus import environment

_OF_BASH = re.compile(r"[|<>&;$*?~`#{}()\\]")  # what bash gives a meaning
_QUOTED = re.compile(r"'[^']*'|\"[^\"$`\\]*\"")
_CHANGES_BASH = re.compile(r"^(cd|export|set|source|\w+=)", re.MULTILINE)  # what the lines after it depend on


def shell(script: str, folder: Path, *, timeout: float = 300) -> str:
    """Run `script` as `bash -eu` does in `folder`, with the commands of this environment; return what it printed."""
    lines = script.replace("\\\n", " ").splitlines()
    if _CHANGES_BASH.search(script):
        return _run(["bash", "-euo", "pipefail", "-c", script], folder, timeout)
    printed = []
    for is_plain, group in groupby(lines, lambda line: bool(_plain_command(line))):
        if is_plain:
            for line in group:
                before = _pipe_of(line)[0]
                stdin = _run(["bash", "-euo", "pipefail", "-c", before], folder, timeout) if before else ""
                printed.append(_run(_plain_command(line), folder, timeout, stdin=stdin))
        else:
            printed.append(_run(["bash", "-euo", "pipefail", "-c", "\n".join(group)], folder, timeout))
    return "".join(printed)


def _run(words: list[str], folder: Path, timeout: float, *, stdin: str = "") -> str:
    bin_folder = Path(sys.executable).parent
    setting = {**environment(), "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    if words[0] == "bash":
        done = subprocess.run(
            words, cwd=folder, env=setting, capture_output=True, text=True, timeout=timeout, check=False
        )
    else:
        program = "python" if words[0] == "python" else str(bin_folder / words[0])
        fork_of = (
            PLUGIN if words[0] == "roberta" else "fairseq"
        )  # whose --user-dir is to be the first to load the plugin
        words = [program, *words[1:]]
        done = run_forked(words, cwd=folder, environment=setting, timeout=timeout, stdin=stdin, fork_of=fork_of)
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def _plain_command(line: str) -> list[str]:
    """The words of a command of fairseq or of ours, or of a program in Python, at the end of a pipe; else none."""
    call = _pipe_of(line)[1]
    if line[:1].isspace() or _OF_BASH.search(_QUOTED.sub("", call)):
        return []
    try:
        words = shlex.split(call)
    except ValueError:  # a quote that is closed in another line
        return []
    if words[:1] == ["python"] and words[1:2] and words[1].endswith(".py"):
        return [
            "python",
            "-c",
            "import runpy, sys\ndel sys.argv[0]\nrunpy.run_path(sys.argv[0], run_name='__main__')",
            *words[1:],
        ]
    return words if re.match(r"roberta$|fairseq-[\w-]+$", words[0] if words else "") else []


def _pipe_of(line: str) -> tuple[str, str]:
    """What comes before the last command of a pipe, and that command, without a comment."""
    before, _, call = re.sub(r"\s+#[^'\"]*$", "", line).rpartition(" | ")
    return before, call
