"""The settings that a pretraining began with, in `pretrain.json` of its folder. Changes are refused."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roberta_plugin.data.mixture import whole_paths
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.pretraining.settings import PretrainSettings
from roberta_plugin.record import differences, moved, options_of, refuse

RECORD = "pretrain.json"
START = "--finetune-from-model"
_FREE = ("cores", "--user-dir", "--log-interval", "--save-dir", "--tensorboard-logdir")  # the folder may have moved
_STARTS = {START, "--restore-file", "--continue-once"}
_ASKED = ("recipe", "hours", "updates")


def check_record(
    folder: Path, arguments: Sequence[str], *, settings: PretrainSettings | None = None, cores: int | None = None
) -> None:
    """Refuse other options than the training in the folder began with; keep them and the cores, if none has begun.

    The settings that the options follow from are kept, too, and differences are reported in terms of these settings.
    """
    now: dict[str, Any] = options_of(arguments)
    now["data"] = whole_paths(now["data"])  # the same from any current folder
    asked = asked_settings(settings) if settings else {}
    before = read_pretraining(folder)
    for name in _STARTS & now.keys():  # likewise, and after they are gone
        path, known = os.path.abspath(now[name]), (before or {}).get(name)
        if known != now[name] and (os.path.exists(path) or known == path):
            now[name] = path
    if before is None:
        write_json(folder / RECORD, {**now, **asked, "cores": cores})
        return
    asked = {name: value for name, value in asked.items() if name in before}  # which older records do not have
    if not os.path.isabs(before["data"]):  # an older record of a mixture
        before["data"] = whole_paths(before["data"])
    checkpoints = Path(os.path.abspath(now["--save-dir"]))  # beside which a data-bin may have moved with the folder
    save_dir = os.path.abspath(before["--save-dir"])
    for name in {"data", *_STARTS} & before.keys() & now.keys():
        before[name] = moved(before[name], before=save_dir, now=checkpoints, among=[now[name]])
    before, now = ({"DATA": options.pop("data"), **options} for options in (before, now))  # as the user calls it
    if differences(before, now, free=lambda name: name in (*_FREE, *asked)):
        refuse(
            f"{folder} holds a training that began with other options",
            differences(
                before,
                {**now, **asked},
                free=lambda name: name in _FREE,
                named=lambda name: "" if asked and name not in asked else name,
            ),
            "Give the same options to resume it (--without leaves out those that its recipe had not then), or another "
            "--output-dir.",
        )


def asked_settings(settings: PretrainSettings) -> dict[str, Any]:
    """The settings that the options follow from, besides the machine."""
    return {f"--{name}": getattr(settings, name) for name in _ASKED}


def earlier_logs(restore_file: str) -> list[Path]:
    """The logs of the pretrainings that one continues by --restore-file, the first one first; none for a new one."""
    logs: list[Path] = []
    while restore_file not in ("", "checkpoint_last.pt"):  # fairseq's default
        path = Path(restore_file)
        folder = next((each for each in (path, *path.parents[:2]) if (each / RECORD).is_file()), None)
        if folder is None or (log := folder / "train.log") in logs or not log.is_file():
            break
        logs.insert(0, log)
        restore_file = str((read_pretraining(folder) or {}).get("--restore-file") or "")
    return logs


def read_pretraining(folder: Path) -> dict[str, Any] | None:
    """The settings that the pretraining in a folder began with; None if no training has begun."""
    remedy = "delete it, and the training goes on with the options of this command"
    hints = {"data": str, "--save-dir": str, "cores": int | None}
    return read_json(folder / RECORD, keys=("data", "--save-dir"), remedy=remedy, hints=hints)
