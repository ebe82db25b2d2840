"""`roberta user-dir` prints the folder that fairseq-train's --user-dir takes, from wherever it is called."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import roberta_plugin
from roberta_plugin.cli.command import command
from roberta_plugin.settings import Checked, setting

PACKAGE = Path(roberta_plugin.__file__).parent
RECIPE = "slurm/pretrain.yaml"  # one of those that setup.py installs to share/roberta_plugin


@dataclass(frozen=True, kw_only=True)
class UserDirSettings(Checked):
    """The fields are options of `roberta user-dir`."""

    recipes: bool = setting(False, "print the folder that holds slurm/ and examples/, to copy recipes from")


@command(UserDirSettings)
def user_dir(settings: UserDirSettings) -> int:
    """Prints the plugin's folder: fairseq-train DATA-BIN --user-dir "$(roberta user-dir)" ..."""
    print(find_recipes() if settings.recipes else PACKAGE)
    return 0


def find_recipes() -> Path:
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
