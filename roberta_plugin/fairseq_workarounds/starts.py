"""Faults 28 and 29: what a training starts from, at its first start and at every further one.

    checkpoint_last.pt in --save-dir        the training's own; overrides the others, which are for the first start
    --restore-file, --continue-once         a run that goes on with its moments and updates: a checkpoint, or the
                                            folder with a checkpoint_last.pt that it was saved to
    --finetune-from-model                   the weights of a model, wherever it is (`find_model`)
    no such checkpoint                      new weights

Whatever is named here is read or refused: no training begins with other weights than the named ones.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils  # noqa: F401  -- fairseq's files need it loaded first
from fairseq.file_io import PathManager

from roberta_plugin.record import option_name

logger = logging.getLogger(__name__)

LAST = "checkpoint_last.pt"  # fairseq's default of --restore-file
_CONTINUED = ("restore_file", "continue_once")
_NONE = {"restore_file": LAST}  # values besides None that mean nothing to start from
_RESETS = ("reset_optimizer", "reset_lr_scheduler", "reset_dataloader", "reset_meters")


def _the_path_itself(path: Path) -> Path:
    return path


find_model: Callable[[Path], Path] = _the_path_itself
"""A model's file, folder or name -> its checkpoint; `roberta_plugin.register` sets `conversion`'s function, which
imports what is of another format."""


def load_checkpoint(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, **options: Any) -> Any:
    """fairseq's `load_checkpoint` with the present start of this training; names the options that are ignored."""
    suffix = trainer.checkpoint_suffix or ""
    if not PathManager.exists(own := own_checkpoint(cfg, suffix)):
        settle(cfg, suffix)  # again, for fairseq-hydra-train, which knows us only since `call_main`
        return fairseqs(cfg, trainer, **options)
    cfg = copy.deepcopy(cfg)  # saved checkpoints still say how the training began
    if ignored := _ignored(cfg, own):
        logger.warning(
            f"resuming from {own}; ignored after the first start: {', '.join(ignored)}. To start over in that way, "
            "give another --save-dir (another --output-dir to `roberta`)."
        )
    cfg.restore_file = LAST
    for name in _RESETS:
        setattr(cfg, name, False)
    return fairseqs(cfg, trainer, **options)


def own_checkpoint(checkpoint: Any, suffix: str | None = None) -> str:
    """Where a training, by its options of checkpoints, saves what it resumes from."""
    suffix = (getattr(checkpoint, "checkpoint_suffix", "") or "") if suffix is None else suffix
    return os.path.join(checkpoint.save_dir, LAST.replace(".pt", f"{suffix}.pt"))


def settle(checkpoint: Any, suffix: str | None = None) -> None:
    """Put the files of a first start in place of folders and names; nothing, once the training has its own checkpoint.

    Raises:
        FileNotFoundError: for what is not there.
        ValueError: for two starts, and what cannot be started from.
    """
    if files := start_files(checkpoint, suffix):
        for name, file in files.items():
            setattr(checkpoint, name, file)


def start_files(checkpoint: Any, suffix: str | None = None) -> dict[str, str]:
    """The options that name what a first start reads, with its file; none for new weights, and for a further start.

    Raises as `settle`.
    """
    paths = {name: getattr(checkpoint, name, None) for name in (*_CONTINUED, "finetune_from_model")}
    given = {name: str(path) for name, path in paths.items() if path is not None and path != _NONE.get(name)}
    if empty := [option_name(name) for name, path in given.items() if not path]:
        raise ValueError(f"{empty[0]} is empty: name what to start from, or leave it out for new weights.")
    if len(given) > 1:
        first, second = (f"{option_name(name)} {given[name]}" for name in list(given)[:2])
        raise ValueError(f"{first} and {second} are two things to start from: give one of them.")
    if "finetune_from_model" in given and (resets := [name for name in _RESETS if getattr(checkpoint, name, False)]):
        raise ValueError(
            f"--finetune-from-model takes the weights alone, so that there is nothing to reset: leave out "
            f"{', '.join(map(option_name, resets))}."
        )
    if PathManager.exists(own_checkpoint(checkpoint, suffix)):
        return {}
    suffix = (getattr(checkpoint, "checkpoint_suffix", "") or "") if suffix is None else suffix
    return {
        name: _run_checkpoint(name, path, suffix) if name in _CONTINUED else model_file(path)
        for name, path in given.items()
    }


def start_file(checkpoint: Any) -> Path | None:
    """The file that fairseq's `load_checkpoint` will read; None for new weights."""
    own = own_checkpoint(checkpoint)
    paths = [own] if PathManager.exists(own) else list(start_files(checkpoint).values())
    return next((Path(path) for path in paths if os.path.isfile(path)), None)


def _ignored(checkpoint: Any, own: str) -> list[str]:
    """The options that only a first start follows, as they are given."""
    path = str(checkpoint.restore_file)
    is_other = path != LAST and not (os.path.exists(path) and os.path.exists(own) and os.path.samefile(path, own))
    resets = [option_name(name) for name in _RESETS if getattr(checkpoint, name, False)]
    return [*([f"--restore-file {path}"] if is_other else []), *resets]


def _run_checkpoint(name: str, given: str, suffix: str) -> str:
    """The checkpoint of the run that an option continues."""
    option = f"{option_name(name)} {given}"
    if PathManager.path_requires_pathmanager(given) or not os.path.isdir(given):
        sharded = given.replace(".pt", f"{suffix}.pt") if name == "restore_file" else given
        if not PathManager.isfile(sharded):
            raise FileNotFoundError(
                f"{option} does not exist: correct the path, or leave it out to go on from --save-dir. (It continues a "
                "run, from its checkpoint; a model is named by --finetune-from-model.)"
            )
        return given
    for path in (Path(given, LAST), Path(given, "checkpoints", LAST)):
        if path.is_file() or path.with_stem(f"{path.stem}{suffix}").is_file():
            return str(path)
    raise FileNotFoundError(
        f"{option} is a folder without a {LAST}, so that there is no run to continue: name the checkpoint file. To "
        f"train on with the weights of a model, give --finetune-from-model {given} instead."
    )


def model_file(given: str) -> str:
    """The checkpoint of the model that --finetune-from-model names.

    Raises as `settle`.
    """
    if PathManager.path_requires_pathmanager(given):
        if not PathManager.isfile(given):
            raise FileNotFoundError(f"--finetune-from-model {given} does not exist: correct the path.")
        return given
    try:
        path = find_model(Path(given))
    except (ValueError, OSError) as error:
        kind = ValueError if isinstance(error, ValueError) else FileNotFoundError
        raise kind(f"--finetune-from-model {given}: {error}") from error
    if not path.is_file():
        raise FileNotFoundError(
            f"--finetune-from-model {given} does not exist: give a checkpoint, the folder of a model (of a run, of "
            "`roberta import`, of fairseq or of transformers), or a model's name, such as org/name of the hub."
        )
    return str(path)
