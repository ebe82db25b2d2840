"""A training prints our lines and fairseq's, no warning of other packages on the list, and every other warning."""

import subprocess
import sys

from tests.conftest import REPOSITORY
from tests.forked_training import run_python
from tests.tiny_corpus import environment, run, train_command

FOREIGN = ("hydra", "version_base", "ConfigStore", "pin_memory", "autocast", "Warning:", "DEBUG")


def test_a_training_prints_no_foreign_warning(tmp_path, tiny_data_bin):
    options = ("--max-update", "2", "--total-num-update", "2", "--log-format", "simple", "--num-workers", "1")
    done = run(train_command(tiny_data_bin, tmp_path / "save", *options))
    assert done.returncode == 0, done.stderr
    printed = done.stdout + done.stderr
    found = [line for line in printed.splitlines() if any(word in line for word in FOREIGN)]
    assert not found
    for own in ("| fairseq_cli.train | task: RobertaMaskedLMTask", "| fairseq.trainer |", "| done training in"):
        assert own in printed, f"fairseq's line is missing: {own}"
    assert "| roberta_plugin.models.roberta | attention backend:" in printed


SCRIPT = """
import warnings
import roberta_plugin
roberta_plugin.register()
number = len(warnings.filters)
roberta_plugin.register()
from roberta_plugin.fairseq_workarounds import foreign_warnings
foreign_warnings.install()
assert len(warnings.filters) == number
warnings.warn("something of torch", FutureWarning)
warnings.warn("`torch.cuda.amp.autocast(args...)` is deprecated.", FutureWarning)
warnings.warn_explicit("`torch.cuda.amp.autocast(args...)` is deprecated.", FutureWarning, "x", 1, "fairseq.trainer")
"""


def test_other_warnings_get_through():
    """Also those on the list that another program causes itself."""
    printed = run_python(SCRIPT, cwd=REPOSITORY, environment=environment()).stderr
    assert "FutureWarning: something of torch" in printed
    assert printed.count("torch.cuda.amp.autocast(args...)` is deprecated.") == 1
    assert "x:1" not in printed


def test_a_user_who_asks_for_all_warnings_gets_them():
    command = [sys.executable, "-W", "default", "-c", SCRIPT]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=200)
    assert "x:1: FutureWarning" in done.stderr
