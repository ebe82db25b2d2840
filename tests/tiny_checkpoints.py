"""Checkpoint files of small models in both of fairseq's forms, and files that try to run code when they are loaded."""

from __future__ import annotations

import argparse
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.model import base_architecture

from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.models.checkpoints import ModelOnlyTask
from roberta_plugin.models.roberta import FastRobertaModel
from tests.tiny_models import options, spread


def state_of(
    folder: Path, *, form: str = "cfg", arch: str = "fast_roberta", task: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """What fairseq-train would save of a small model with the vocabulary of `folder`."""
    from fairseq.data import Dictionary

    dictionary = Dictionary.load(str(folder / "dict.txt"))
    dictionary.add_symbol("<mask>")
    assert len(dictionary) == len(Vocabulary.load(folder / "dict.txt"))
    torch.manual_seed(0)
    args = options(**changes)
    if arch.startswith("fast"):
        model: Any = FastRobertaModel.build_model(args, ModelOnlyTask(dictionary, args.max_positions))
    else:
        base_architecture(args)
        model = RobertaModel.build_model(args, ModelOnlyTask(dictionary, args.max_positions))
    for head, num_classes in getattr(args, "heads", {}).items():
        model.register_classification_head(head, num_classes=num_classes)
    kept = {name: value for name, value in vars(args).items() if name != "heads"} | {"load_checkpoint_heads": False}
    task = {"_name": "roberta_masked_lm", "data": str(folder), **(task or {})}
    state: dict[str, Any] = {"model": spread(model).state_dict(), "args": None, "cfg": None}
    if form == "args":
        state["args"] = argparse.Namespace(**{**kept, **task, "task": task["_name"], "arch": arch})
        del state["args"]._name
    else:
        saved = {**kept, "_name": arch}
        state["cfg"] = {"task": task, "model": saved if arch.startswith("fast") else argparse.Namespace(**saved)}
    history = {"criterion_name": "x", "optimizer_name": "x", "lr_scheduler_state": {}, "num_updates": 3}
    return {**state, "optimizer_history": [history], "extra_state": {"train_iterator": {"epoch": 1}}}


def change_options(state: dict[str, Any], section: str, **changes: Any) -> dict[str, Any]:
    """The same state with other options of its task or model."""
    if state["args"] is not None:
        vars(state["args"]).update(changes)
    elif isinstance(state["cfg"][section], argparse.Namespace):
        vars(state["cfg"][section]).update(changes)
    else:
        state["cfg"][section].update(changes)
    return state


class Payload:
    """An object whose unpickling runs a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def write_pickle_payload(path: Path, kind: str, sentinel: Path) -> None:
    """A file that makes `sentinel` when it is unpickled without care, in one of `PICKLE_PAYLOADS`."""
    command = f"touch {sentinel}"
    shell = Payload(os.system, command)
    state: dict[str, Any] = {"model": {"weight": torch.ones(2)}, "args": None}
    if kind == "zip":
        torch.save({**state, "extra": shell}, path)
    elif kind == "legacy":
        torch.save({**state, "extra": shell}, path, _use_new_zipfile_serialization=False)
    elif kind == "raw pickle":
        path.write_bytes(pickle.dumps(shell))
    elif kind == "namespace attribute":
        torch.save({**state, "args": argparse.Namespace(arch="roberta", data=shell)}, path)
    elif kind == "optimizer":
        torch.save({**state, "last_optimizer_state": {"state": {0: shell}}}, path)
    elif kind == "eval":
        torch.save({**state, "extra": Payload(eval, f"__import__('os').system({command!r})")}, path)
    elif kind == "getattr":
        torch.save({**state, "extra": Payload(getattr, Payload(__import__, "os"), "system")}, path)
    elif kind == "numpy":
        with open(path, "wb") as file:
            np.save(file, np.array([shell], dtype=object), allow_pickle=True)
    elif kind == "jit":
        torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), str(path))
    else:
        raise AssertionError(kind)


PICKLE_PAYLOADS = ("zip", "legacy", "raw pickle", "namespace attribute", "optimizer", "jit", "eval", "getattr", "numpy")
