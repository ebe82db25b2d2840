"""The `roberta` command: a table of verbs, to which extensions add theirs; only the called one is imported.

A verb is a `Command` (`command.py`) of a module of this folder: its options are the fields of its settings, its
function gets these, prints and returns the exit code. An error that the user can fix (a wrong option, a missing or
broken file) is printed as one line on stderr, with exit code 2; `--debug` shows the traceback.

    doctor          faults of an installation, and their remedies
    user_dir        the folders for --user-dir and of the recipes
    pretrain        text or data-bin -> a model, by a recipe; a first pretraining
    check           text -> its duplicates, leaks and markup
    text  inspect   text -> tokenizer -> data-bin, and what is in it
    finetuning      official files -> prepared data -> tuned models -> metrics
    models          a model and new text -> its answers; models for and from other programs
    profile         where a training step spends its time
    launch  jobs    a training on a cluster, and its progress
    sweep           many trainings: grids of hyperparameters and seeds
    command         settings, function and help of a verb; options of verbs with a TASK; Ctrl-C and SIGTERM
    __main__        `python -m roberta_plugin.cli`
"""

from __future__ import annotations

import argparse
import errno
import itertools
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from roberta_plugin import __version__
from roberta_plugin.cli.command import received, refuse_further
from roberta_plugin.data.text_inputs_remote import without_secrets
from roberta_plugin.extras import require
from roberta_plugin.files import NO_ROOM
from roberta_plugin.machine import SPIN_COUNT
from roberta_plugin.registry import ACTIONS, VERBS, VerbEntry, leave_out, load
from roberta_plugin.settings import nearest

OWN_VERBS = {
    "doctor": VerbEntry("find faults of the installation, and say how to repair them", ".doctor:doctor"),
    "demo": VerbEntry(
        "pretrain a small RoBERTa on the documentation inside your own Python, in minutes",
        ".pretrain:demo",
    ),
    "pretrain": VerbEntry(
        "pretrain on your own text, by a recipe that suits machine, text and hours",
        ".pretrain:pretrain",
    ),
    "recipes": VerbEntry("list the recipes of pretraining, or show one", ".pretrain:recipes"),
    "check": VerbEntry(
        "look at a text before training: duplicates, leaks, markup, encodings, tokenizers",
        ".check:check",
    ),
    "tokenizer": VerbEntry(),
    "binarize": VerbEntry("convert text files into the binary files that fairseq-train reads", ".text:binarize"),
    "inspect": VerbEntry("show and check the contents of a folder of binary files", ".inspect:inspect"),
    "prepare": VerbEntry(
        "turn official files of a task, or your own tables, into data for fine-tuning",
        ".finetuning:prepare",
    ),
    "finetune": VerbEntry(
        "fine-tune on such a task as the paper does: grid, seeds, median, ensemble, predictions",
        ".finetuning:finetune",
    ),
    "evaluate": VerbEntry(
        "evaluate fine-tuned models by the official metrics, beside the paper's numbers",
        ".finetuning:evaluate",
    ),
    "predict": VerbEntry(
        "a model's answers about new text: masks, labels, tags, numbers, options, answers, summaries, vectors",
        ".models:predict",
    ),
    "fill-mask": VerbEntry("predict the masked tokens of texts: predict --task-kind fill_mask", ".models:predict"),
    "export": VerbEntry("write a model for transformers, ONNX Runtime or fairseq", ".models:export"),
    "import": VerbEntry("read a model of Hugging Face or of fairseq", ".models:import_model"),
    "user-dir": VerbEntry(
        "print the folder for --user-dir of fairseq-train, or the folder of the recipes",
        ".user_dir:user_dir",
    ),
    "profile": VerbEntry("show what a training step spends its time on", ".profile:profile"),
    "launch": VerbEntry(
        "train on a SLURM cluster: nodes x GPUs, resumed after preemption and time limits",
        ".launch:launch",
    ),
    "train": VerbEntry("train a recipe without SLURM: one rank, started by torchrun", ".launch:train"),
    "jobs": VerbEntry("show the progress of launched trainings", ".jobs:jobs"),
    "sweep": VerbEntry("run a grid of trainings, and compare them", ".sweep:sweep"),
}
VERBS.reserved = tuple(OWN_VERBS)
GUESSED = {
    "convert": "`roberta import` reads a model of Hugging Face or fairseq, and `roberta export` writes one for them",
    "serve": "there is no server: `roberta export` writes models for servers of transformers and ONNX Runtime, and "
    "RobertaHub answers inside a program (examples/README.python.md)",
    **dict.fromkeys(("lint", "stats"), "`roberta check` looks at a text"),
    **dict.fromkeys(("eval", "test"), "`roberta evaluate` measures fine-tuned models, `roberta inspect` checks data"),
    **dict.fromkeys(("preprocess", "tokenize"), "`roberta binarize` converts text into a data-bin"),
}
"""Words that other programs have for verbs -> what there is here."""
WITHDRAWN = {
    "plan": "`roberta pretrain --dry-run` and `roberta launch --dry-run` estimate FLOPs, hours and memory",
}
"""Verbs of earlier versions -> what to use instead."""
REMEDIES = {
    **dict.fromkeys(NO_ROOM, "Free some space there, and run the same command again."),
    errno.EROFS: "Its file system is read-only: name a folder elsewhere.",
    errno.EACCES: "Change its permissions, or name another file or folder.",
    errno.EEXIST: "A file has the name of a folder that is needed: name another.",
    errno.ENOTDIR: "A file has the name of a folder that is needed: name another.",
    errno.EISDIR: "It is a folder, and a file is needed: name one.",
    errno.ENOENT: "Correct the path.",
    errno.EPERM: "Change its permissions, or name another file or folder.",
}
USER_ERROR = 2
_OUT_OF_MEMORY = (
    "failed to map segment from shared object",
    "can't allocate memory",
    "out of memory",
    "could not create a primitive",
)
# Control characters except tab and line end, and those that turn the direction of writing.
_COMMANDS_OF_TERMINALS = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069]")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (default: the process's own) and return the exit code."""
    if arguments is None and sys.getfilesystemencoding() == "ascii":  # paths may have other characters
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONUTF8": "1"})
    if sys.stdout is None:  # `>&-`: the first file that is opened would be taken for it
        print("roberta: standard output is closed: redirect it to a file, or to /dev/null.", file=sys.stderr)
        return USER_ERROR
    if arguments is None:
        _open_standard_streams()
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
    args = _parse(list(sys.argv[1:] if arguments is None else arguments))
    run: Callable[[argparse.Namespace], int] = args.run
    try:
        code = run(args)
        sys.stdout.flush()
        return code
    except BaseException as error:
        if received or isinstance(error, KeyboardInterrupt):
            return _report_interrupt(error)
        if isinstance(error, BrokenPipeError):  # the reader of our output has exited: `roberta inspect | head`
            _drop_output()
            return 1
        if not isinstance(error, Exception) or not is_of_user(error):
            raise
        return _report(error, args)


