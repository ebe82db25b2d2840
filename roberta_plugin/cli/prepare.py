"""`roberta prepare`: official files of a fine-tuning task -> a prepared folder for fairseq-train."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

MAX_LENGTH = 512


def add_parser(subparsers: Any) -> None:
    """Add `roberta prepare` and its options."""
    from roberta_plugin.finetuning.suites import TASKS

    parser = subparsers.add_parser(
        "prepare",
        help="turn the official files of GLUE, SQuAD or RACE into data for fine-tuning",
        description="Reads the files as they are distributed, checks them, and writes the model's inputs with labels, "
        "ids and offsets. The tokenizer must be that of the pretrained model: its data-bin, or any folder with the "
        "tokenizer's files and dict.txt.",
    )
    parser.add_argument("task", choices=TASKS, metavar="TASK", help=f"one of {', '.join(TASKS)}")
    add_options(parser)
    parser.add_argument("--destination", type=Path, required=True, help="folder to write to")
    parser.add_argument("--overwrite", action="store_true", help="replace a prepared folder that is there already")
    parser.set_defaults(run=run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of the preparation itself, which `roberta finetune` has too."""
    parser.add_argument("--raw", type=Path, help="folder with the official files of the task")
    parser.add_argument("--tokenizer", type=Path, help="folder with the tokenizer's files and dict.txt")
    parser.add_argument("--max-length", type=int, help="tokens of a sequence at most (512)")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the task's own preparation: for SQuAD question-length=64, doc-stride=128, strict=true and, "
        "for files of other names, train=FILE, valid=FILE, test=FILE; for RACE and multiple_choice question-length=128 "
        "and order=passage or question",
    )


def run(args: argparse.Namespace) -> int:
    """Prepare, and say what is there now."""
    from roberta_plugin.finetuning.prepared import Prepared

    prepare(args, args.task, args.destination, overwrite=args.overwrite)
    prepared = Prepared.open(args.destination)
    for name, facts in prepared.content["splits"].items():
        print(f"{name}: {facts['examples']:,} examples, {facts['sequences']:,} sequences, {facts['tokens']:,} tokens")
    return 0


def prepare(
    args: argparse.Namespace,
    task: str,
    destination: Path,
    *,
    overwrite: bool,
    options: dict[str, str] | None = None,
) -> None:
    """Official files -> prepared folder, by the task's suite; an earlier folder stays until the new one is complete."""
    from roberta_plugin.data.tokenizers import load_tokenizer
    from roberta_plugin.data.vocabulary import Vocabulary
    from roberta_plugin.finetuning.prepared import NAME, replace_folder
    from roberta_plugin.finetuning.suites import suite_of

    for name, what in (("raw", "the folder with the official files"), ("tokenizer", "the tokenizer's folder")):
        if getattr(args, name) is None:
            raise ValueError(f"--{name} is missing: give {what}.")
    if not args.raw.exists():
        raise FileNotFoundError(f"--raw {args.raw} does not exist: give the folder with the official files of {task}.")
    is_replaced = overwrite and (destination / NAME).is_file()
    folder = destination.with_name(f".{destination.name}.new") if is_replaced else destination
    if is_replaced:
        shutil.rmtree(folder, ignore_errors=True)
    suite_of(task).prepare(
        task,
        args.raw,
        folder,
        tokenizer=load_tokenizer(args.tokenizer),
        vocabulary=Vocabulary.load(args.tokenizer / "dict.txt"),
        max_length=MAX_LENGTH if args.max_length is None else args.max_length,
        options=named_values(args.option, "--option") if options is None else options,
    )
    if is_replaced:
        replace_folder(destination, by=folder)


def named_values(words: list[str], option: str) -> dict[str, str]:
    """["a=1", "b=2"] -> {"a": "1", "b": "2"}.

    Raises:
        ValueError: if a word has no `=`, or a name comes twice.
    """
    values: dict[str, str] = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name:
            raise ValueError(f"{option} must be NAME=VALUE, got {word!r}.")
        if name in values:
            raise ValueError(f"{option} gives {name} twice.")
        values[name] = value
    return values
