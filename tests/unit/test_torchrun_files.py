"""The documented commands of torchrun: torch's and our own parsers accept them."""

import re
import shlex

import pytest
from torch.distributed import run as torchrun

from roberta_plugin.cli import build_parser
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "examples" / "README.gpu.md").read_text()
COMMANDS = [
    shlex.split(text.replace("\\\n", " ")) for text in re.findall(r"^torchrun (?:.*\\\n)*.*$", PAGE, flags=re.MULTILINE)
]


def parsed(words):
    """What torchrun and `roberta` read from a command."""
    of_torch = torchrun.get_args_parser().parse_args(words)
    program, *arguments = [of_torch.training_script, *of_torch.training_script_args]
    assert (program, of_torch.no_python) == ("roberta", True)
    return of_torch, build_parser(arguments[0]).parse_args(arguments)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[1:4]))
def test_a_documented_command_is_one(words):
    of_torch, ours = parsed(words[1:])
    assert of_torch.nproc_per_node == "8"
    assert ours.verb == "pretrain" or (REPOSITORY / ours.config).is_file()
    assert (ours.data if ours.verb == "pretrain" else ours.train) == ["data-bin/pretrain"]


def test_static_and_elastic_commands_are_documented():
    assert {parsed(words[1:])[0].nnodes for words in COMMANDS} == {"1:1", "4", "2:4"}