def _parse(argv: list[str]) -> argparse.Namespace:
    """The options of the called verb; an unknown verb or option ends the process with a message."""
    verb = called_verb(argv)
    if verb is not None and verb not in all_verbs():
        build_parser().error(f"{verb} is no {'longer a ' if verb in WITHDRAWN else ''}verb{unknown_verb(verb)}.")
    args, further = build_parser(verb).parse_known_args(argv)
    if further and not args.takes_further:
        refuse_further(args.parser, further)
    args.further = further[1:] if further[:1] == ["--"] else further  # as `roberta launch` has it
    return args


def _report_interrupt(error: BaseException) -> int:
    """Print what Ctrl-C or SIGTERM interrupted; return the exit code, as shells count: 130 and 143."""
    remedy = str(error) if isinstance(error, KeyboardInterrupt) else ""
    print(f"interrupted: {remedy}" if remedy else "interrupted", file=sys.stderr)
    return 128 + (received or [signal.SIGINT])[0]


def _report(error: Exception, args: argparse.Namespace) -> int:
    """Print an error that the user can fix; return the exit code."""
    if args.debug:
        traceback.print_exc()
    else:
        print(f"roberta {args.verb}: {_harmless(without_secrets(in_words(error, args)))}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
    return USER_ERROR


def _open_standard_streams() -> None:
    """Let nothing that is opened later be taken for a closed standard stream; what goes to stderr then goes nowhere."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115  # to the end of the process


def _drop_output() -> None:
    """Write to nowhere from here on: Python flushes standard output at its end, and exits with 120 where it cannot."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_of_user(error: Exception) -> bool:
    """True if an error is for the user to mend, who reads it in words."""
    return isinstance(error, ValueError | OSError) or lacks_memory(error) or missing_package(error) != ""


def missing_package(error: Exception) -> str:
    """The package of others whose absence an error reports; empty for other errors."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return "" if name == __package__.partition(".")[0] else name


def lacks_memory(error: Exception) -> bool:
    """True if an error says that memory has run out: as Python, the loader of libraries, torch or oneDNN says it."""
    if isinstance(error, MemoryError):
        return True
    is_of_a_library = isinstance(error, ImportError | RuntimeError) or type(error) is OSError
    return is_of_a_library and any(words in str(error) for words in _OUT_OF_MEMORY)


def in_words(error: Exception, args: argparse.Namespace) -> str:
    """The message that the user reads. Errors of the operating system also get their file and a remedy."""
    if lacks_memory(error):
        why = f" ({str(error).splitlines()[0]})" if str(error) else ""
        return f"memory ran out{why}: give it more, or smaller files or batches."
    if package := missing_package(error):
        return (
            f"the Python package {package} is missing here. `roberta doctor` finds what an installation lacks, and "
            "prints the command that repairs it."
        )
    remedy = REMEDIES.get(error.errno or 0) if isinstance(error, OSError) else None
    if not isinstance(error, OSError) or remedy is None:
        return str(error)
    # A file that is being written does not know its name.
    file = error.filename2 or error.filename or getattr(args, "output_dir", None) or "Standard output"
    return f"{os.fspath(file)}: {error.strerror}. {remedy}"


def _harmless(text: str) -> str:
    """The text with the characters that command a terminal, which names in files may hold, as Python's escapes."""
    return _COMMANDS_OF_TERMINALS.sub(lambda match: ascii(match[0])[1:-1], text)


def all_verbs() -> dict[str, VerbEntry]:
    """Our own verbs and the verbs of extensions; the line of a verb with actions is the lines of these."""
    verbs = {**OWN_VERBS, **VERBS}
    for verb, entry in verbs.items():
        if not entry.summary:
            summaries = (each.summary for name, each in ACTIONS.items() if name.partition(" ")[0] == verb)
            verbs[verb] = replace(entry, summary="; ".join(summaries))
    return verbs


def actions_by_verb() -> dict[str, dict[str, VerbEntry]]:
    """The actions of each verb that has some; those of packages for other verbs are left out, with a warning."""
    found: dict[str, dict[str, VerbEntry]] = {verb: {} for verb, entry in all_verbs().items() if not entry.command}
    for name, entry in ACTIONS.items():
        verb, _, action = name.partition(" ")
        if verb in found:
            found[verb][action] = entry
        else:
            owner = ACTIONS.owner(name)
            error = ValueError(f"{verb} is not a verb with actions, as {', '.join(found)}")
            leave_out(f"The action {name!r} of {owner.package} is", owner, error)
    return found


def _add_actions(parser: argparse.ArgumentParser, verb: str, entries: Mapping[str, VerbEntry]) -> None:
    """Add the actions of a verb to its parser; one that cannot be imported is left out, with a warning."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, entry in entries.items():
        try:
            define = ACTIONS.load(f"{verb} {name}", "command").define
        except Exception as error:  # whatever a foreign module raises
            owner = ACTIONS.owner(f"{verb} {name}")
            leave_out(f"The action '{verb} {name}' of {owner.package} is", owner, error)
            continue
        define(actions.add_parser(name, help=entry.summary))


def called_verb(argv: Sequence[str]) -> str | None:
    """The first argument that is not an option. The name of a shell after --print-completion is an option's value."""
    words = itertools.takewhile(lambda word: word != "--print-completion", argv)
    return next((word for word in words if not word.startswith("-")), None)


def unknown_verb(verb: str) -> str:
    """The end of the sentence about a verb that there is not: what there is instead, or the nearest verbs."""
    if instead := WITHDRAWN.get(verb) or GUESSED.get(verb):
        return f": {instead}"
    return f"{nearest(verb, all_verbs())}; `roberta --help` lists all"


class _PrintCompletion(argparse.Action):
    """Prints a shell's completion of all verbs and their options, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, _namespace: Any, shell: Any, _option: Any = None) -> None:
        try:
            require("shtab", extra="completion", purpose="--print-completion")
        except ValueError as error:
            parser.error(str(error))
        import shtab

        print(shtab.complete(build_parser(*all_verbs()), shell))
        parser.exit()


def build_parser(*verbs: str | None) -> argparse.ArgumentParser:
    """The parser with all verbs; only `verbs` get their options, so only their modules are imported."""
    parser = argparse.ArgumentParser(
        prog="roberta", description="RoBERTa (Liu et al. 2019) as a fairseq plugin: the commands around fairseq-train."
    )
    parser.add_argument("--version", action="version", version=f"roberta_plugin {__version__}")
    parser.set_defaults(takes_further=False)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error (before the verb)")
    parser.add_argument(
        "--print-completion",
        choices=("bash", "zsh"),
        action=_PrintCompletion,
        help="print a shell's completion of roberta",
    )
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    actions = actions_by_verb()
    for name, entry in all_verbs().items():
        # "resolve": verbs with a TASK have a --help of their own
        subparser = subparsers.add_parser(name, help=entry.summary, conflict_handler="resolve")
        subparser.set_defaults(parser=subparser)
        if name in actions and name in verbs:
            _add_actions(subparser, name, actions[name])
        elif name in verbs:
            command = load(entry.command, package=__name__) if name in OWN_VERBS else VERBS.load(name, "command")
            command.define(subparser)
    return parser
