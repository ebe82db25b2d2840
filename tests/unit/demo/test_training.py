"""The training of the demo: the real command with the plugin in use, threads, and a failing training."""

from pathlib import Path

import pytest

import roberta_plugin
from roberta_plugin.demo import training
from roberta_plugin.demo.training import pretrain, train_command


def option(command, name):
    assert command.count(name) == 1, name
    return command[command.index(name) + 1]


def test_the_command_is_the_real_one_whose_learning_rate_ends_with_the_training():
    command = train_command(Path("bin"), Path("there"), updates=1000, seed=7)
    assert Path(command[0]).name == "fairseq-train" and command[1] == "bin"
    assert Path(option(command, "--user-dir")) == Path(roberta_plugin.__file__).parent
    assert (option(command, "--seed"), option(command, "--save-dir")) == ("7", "there")
    assert option(command, "--max-update") == option(command, "--total-num-update") == "1000"
    assert 0 < int(option(command, "--warmup-updates")) < 200
    assert option(command, "--save-interval-updates") == "125"


@pytest.mark.parametrize(
    ("given", "cores", "expected"), [("3", 8, "3"), ("", 2, "2"), ("", 64, str(training.MAX_THREADS))]
)
def test_threads_are_those_of_the_environment_or_of_the_machine(monkeypatch, tmp_path, given, cores, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    monkeypatch.setattr(training, "num_cores", lambda: cores)
    used = []

    def lines_of(command, **options):
        used.append(options["environment"])
        yield 'x | train_inner | {"num_updates": "10", "loss": "9.0", "wps": "100"}'

    monkeypatch.setattr(training, "lines_of", lines_of)
    pretrain(["fairseq-train"], log=tmp_path / "train.log", updates=10, lock=-1)
    assert used == [{"OMP_NUM_THREADS": expected}]
