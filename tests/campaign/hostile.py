"""Checkpoints that try to run code, against every command that opens a checkpoint: nothing may run."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.campaign.entries import SIZES, fairseq_train, roberta
from tests.campaign.forks import CRASH, in_child, preload
from tests.campaign.outcome import Table
from tests.campaign.subjects import OUTPUT

CLAIMS = "tensor that claims 128 GB"


def hub_class() -> Any:
    """`RobertaHub`."""
    return importlib.import_module("roberta_plugin.hub").RobertaHub


class Touches:
    """An object whose unpickling touches a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def payloads(state: dict[str, Any], mark: Path) -> dict[str, Callable[[Path], None]]:
    """Name -> a function that writes a hostile variant of the sound checkpoint `state`."""
    code = f"__import__('os').system('touch {mark}')"

    def saved(changed: dict[str, Any], **options: Any) -> Callable[[Path], None]:
        return lambda path: torch.save(changed, path, **options)

    def model(name: str, **settings: str) -> dict[str, Any]:
        cfg = {**state["cfg"], "model": {**state["cfg"]["model"], "_name": name, "arch": name, **settings}}
        return {**state, "cfg": cfg}

    def arguments(**settings: str) -> dict[str, Any]:
        task = state["cfg"]["task"]
        task = task if isinstance(task, dict) else vars(task)
        options = argparse.Namespace(**{**task, "task": task["_name"], "criterion": task["_name"], **settings})
        return {**{key: value for key, value in state.items() if key != "cfg"}, "args": options}

    def with_data_pkl(path: Path) -> None:
        buffer = io.BytesIO()
        torch.save(state, buffer)
        with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(path, "w") as target:
            for name in source.namelist():
                data = pickle.dumps(Touches(mark)) if name.endswith("data.pkl") else source.read(name)
                target.writestr(name, data)

    return {
        "pickled object in the checkpoint": saved({**state, "extra": Touches(mark)}),
        "pickled object, old file format": saved(
            {**state, "extra": Touches(mark)}, _use_new_zipfile_serialization=False
        ),
        "pickled object in the optimizer's state": saved({**state, "last_optimizer_state": Touches(mark)}),
        "pickled object in the options": saved({**state, "args": argparse.Namespace(arch=Touches(mark))}),
        "data.pkl exchanged": with_data_pkl,
        "raw pickle": lambda path: path.write_bytes(pickle.dumps(Touches(mark))) and None,
        "model wav2vec2 whose option is code": saved(model("wav2vec2", conv_feature_layers=code)),
        "model fconv whose option is code": saved(model("fconv", encoder_layers=code, decoder_layers=code)),
        "2019 options, arch fconv": saved(arguments(arch="fconv", encoder_layers=code, decoder_layers=code)),
        "2019 options, arch wav2vec2": saved(arguments(arch="wav2vec2", conv_feature_layers=code)),
        "betas that are code": saved(
            {**state, "cfg": {**state["cfg"], "optimizer": {"_name": "adam", "adam_betas": code}}}
        ),
        CLAIMS: saved({**state, "model": {**state["model"], "huge": torch.zeros(1).expand(10**9, 32)}}),
        "criterion ctc": saved({**state, "cfg": {**state["cfg"], "criterion": {"_name": "ctc", "wer_args": code}}}),
    }


def run_hostile(inputs: Path, folder: Path, *, only: Collection[str] = ()) -> Table:
    """Every payload against the hub, evaluate (alone and in an ensemble), finetune, restoring and loading a start."""
    table = Table(
        "Hostile checkpoints",
        ["refused", "taken, nothing ran", "CODE RAN", "file not named", "hang", "crash"],
        bad=["CODE RAN", "file not named", "hang", "crash"],
        explanation="Checkpoints that hold pickled objects, name models whose options are evaluated as code, or claim more "
        "memory than there is. A refusal names the file. Every "
        "command is given the sound checkpoint first, and takes it.",
    )
    preload()
    mark, path = folder / "mark", folder / "hub" / "checkpoint_last.pt"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(inputs / "hub", folder / "hub", dirs_exist_ok=True)
    words = ["--task", "roberta_masked_lm", "--criterion", "roberta_masked_lm", "--arch", "fast_roberta_tiny", *SIZES]
    words += ["--tokens-per-sample", "32", "--batch-size", "16", "--optimizer", "roberta_adamw", "--lr", "1e-3"]
    words += ["--max-update", "5", "--disable-validation"]

    def train(*options: object) -> int:
        return fairseq_train(inputs / "small", *words, "--save-dir", folder / "saved", *options)

    def hub() -> int:
        hub_class().from_pretrained(str(folder / "hub"), "checkpoint_last.pt", str(folder / "hub"))
        return 0

    evaluate = ("evaluate", "--data", inputs / "prepared", OUTPUT, folder / "out", "--checkpoint")
    finetune = ("finetune", "SST-2", "--data", inputs / "prepared", "--grid-only", OUTPUT, folder / "tuned", "--model")
    records = folder / "records.txt"
    records.write_text("good <mask> good\n")
    entries: dict[str, Callable[[], int]] = {
        "RobertaHub.from_pretrained": hub,
        "roberta evaluate": lambda: roberta(*evaluate, path),
        "roberta evaluate, second of an ensemble": lambda: roberta(*evaluate, inputs / "tuned.pt", path),
        "roberta predict": lambda: roberta("predict", path, "--input", records),
        **{
            f"roberta export --to {form}": partial(
                roberta, "export", path, "--to", form, OUTPUT, folder / "out" / "exported", "--data", folder / "hub"
            )
            for form in ("huggingface", "fairseq", "onnx")
        },
        "roberta finetune --model": lambda: roberta(*finetune, path),
        "--finetune-from-model": lambda: train("--finetune-from-model", path),
        "--restore-file": lambda: train("--restore-file", path),
        "checkpoint_last.pt": lambda: fairseq_train(inputs / "small", *words, "--save-dir", folder / "hub"),
    }
    for name, entry in entries.items():
        if only and name not in only:
            continue
        sound = inputs / ("tuned.pt" if "evaluate" in name else "pretrained/checkpoint_last.pt")
        shutil.copy(sound, path)
        outcome = in_child(entry, folder)
        assert outcome.code == 0, f"{name} fails on a sound checkpoint: {outcome.output[-2000:]}"
        for kind, write in payloads(torch.load(sound, weights_only=True), mark).items():
            for written in ("saved", "out", "tuned"):
                shutil.rmtree(folder / written, ignore_errors=True)
            write(path)
            outcome = in_child(entry, folder)
            last = (outcome.output.strip().splitlines() or [""])[-1]
            if mark.exists():
                mark.unlink()
                verdict = "CODE RAN"
            elif outcome.code < 0:
                verdict = "crash" if outcome.code == CRASH else "hang"
            elif outcome.code == 0:
                verdict = "file not named" if kind == CLAIMS else "taken, nothing ran"
            else:
                verdict = "refused" if path.name in "".join(outcome.output.splitlines()[-4:]) else "file not named"
            table.add(name, verdict, f"{kind}: {last[:200]}")
    return table
