"""Commands that SIGTERM stops while they train, or before they have written."""

import importlib
import os
import signal
import time

from roberta_plugin import files
from roberta_plugin.cli import main
from roberta_plugin.conversion import convert
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


def check_stopped_conversion(words, tmp_path, monkeypatch):
    """Check that a conversion leaves nothing when it is stopped, and a whole model in a hidden folder when it is killed.

    That folder is removed by the next conversion.
    """
    arguments = [*words, "--output-dir", str(tmp_path / "out")]
    monkeypatch.setattr(convert, "replace_folder", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    assert main(arguments) == 143
    assert not list(tmp_path.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(files.shutil, "rmtree", lambda *_, **__: None)  # as SIGKILL leaves it
        assert main(arguments) == 143
    monkeypatch.undo()
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".out.") and (left / "conversion.json").is_file()
    assert main(arguments) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
