"""What users type and import: --help of every verb, options registered with fairseq, public names and signatures."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY
from tests.golden.entries import sha

ACTIONS = {"tokenizer": ("train", "extend", "show")}
OF_TASKS = ("prepare", "finetune", "evaluate")
DOCUMENTS = ("README.md", "examples/*.md", "slurm/*.md")
_IMPORT = re.compile(r"^\s*from (roberta_plugin[\w.]*) import ([\w, ]+)", re.MULTILINE)


def help_of(*words: str) -> str:
    """What `roberta WORDS --help` prints on a terminal of 120 columns."""
    from roberta_plugin.cli import main

    os.environ["COLUMNS"] = "120"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    return printed.getvalue()


def record_help(folder: Path) -> dict[str, Any]:
    """The help of each verb, line by line."""
    from roberta_plugin.cli import all_verbs

    words = [(verb, *action) for verb in all_verbs() for action in ((), *((each,) for each in ACTIONS.get(verb, ())))]
    found = {" ".join(each): help_of(*each).splitlines() for each in words}
    return {"roberta": help_of().splitlines(), **found}


def record_help_of_tasks(folder: Path) -> dict[str, Any]:
    """The options that each task adds, and the hash of their texts."""
    from roberta_plugin.finetuning.benchmarks import all_tasks

    found = {}
    for verb in OF_TASKS:
        for task in all_tasks():
            _, _, own = help_of(verb, task).partition(f"options of {task}:")
            if own:
                options = re.findall(r"^  (--[a-z-]+)", own, re.MULTILINE)
                found[f"{verb} {task}"] = f"{sha(own.encode())} {' '.join(options)}"
    return found


def registered() -> Iterator[tuple[str, str, Any]]:
    """Everything of ours that fairseq knows: its sort, its name, its options' dataclass."""
    import roberta_plugin

    roberta_plugin.register()
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY

    sorts: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
        "task": (TASK_REGISTRY, TASK_DATACLASS_REGISTRY),
        "model": (MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY),
        "arch": (ARCH_MODEL_REGISTRY, {}),
    }
    for sort, registry in REGISTRIES.items():
        sorts[sort] = (registry["registry"], registry["dataclass_registry"])
    for sort, (classes, configs) in sorts.items():
        for name, found in classes.items():
            if found.__module__.startswith("roberta_plugin"):
                yield sort, name, configs.get(name)


def record_options(folder: Path) -> dict[str, Any]:
    """The options of each task, criterion, model and optimizer as fairseq-train parses them; what each arch sets."""
    from fairseq.dataclass.utils import gen_parser_from_dataclass
    from fairseq.models import ARCH_CONFIG_REGISTRY

    found: dict[str, Any] = {}
    for sort, name, config in registered():
        if sort == "arch":
            args = argparse.Namespace()
            ARCH_CONFIG_REGISTRY[name](args)
            found[f"arch {name}"] = [f"{option} = {value!r}" for option, value in sorted(vars(args).items())]
        elif config is not None:
            parser = argparse.ArgumentParser(add_help=False)
            gen_parser_from_dataclass(parser, config() if isinstance(config, type) else config)
            found[f"{sort} {name}"] = sorted(map(_line, parser._actions))
    return found


def _line(action: argparse.Action) -> str:
    names = " ".join(action.option_strings) or action.dest
    of = f" of {', '.join(map(str, action.choices))}" if action.choices else ""
    return f"{names} = {action.default!r}{of}; {sha((action.help or '').encode())[:8]}"


def record_names(folder: Path) -> dict[str, Any]:
    """What is registered, and what the documents import."""
    found: dict[str, Any] = {}
    for sort, name, _ in registered():
        found.setdefault(sort, []).append(name)
    found = {sort: sorted(names) for sort, names in found.items()}
    imports = {}
    for pattern in DOCUMENTS:
        for path in sorted(REPOSITORY.glob(pattern)):
            for module, names in _IMPORT.findall(path.read_text()):
                for name in names.split(","):
                    imports[f"{module}.{name.strip()}"] = _signature(_found(module, name.strip()))
    return {**found, "documents import": imports}


def record_hub(folder: Path) -> dict[str, Any]:
    """The public names of `roberta_plugin.hub`, with their signatures."""
    from roberta_plugin import hub

    found: dict[str, Any] = {name: _signature(getattr(hub, name)) for name in sorted(hub.__all__)}
    for name, member in inspect.getmembers(hub.RobertaHub):
        if not name.startswith("_") and name not in dir(__import__("torch").nn.Module):
            found[f"RobertaHub.{name}"] = _signature(member)
    return found


def _found(module: str, name: str) -> Any:
    import importlib

    return getattr(importlib.import_module(module), name)


def _signature(found: Any) -> str:
    if isinstance(found, str):
        return found
    if not callable(found):
        return type(found).__name__
    try:
        return re.sub(r"<(\w+) .* at 0x\w+>", r"<\1>", str(inspect.signature(found)))
    except ValueError:
        return "no signature"


SUBJECTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "help": record_help,
    "help of tasks": record_help_of_tasks,
    "options of fairseq-train": record_options,
    "names": record_names,
    "hub": record_hub,
}


def record(name: str, folder: Path) -> dict[str, Any]:
    """The entries of a subject."""
    return SUBJECTS[name](folder)
