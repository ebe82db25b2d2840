"""A verb as its settings, its function and its help; the options of verbs with a TASK.

Below: SIGTERM and SIGHUP act as Ctrl-C, for commands that clean up; library calls run in a child process.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import os
import signal
import sys
import threading
import time
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from roberta_plugin.settings import add_option, add_options, flag, from_arguments, nearest

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from roberta_plugin.finetuning.options import Stage, TaskOptions

RESUMES = "the same command resumes"  # `Command.if_interrupted`
T = TypeVar("T")
_SECONDS_BETWEEN_LOOKS = 0.2

received: list[int] = []
"""The signals that have raised KeyboardInterrupt, since the command began.

Libraries that call Python from C or Rust, as gigatoken and torch do, swallow that exception and raise another: an error
after a signal is an interrupt all the same.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """A verb, or an action of one: its options are the fields of its settings, its description is the docstring."""

    function: Callable[..., int]  # takes the settings, prints, and returns the exit code
    settings: tuple[type[Any], ...]
    usage: str | None = None
    skip: Collection[str] = ()  # fields that are not options here
    optional: Collection[str] = ()  # fields that need not be given here, though they have no default
    takes_further: bool = False
    """True if further options belong to another program; the function gets them as `further`."""
    stages: Sequence[Stage] = ()  # of the options that each TASK has besides; the settings get them as `options`
    if_interrupted: str = ""  # how it goes on after Ctrl-C or SIGTERM
    add: Callable[[argparse.ArgumentParser], None] | None = None
    """Adds arguments that are not fields of the settings to the parser. The function then gets all arguments."""

    def define(self, parser: argparse.ArgumentParser) -> None:
        """Add the help and the options to the parser of the verb."""
        parser.usage, parser.description = self.usage, inspect.getdoc(self.function)
        for kind in self.settings:
            add_options(parser, kind, skip=self.skip, optional=self.optional)
        if self.stages:
            add_task_options(parser, stages=self.stages)
        if self.add:
            self.add(parser)
        parser.set_defaults(run=self.run, takes_further=self.takes_further, parser=parser)

    def run(self, args: argparse.Namespace) -> int:
        """Make the settings and call the function, which SIGTERM stops as Ctrl-C does."""
        further = {"further": args.further} if self.takes_further and not self.add else {}
        with terminated_like_interrupted():
            try:
                return self.function(*([args] if self.add else self.settings_of(args)), **further)
            except BaseException as error:
                if received or isinstance(error, KeyboardInterrupt):
                    raise KeyboardInterrupt(self.if_interrupted) from None
                raise

    def settings_of(self, args: argparse.Namespace) -> list[Any]:
        """The settings that the arguments describe, with paths in place of models' names."""
        options = {"options": task_options(args, args.task)} if self.stages else {}
        return [with_paths(from_arguments(kind, vars(args), **options)) for kind in self.settings]


def with_paths(settings: T) -> T:
    """The settings with a path of ours for each model or tokenizer that they give by name, or in another format.

    The fields are those with `gives`: "checkpoint", which may also be in a folder, or "tokenizer", whose folder is read
    as it is.
    """

    def path_of(value: Path, gives: str) -> Path:
        if gives == "tokenizer" and value.is_dir():
            return value
        from roberta_plugin.conversion import convert

        return convert.imported(value) if gives == "tokenizer" else convert.imported_checkpoint(value)

    paths: dict[str, Any] = {}
    for item in dataclasses.fields(settings):  # type: ignore[arg-type]
        gives, value = item.metadata.get("gives"), getattr(settings, item.name)
        if gives and value is not None:
            is_one = isinstance(value, Path)
            paths[item.name] = path_of(value, gives) if is_one else [path_of(each, gives) for each in value]
    return dataclasses.replace(settings, **paths) if paths else settings  # type: ignore[type-var]


def command(*settings: type[Any], **more: Any) -> Callable[[Callable[..., int]], Command]:
    """Make a function the command of its settings; `more` as in `Command`."""
    return lambda function: Command(function=function, settings=settings, **more)


