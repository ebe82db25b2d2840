"""The program to start for a training in a process of its own."""

import sys
from pathlib import Path


def train_program() -> list[str]:
    """The fairseq-train of this environment."""
    script = Path(sys.executable).parent / "fairseq-train"
    return [str(script)] if script.is_file() else [sys.executable, "-m", "fairseq_cli.train"]
