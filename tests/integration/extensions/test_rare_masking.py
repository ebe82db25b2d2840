"""The example of a masking strategy: trained, killed and resumed, from a wheel and from a --user-dir; listed in --help."""

import re
import subprocess

import pytest
import torch

from tests.conftest import REPOSITORY
from tests.forked_training import run_python
from tests.integration.extensions.wheels import environment_of, install, run_tests
from tests.tiny_corpus import environment, kill_at_update, logged, run, same_weights, train_command

pytestmark = pytest.mark.integration

EXAMPLE = REPOSITORY / "examples" / "extensions" / "rare_masking"
RARE = ("--masking", "rare", "--rare-power", "0.75", "--mask-prob-updates", "12")
SHORT = ("--total-num-update", "20", "--save-interval-updates", "3", "--no-epoch-checkpoints", "--num-workers", "1")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the package as pip installs it from its wheel, without network."""
    return install(EXAMPLE, tmp_path_factory.mktemp("rare"))


def started(arguments, folder):
    """The command in a new process, for which the package is installed in `folder`."""
    return subprocess.run(
        arguments, env=environment_of(folder), cwd=folder, capture_output=True, text=True, timeout=200, check=False
    )


def with_user_dir(words):
    at = words.index("--user-dir")
    return [*words[: at + 1], str(EXAMPLE / "rare_masking"), *words[at + 2 :]]


def test_installed_or_as_user_dir_it_trains_is_killed_and_goes_on_with_the_same_masks(
    installed, tiny_data_bin, tmp_path
):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    options = (*RARE, *SHORT, "--max-update", "14")
    done = started(train_command(tiny_data_bin, whole, *options), installed)
    assert done.returncode == 0, done.stderr[-3000:]

    arguments = with_user_dir(train_command(tiny_data_bin, killed, *options))
    kill_at_update(arguments, killed, 7)
    saved = torch.load(killed / "checkpoint_last.pt", weights_only=False)
    assert (saved["cfg"]["task"]["masking"], saved["cfg"]["task"]["rare_power"]) == ("rare", 0.75)
    done = run(arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"@ (6|9|12) updates", done.stdout + done.stderr)
    same_weights(killed, whole)
    losses = [
        {record["num_updates"]: record["loss"] for record in logged(each, "train_inner")} for each in (whole, killed)
    ]
    assert losses[0] == losses[1] and len(losses[0]) == 14

    for folder, package in ((whole, "rare-masking 1.0"), (killed, "rare_masking")):  # by a program without the package
        code = "import sys, roberta_plugin; from fairseq import checkpoint_utils as c; roberta_plugin.register()\n"
        code += "c.load_model_ensemble_and_task([sys.argv[1]])"
        loaded = run_python(code, str(folder / "checkpoint_last.pt"), cwd=REPOSITORY, environment=environment())
        assert f"It was brought by {package}: install that, or name its folder by --user-dir." in loaded.stderr
    done = run([*train_command(tiny_data_bin, tmp_path / "lost", *SHORT, "--masking", "rare"), "--max-update", "1"])
    assert done.returncode != 0
    assert "There is no masking 'rare'; there are uniform. Install the package that brings it" in done.stderr


def test_help_lists_it_and_its_options_and_its_own_tests_pass(installed):
    done = run([*with_user_dir(train_command("DATA", REPOSITORY / "unused")), "--help"])
    assert "one of uniform, rare (more rare tokens)" in " ".join(done.stdout.split())
    assert "--rare-power" in done.stdout and "--mask-prob-updates" in done.stdout
    assert "passed" in run_tests([installed], EXAMPLE / "tests", cwd=installed)
