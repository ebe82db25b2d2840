"""`roberta user-dir`: the folder that fairseq-train's --user-dir takes, from wherever it is called."""

from __future__ import annotations

import argparse
from importlib import metadata
from pathlib import Path

import roberta_plugin

PACKAGE = Path(roberta_plugin.__file__).parent
RECIPE = "slurm/pretrain.yaml"  # one of those that setup.py installs to share/roberta_plugin


def define(parser: argparse.ArgumentParser) -> None:
    """Describe `roberta user-dir` and add its option."""
    parser.description = 'Prints the plugin\'s folder: fairseq-train DATA-BIN --user-dir "$(roberta user-dir)" ...'
    parser.add_argument(
        "--recipes", action="store_true", help="print the folder that holds slurm/ and examples/, to copy recipes from"
    )


def run(args: argparse.Namespace) -> int:
    """Print the folder."""
    print(recipes() if args.recipes else PACKAGE)
    return 0


def recipes() -> Path:
    """The folder with slurm/ and examples/: the clone, or what was installed from the wheel.

    Raises:
        FileNotFoundError: if there are none.
    """
    if (PACKAGE.parent / RECIPE).is_file():
        return PACKAGE.parent
    installed = metadata.files(PACKAGE.name) or []
    for path in (Path(str(file.locate())).resolve() for file in installed if str(file).endswith(RECIPE)):
        if path.is_file():
            return path.parents[1]
    raise FileNotFoundError("This installation has no recipes: install the wheel, or clone the repository.")