def refuse_further(parser: argparse.ArgumentParser, further: Sequence[str]) -> NoReturn:
    """End with the usage of a verb, and the nearest of its options."""
    names = [name for name in parser._option_string_actions if name.startswith("--")]
    near = "".join(
        nearest(word.partition("=")[0], names) for word in further[:1] if word.startswith("--") and word != "--"
    )
    if further and os.path.exists(further[0]):  # a pattern that the shell has replaced by the files
        near = "; where one file is expected, name several by a pattern in quotes, such as 'data/*.csv'"
    parser.error(f"unrecognized arguments: {' '.join(further)}{near}")


class HelpOfTask(argparse.Action):
    """--help of a verb with a TASK: the general options, and the options of the task that precedes it."""

    texts: Mapping[argparse.Action, Mapping[str, str]]  # option -> the tasks that have it, and what it does there
    group: argparse._ArgumentGroup

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Print the help, and exit."""
        task = getattr(namespace, "task", None)
        self.group.title = f"options of {task}"
        parser.epilog = None if task else f"Each task has options of its own, which `{parser.prog} TASK --help` shows."
        for action, texts in self.texts.items():
            action.help = texts.get(str(task), argparse.SUPPRESS)
        parser.print_help()
        parser.exit()


def add_task_options(parser: argparse.ArgumentParser, *, stages: Sequence[Stage]) -> None:
    """Add the options of all tasks, and a --help that shows the options of one.

    The options of the other tasks are known too, so that `task_options` can say which ones the task has.
    """
    from roberta_plugin.finetuning.benchmarks import all_tasks, option_fields, options_for

    shown = parser.add_argument(
        "-h", "--help", action=HelpOfTask, nargs=0, help="show this help, with TASK also its own"
    )
    assert isinstance(shown, HelpOfTask)
    shown.group = parser.add_argument_group("options of the task")
    actions: dict[str, argparse.Action] = {}
    texts: dict[argparse.Action, dict[str, str]] = {}
    for task in all_tasks():
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
    from roberta_plugin.registry import BENCHMARKS

    options = [BENCHMARKS.load(name, "options") for name in BENCHMARKS]
    flags = {item.name: flag(item) for each in options for item in dataclasses.fields(each)}
    return {name: option for name, option in flags.items() if getattr(args, name, None) is not None}


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM, sent by SLURM and `kill`, and SIGHUP of a closed terminal raise KeyboardInterrupt as Ctrl-C does.

    All three are noted in `received`. Under nohup, SIGHUP stays ignored, in the background SIGINT.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread can handle signals
        yield
        return
    received.clear()  # of an earlier command in this process
    usual = {signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    numbers = [signal.SIGTERM, *(number for number, handler in usual.items() if signal.getsignal(number) is handler)]
    before = {number: signal.signal(number, _interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def call_in_child(
    function: Callable[..., Any], *args: Any, on_wait: Callable[[float], None] = lambda seconds: None, **kwargs: Any
) -> Any:
    """Call a function in a child process, which an interrupt ends at once, whatever library code it is in.

    Result, errors and arguments must be picklable. `on_wait` is called a few times per second with the seconds elapsed.

    Raises:
        OSError: if another process killed the child.
    """
    import multiprocessing  # takes long, and every command reads this module

    context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_call, args=(sender, os.getpid(), function, args, kwargs), daemon=True)
    process.start()
    sender.close()
    started = time.monotonic()
    try:
        while not receiver.poll(_SECONDS_BETWEEN_LOOKS):
            on_wait(time.monotonic() - started)
        is_good, outcome = receiver.recv()
    except EOFError:
        process.join()
        raise OSError(
            f"The worker process was killed by signal {-process.exitcode}, most likely because memory ran out."
        ) from None
    finally:
        process.kill()
        process.join()
    if not is_good:
        raise outcome
    return outcome


def _call(
    sender: Connection, parent: int, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it and ends this process
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    try:
        outcome = True, function(*args, **kwargs)
    except Exception as error:
        outcome = False, error
    sender.send(outcome)


def _exit_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    os._exit(1)


def _interrupt(number: int, _: Any) -> None:
    received.append(number)
    raise KeyboardInterrupt
