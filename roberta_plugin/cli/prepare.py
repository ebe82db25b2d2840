"""`roberta prepare`: official files of a fine-tuning task -> a prepared folder for fairseq-train."""

from __future__ import annotations

import argparse
import typing
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from roberta_plugin.settings import add_option, add_options, flag, from_arguments

if TYPE_CHECKING:
    from roberta_plugin.finetuning.options import Stage, TaskOptions


def define(parser: argparse.ArgumentParser) -> None:
    """Describe `roberta prepare`; its options are the fields of `PrepareSettings` and of the task's options."""
    from roberta_plugin.finetuning.preparation import PrepareSettings

    parser.usage = "roberta prepare TASK --output-dir FOLDER [options]"
    parser.description = (
        "Reads the files as they are distributed, checks them, and writes the model's inputs with labels, ids and "
        "offsets. TASK custom reads your own tables: --train FILE, and the options of custom. The tokenizer must be "
        "that of the pretrained model: its data-bin, or any folder with the tokenizer's files and dict.txt."
    )
    add_options(parser, PrepareSettings)
    add_task_options(parser, stages=("prepare",))


class HelpOfTask(argparse.Action):
    """--help of a verb with a TASK: the general options, and those of the task in front of it."""

    texts: Mapping[argparse.Action, Mapping[str, str]]  # option -> the tasks that have it, and what it does there
    group: Any

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Print the help, and exit."""
        task = getattr(namespace, "task", None)
        self.group.title = f"options of {task}"
        parser.epilog = None if task else f"Each task has options of its own, which `{parser.prog} TASK --help` shows."
        for action, texts in self.texts.items():
            action.help = texts.get(str(task), argparse.SUPPRESS)
        parser.print_help()
        parser.exit()


def add_task_options(parser: argparse.ArgumentParser, *, stages: Sequence[Stage]) -> None:
    """Add --help and the options of all tasks, of which it shows those of one.

    The options of the other tasks are known too, so that `task_options` can say which ones the task has.
    """
    from roberta_plugin.finetuning.benchmarks import TASKS, option_fields, options_for

    shown = parser.add_argument(
        "-h", "--help", action=HelpOfTask, nargs=0, help="show this help, with TASK also its own"
    )
    assert isinstance(shown, HelpOfTask)
    shown.group = parser.add_argument_group("options of the task")
    actions: dict[str, argparse.Action] = {}
    texts: dict[argparse.Action, dict[str, str]] = {}
    for task in TASKS:
        hints = typing.get_type_hints(type(options_for(task)))
        for item in option_fields(task, stages=stages):
            if item.name not in actions:
                actions[item.name] = add_option(shown.group, item, hints[item.name], help=argparse.SUPPRESS)
            texts.setdefault(actions[item.name], {})[task] = item.metadata["help"]
    shown.texts = texts


def task_options(args: argparse.Namespace, task: str) -> TaskOptions:
    """The options of a task that were given."""
    from roberta_plugin.finetuning.benchmarks import options_for

    return options_for(task, {name: getattr(args, name) for name in given_task_options(args)})


def given_task_options(args: argparse.Namespace) -> dict[str, str]:
    """The options of tasks that were given, and how the command line spells them."""
    from dataclasses import fields

    from roberta_plugin.finetuning.benchmarks import BENCHMARKS

    known = {item.name: flag(item) for folder in BENCHMARKS.values() for item in fields(folder.options)}
    return {name: option for name, option in known.items() if getattr(args, name, None) is not None}


def run(args: argparse.Namespace) -> int:
    """Prepare, and print how much there is of each split, and what was cut."""
    from roberta_plugin.finetuning.inspection import remarks
    from roberta_plugin.finetuning.preparation import PrepareSettings, prepare

    prepared = prepare(from_arguments(PrepareSettings, vars(args), options=task_options(args, args.task)))
    for name, facts in prepared.content["splits"].items():
        print(f"{name}: {facts['examples']:,} examples, {facts['sequences']:,} sequences, {facts['tokens']:,} tokens")
    print("".join(f"{remark}\n" for remark in remarks(prepared)), end="")
    return 0
