"""`roberta prepare`: official files of a fine-tuning task -> a prepared folder for fairseq-train."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_plugin.finetuning.paper_settings import MAX_LENGTH

if TYPE_CHECKING:
    from dataclasses import Field

    from roberta_plugin.finetuning.options import Stage, TaskOptions

_DEST = "task_option_"  # in front of the names of task options among the parsed arguments
_TYPES: dict[str, type] = {"int": int, "float": float, "str": str, "tuple[str,": str}


def add_parser(subparsers: Any) -> None:
    """Add `roberta prepare` and its options."""
    parser = subparsers.add_parser(
        "prepare",
        help="turn official files of a task, or your own tables, into data for fine-tuning",
        description="Reads the files as they are distributed, checks them, and writes the model's inputs with labels, "
        "ids and offsets. TASK custom reads your own tables: --train FILE, and the options of custom. The tokenizer "
        "must be that of the pretrained model: its data-bin, or any folder with the tokenizer's files and dict.txt.",
    )
    add_task(parser)
    add_data_options(parser)
    parser.add_argument("--output-dir", type=Path, required=True, help="folder to write to")
    parser.add_argument("--overwrite", action="store_true", help="replace a prepared folder that exists already")
    add_task_options(parser, stages=("prepare",))
    parser.set_defaults(run=run)


def add_task(parser: argparse.ArgumentParser) -> None:
    """Add the argument TASK."""
    from roberta_plugin.finetuning.benchmarks import TASKS

    parser.add_argument("task", choices=TASKS, metavar="TASK", help=f"one of {', '.join(TASKS)}")


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the preparation that all tasks have; `roberta finetune` has them too."""
    parser.add_argument(
        "--raw", type=Path, help="folder with the official files of the task (custom: the current folder)"
    )
    parser.add_argument("--tokenizer", type=Path, help="folder with the tokenizer's files and dict.txt")
    parser.add_argument(
        "--max-length",
        type=int,
        help=f"most tokens of a sequence; how many texts are longer, and so are cut, is said ({MAX_LENGTH}; in "
        "`roberta finetune` the model's length, if that is less)",
    )


def add_task_options(parser: argparse.ArgumentParser, *, stages: Sequence[Stage]) -> None:
    """Add the options of all tasks, grouped by the tasks that have them."""
    from roberta_plugin.finetuning.benchmarks import TASKS, option_fields
    from roberta_plugin.finetuning.options import flag

    found: dict[str, list[tuple[str, Field[Any]]]] = {}  # option -> tasks that have it
    for task in TASKS:
        for item in option_fields(task, stages=stages):
            found.setdefault(item.name, []).append((task, item))
    groups: dict[str, Any] = {}
    for name, pairs in found.items():
        tasks_of: dict[str, list[str]] = {}
        for task, item in pairs:
            tasks_of.setdefault(item.metadata["help"], []).append(task)
        texts = [text if len(tasks_of) == 1 else f"{', '.join(tasks)}: {text}" for text, tasks in tasks_of.items()]
        title = f"options of {', '.join(task for task, _ in pairs)}"
        group = groups.setdefault(title, None) or parser.add_argument_group(title)
        groups[title] = group
        item = pairs[0][1]
        kind = str(item.type).split(" ")[0]
        if kind == "bool":
            group.add_argument(flag(item), dest=_DEST + name, action="store_true", default=None, help="; ".join(texts))
        else:
            group.add_argument(
                flag(item),
                dest=_DEST + name,
                type=_TYPES[kind],
                choices=item.metadata.get("choices"),
                nargs=item.metadata.get("nargs"),
                metavar=item.metadata.get("metavar") or (None if item.metadata.get("choices") else "N"),
                help="; ".join(texts),
            )


def task_options(args: argparse.Namespace, task: str) -> TaskOptions:
    """The options of a task that were given.

    Raises:
        ValueError: if one is given that the task does not have.
    """
    from roberta_plugin.finetuning.benchmarks import options_for

    return options_for(task, {name.removeprefix(_DEST): value for name, value in vars(args).items() if _DEST in name})


def given_task_options(args: argparse.Namespace) -> list[str]:
    """The options of tasks that were given, as the command line spells them."""
    given = [name.removeprefix(_DEST) for name, value in vars(args).items() if _DEST in name and value is not None]
    return [f"--{name.replace('_', '-')}" for name in given]


def raw_of(args: argparse.Namespace, options: TaskOptions) -> Path | None:
    """The folder of the raw files; for own data, which options name, the current one if they name any."""
    from roberta_plugin.finetuning.options import CustomOptions

    if args.raw is None and isinstance(options, CustomOptions) and options.files:
        return Path()
    raw: Path | None = args.raw
    return raw


def run(args: argparse.Namespace) -> int:
    """Prepare, and print how much there is of each split, and what was cut."""
    from roberta_plugin.finetuning.inspection import remarks
    from roberta_plugin.finetuning.preparation import PrepareSettings, prepare

    options = task_options(args, args.task)
    raw = raw_of(args, options)
    if raw is None:
        own = "--train is missing: give your table." if args.task == "custom" else ""
        raise ValueError(own or "--raw is missing: give the folder with the official files.")
    if args.tokenizer is None:
        raise ValueError("--tokenizer is missing: give the tokenizer's folder.")
    prepared = prepare(
        PrepareSettings(
            task=args.task,
            raw=raw,
            tokenizer=args.tokenizer,
            output_dir=args.output_dir,
            max_length=MAX_LENGTH if args.max_length is None else args.max_length,
            options=options,
            overwrite=args.overwrite,
        )
    )
    for name, facts in prepared.content["splits"].items():
        print(f"{name}: {facts['examples']:,} examples, {facts['sequences']:,} sequences, {facts['tokens']:,} tokens")
    print("".join(f"{remark}\n" for remark in remarks(prepared)), end="")
    return 0


def named_values(texts: Sequence[str], option: str) -> dict[str, str]:
    """["a=1", "b=2"] -> {"a": "1", "b": "2"}.

    Raises:
        ValueError: if a text has no `=`, or a name comes twice.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise ValueError(f"{option} must be NAME=VALUE, got {text!r}.")
        if name in values:
            raise ValueError(f"{option} gives {name} twice.")
        values[name] = value
    return values
