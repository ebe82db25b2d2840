"""Commands that SIGTERM stops while they train."""

import importlib
import os
import signal
import time

from roberta_plugin.cli import main
from roberta_plugin.pretraining import docstrings


def check_stop(words, procedure, tmp_path, monkeypatch, capsys):
    """Check that a command's `procedure` (module.function) is stopped as by Ctrl-C, and that the command says so."""
    monkeypatch.chdir(tmp_path)
    stopped = []

    def train(*args, **kwargs):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        finally:
            stopped.append(args)

    monkeypatch.setattr(docstrings, "write_corpus", lambda *_: None)  # seconds
    module, _, name = f"roberta_plugin.{procedure}".rpartition(".")
    monkeypatch.setattr(importlib.import_module(module), name, train)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert main(words.split()) == 143
    assert len(stopped) == 1
    assert "interrupted: the same command resumes\n" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
