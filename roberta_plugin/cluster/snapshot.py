"""The code and the config as they were at the launch, in the run folder: the job runs what lies there.

RUN-DIR/snapshots/NUMBER/ holds code/ (roberta_plugin, and a user directory of the recipe's own), recipe.json and the
config file. Editing the checkout afterwards changes neither a waiting job nor one that starts again.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import shutil
from importlib import metadata
from pathlib import Path

import roberta_plugin

from .recipe import Recipe

PACKAGE = Path(roberta_plugin.__file__).parent


def take_snapshot(recipe: Recipe, *, arguments: tuple[str, ...], config: Path | None) -> Path:
    """Copy code and config into the run folder; return the new snapshot's folder."""
    folder = next_folder(recipe.run_dir)
    code = folder / "code"
    code.mkdir(parents=True)
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    shutil.copytree(PACKAGE, code / PACKAGE.name, ignore=ignore)
    user_dir = user_dir_of(arguments)
    if user_dir is not None:
        shutil.copytree(user_dir, code / user_dir.name, ignore=ignore)
    record = {
        "recipe": dataclasses.asdict(recipe),
        "fairseq_train": arguments,
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in ("torch", "numpy", "ve-fairseq", "submitit")},
    }
    (folder / "recipe.json").write_text(json.dumps(record, indent=1, default=str) + "\n", encoding="utf-8")
    if config is not None:
        shutil.copyfile(config, folder / config.name)
    return folder


def next_folder(run_dir: Path) -> Path:
    """The folder of the next snapshot: earlier launches of the run keep theirs."""
    taken = [int(path.name) for path in (run_dir / "snapshots").glob("*") if path.name.isdigit()]
    return run_dir / "snapshots" / str(max(taken, default=-1) + 1)


def user_dir_of(arguments: tuple[str, ...]) -> Path | None:
    """The folder of --user-dir, where there is one.

    Raises:
        FileNotFoundError: if it does not exist.
    """
    if "--user-dir" not in arguments[:-1]:
        return None
    folder = Path(arguments[arguments.index("--user-dir") + 1]).resolve()
    if not folder.is_dir():
        raise FileNotFoundError(f"The recipe's --user-dir {folder} does not exist: correct the path.")
    return folder


def arguments_in_snapshot(arguments: tuple[str, ...], *, snapshot: Path) -> tuple[str, ...]:
    """The arguments with --user-dir in the snapshot."""
    user_dir = user_dir_of(arguments)
    if user_dir is None:
        return arguments
    at = arguments.index("--user-dir") + 1
    return (*arguments[:at], str(snapshot / "code" / user_dir.name), *arguments[at + 1 :])
