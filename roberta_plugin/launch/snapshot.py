"""Copies of the code and the config at launch, in the run folder; the job runs these.

RUN-DIR/.snapshots/NUMBER/ holds code/ (roberta_plugin, and a user directory of the recipe's own), recipe.json, the
config file and environment.sh, the values of --env; only their owner can read these three. Secrets of --env are in
none of them (`launch/resources.py`). Editing the checkout afterwards changes neither a waiting job nor one that
starts again. A sweep has one snapshot for all its runs.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import secrets
import shlex
import shutil
from collections.abc import Collection, Iterable
from importlib import metadata
from pathlib import Path

from roberta_plugin.files import NO_ROOM
from roberta_plugin.launch.arguments import PACKAGE
from roberta_plugin.launch.recipe import LaunchSettings, recipe_files
from roberta_plugin.launch.resources import redacted_copy, written_variables

ENVIRONMENT = "environment.sh"
SNAPSHOTS = ".snapshots"  # hidden: a user looks for other files in a run folder
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


def take_snapshot(recipe: LaunchSettings, *, arguments: tuple[str, ...], config: Path | None) -> Path:
    """Copy code and config into the run folder; return the new snapshot's folder."""
    folder = next_folder(recipe.output_dir)
    user_dir = user_dir_of(arguments)
    copy_code(folder, user_dirs=() if user_dir is None else (user_dir,))
    record = {
        "recipe": dataclasses.asdict(without_secrets(recipe)),
        "fairseq_train": arguments,
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in ("torch", "numpy", "ve-fairseq", "submitit")},
    }
    write_for_owner(folder / "recipe.json", json.dumps(record, indent=1, default=str) + "\n")
    write_environment(folder, recipe.env)
    for path in [] if config is None else recipe_files(config):
        write_for_owner(folder / path.name, redacted_copy(path, recipe.env))
    return folder


def copy_code(folder: Path, *, user_dirs: Collection[Path]) -> None:
    """Copy this package, and user directories, into `folder`/code, which appears when it is whole.

    Raises:
        ValueError: if something cannot be copied, as a link that leads nowhere.
    """
    unfinished = folder / f".code.{secrets.token_hex(4)}.tmp"
    for source in (PACKAGE, *user_dirs):
        try:
            shutil.copytree(source, unfinished / source.name, ignore=IGNORED)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            reason = reason_of(error)
            remedy = "repair the file, or take it out; a link must lead to a file and not into its own folder."
            if any(os.strerror(number) in reason for number in NO_ROOM):
                remedy = "free some space there, and run the same command again."
            raise ValueError(f"{source} cannot be copied to {folder} ({reason}): {remedy}") from error
    unfinished.rename(folder / "code")


def reason_of(error: OSError) -> str:
    """Why a file or tree was not copied; the first entry of shutil's list of failures."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        return str(error.args[0][0][-1])
    return f"{os.strerror(error.errno)}: {error.filename}" if error.errno and error.filename else str(error)


def sweep_snapshot(root: Path, *, user_dirs: Collection[Path], renew: bool) -> tuple[Path, bool]:
    """The code of a sweep's runs: the first start copies it, and later edits do not change it.

    With `renew` it is the present code from now on. Returns the folder to put in front of PYTHONPATH, and whether the
    present code differs from it.

    Raises:
        ValueError: if two user directories have the same name.
    """
    names = [PACKAGE.name, *(path.name for path in user_dirs)]
    if len(set(names)) < len(names):
        raise ValueError(f"The grid's user directories {', '.join(map(str, user_dirs))} have a name twice: rename one.")
    whole = [code for code in root.glob(f"{SNAPSHOTS}/*/code") if all((code / name).is_dir() for name in names)]
    before = sorted(whole, key=lambda code: int(code.parent.name))
    if before:
        code = before[-1]
        is_outdated = any(_differs(source, code / source.name) for source in (PACKAGE, *user_dirs))
        if not (renew and is_outdated):
            return code, is_outdated
    folder = next_folder(root)
    copy_code(folder, user_dirs=user_dirs)
    return folder / "code", False


def _differs(source: Path, copy: Path) -> bool:
    """Whether a folder of code differs from its copy."""

    def files(folder: Path) -> dict[Path, bytes]:
        paths = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        names = {path.relative_to(folder): path for path in paths}
        return {name: path.read_bytes() for name, path in names.items() if not str(name).startswith(".")}

    return files(source) != files(copy)


def without_secrets(recipe: LaunchSettings) -> LaunchSettings:
    """The recipe without the values of --env."""
    return dataclasses.replace(recipe, env=tuple(f"{text.partition('=')[0]}=..." for text in recipe.env))


def write_environment(folder: Path, env: Iterable[str]) -> None:
    """Write the variables of --env to `folder`/environment.sh, for a batch script to source, but for secrets."""
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in written_variables(env).items()]
    write_for_owner(folder / ENVIRONMENT, "".join(lines))


def write_for_owner(path: Path, text: str) -> None:
    """Write a file that others cannot read, not even for a moment."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def next_folder(output_dir: Path) -> Path:
    """The folder of the next snapshot; those of earlier launches stay."""
    taken = [int(path.name) for path in (output_dir / SNAPSHOTS).glob("*") if path.name.isdigit()]
    return output_dir / SNAPSHOTS / str(max(taken, default=-1) + 1)


def user_dir_of(arguments: tuple[str, ...]) -> Path | None:
    """The folder of --user-dir, where there is one."""
    if "--user-dir" not in arguments[:-1]:
        return None
    folder = Path(arguments[arguments.index("--user-dir") + 1]).resolve()
    if not folder.is_dir():
        raise FileNotFoundError(f"The recipe's --user-dir {folder} does not exist: correct the path.")
    return folder


def arguments_with_code(arguments: tuple[str, ...], *, folder: Path) -> tuple[str, ...]:
    """The arguments with --user-dir, if there is one, in the snapshot `folder`.

    Example:
        arguments_with_code(("data", "--user-dir", "mine"), folder=Path("run/.snapshots/0"))
        ->  ("data", "--user-dir", "run/.snapshots/0/code/mine")
    """
    if "--user-dir" not in arguments[:-1]:
        return arguments
    at = arguments.index("--user-dir") + 1
    return (*arguments[:at], str(folder / "code" / Path(arguments[at]).resolve().name), *arguments[at + 1 :])
