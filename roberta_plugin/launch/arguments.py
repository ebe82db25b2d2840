"""fairseq-train's arguments, read with fairseq's own parser, and checked before it starts.

The rules are defined where they act: in the classes that the options name (`check_options`), and in the files
`tasks/block_task_checks.py` and `tasks/masked_lm_checks.py`. Nothing is built here, and no data is read but a prepared
folder's settings.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import roberta_plugin
from roberta_plugin.data import mixture

OUR_TASK = "roberta_masked_lm"
NO_DATA = "The recipe names no data folder: give it as fairseq-train's first argument, or as data: under train."
PACKAGE = Path(roberta_plugin.__file__).parent  # the folder of this plugin, for --user-dir and snapshots


def parse(arguments: Sequence[str], *, besides: Sequence[str] = ()) -> argparse.Namespace:
    """fairseq's namespace of options; `besides` are further names that a misspelt one may mean.

    Raises:
        ValueError: where fairseq-train would print its usage and exit, with fairseq's reason.
    """
    roberta_plugin.register()
    from fairseq import options

    check_user_dir(arguments)
    _check_user_dir_exists(arguments)
    with _command_line(["fairseq-train", *arguments]):
        parser = options.get_training_parser()
        parser.error = _refuse  # type: ignore[method-assign]
        parser.options_besides = besides  # type: ignore[attr-defined]
        try:
            parsed: argparse.Namespace = options.parse_args_and_arch(parser, input_args=list(arguments))
        except (SyntaxError, NameError) as error:  # fairseq evaluates the text of some values
            raise ValueError(_unreadable(arguments, error)) from error
    return parsed


def check_user_dir(arguments: Sequence[str]) -> None:
    """Refuse another checkout of this plugin, because Python has already imported one of that name."""
    for name, folder in itertools.pairwise(arguments):
        path = Path(folder).resolve()
        if name == "--user-dir" and path.name == PACKAGE.name and path.is_dir() and path != PACKAGE.resolve():
            raise ValueError(
                f"--user-dir {folder} is another checkout of this plugin, which runs from {PACKAGE}: leave the option "
                f"out, or run the command of that checkout (PYTHONPATH={path.parent})."
            )


def _check_user_dir_exists(arguments: Sequence[str]) -> None:
    """Refuse a user directory that fairseq, which looks into its own folders too, would not find."""
    import fairseq

    fairseq_folder = Path(fairseq.__file__).parent
    for name, folder in itertools.pairwise(arguments):
        places = (Path(folder), fairseq_folder / folder, fairseq_folder.parent / folder)
        if name == "--user-dir" and not any(place.exists() for place in places):
            raise ValueError(f"--user-dir {folder} does not exist: correct the path, or leave the option out.")


def user_dir_of(arguments: Sequence[str]) -> Path | None:
    """The folder of --user-dir, where there is one."""
    folder = next(
        (Path(value).resolve() for name, value in itertools.pairwise(arguments) if name == "--user-dir"), None
    )
    if folder is not None and not folder.is_dir():
        raise FileNotFoundError(f"The recipe's --user-dir {folder} does not exist: correct the path.")
    return folder


def with_code(arguments: Sequence[str], code: Path) -> tuple[str, ...]:
    """The arguments with --user-dir, if there is one, in a snapshot.

    Example:
        with_code(("data", "--user-dir", "mine"), Path("run/.snapshots/0/code"))
        ->  ("data", "--user-dir", "run/.snapshots/0/code/mine")
    """
    before = ("", *arguments)
    return tuple(
        str(code / Path(text).resolve().name) if name == "--user-dir" else text
        for name, text in zip(before, arguments, strict=False)
    )


def value_of(arguments: Sequence[str], option: str, *, needed_for: str) -> str:
    """The value of an option, the last one where it is given twice."""
    values = [after for name, after in itertools.pairwise(arguments) if name == option]
    if not values:
        raise ValueError(f"{needed_for} needs {option} among fairseq-train's options: the most that one GPU can take.")
    return values[-1]


def data_folders(parsed: argparse.Namespace) -> list[Path]:
    """The folders of binarized data that the options name."""
    data = str(getattr(parsed, "data", "") or "")
    if parsed.task == OUR_TASK:
        return mixture.data_folders(data)
    if data and Path(data).is_dir():  # its path may hold a colon
        return [Path(data)]
    return [Path(folder) for folder in data.split(":") if folder]


def check_data(parsed: argparse.Namespace) -> None:
    """Refuse data folders that do not exist or hold no binarized text. For pretraining, also refuse bad splits.

    Raises:
        ValueError: without any folder, or for an empty split.
    """
    from roberta_plugin.tasks.masked_lm_checks import check_splits

    folders = data_folders(parsed)
    if not folders:
        raise ValueError(NO_DATA)
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(
                f"The recipe's data folder {folder} does not exist: make it with `roberta binarize --output-dir "
                f"{folder}`, or correct the path."
            )
        if not any(folder.glob("dict*.txt")) and not any(folder.glob("*/dict*.txt")):
            raise FileNotFoundError(
                f"The recipe's data folder {folder} holds no dict.txt: it was not written by `roberta binarize` or "
                f"fairseq-preprocess."
            )
    if parsed.task == OUR_TASK:
        validation = ["valid"] if parsed.combine_valid_subsets else parsed.valid_subset.split(",")
        check_splits(folders, training=parsed.train_subset, validation=[] if parsed.disable_validation else validation)


def to_config(parsed: argparse.Namespace) -> Any:
    """fairseq's structured configuration of the options."""
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    return convert_namespace_to_omegaconf(parsed)


def check_options(parsed: argparse.Namespace, *, is_to_start: bool = True) -> None:
    """Check the options of task, model, criterion, optimizer and learning rate, and fairseq's options around them.

    A training that is only planned (`is_to_start`) needs neither a learning rate nor a batch.
    """
    from roberta_plugin.fairseq_workarounds import starts
    from roberta_plugin.fairseq_workarounds.command_line import (
        check_first_weights,
        check_needed,
        chosen_classes,
        with_defaults,
    )
    from roberta_plugin.tasks.block_task_checks import check_start_options, check_training_options
    from roberta_plugin.tasks.masked_lm_checks import check_positions

    for chosen in chosen_classes(parsed).values():
        check = getattr(chosen, "check_options", None)
        if check is not None:
            check(with_defaults(parsed, chosen))
    check_needed(parsed)
    check_training_options(parsed)
    if is_to_start:
        check_start_options(parsed)
        starts.start_files(parsed)  # also fetches what compute nodes may not reach
        check_first_weights(to_config(parsed))
    if parsed.task == OUR_TASK:
        for limit in ("max_tokens", "max_tokens_valid"):
            check_positions(
                parsed.tokens_per_sample,
                max_positions=getattr(parsed, "max_positions", None),
                max_tokens=None if getattr(parsed, limit, None) is None else int(getattr(parsed, limit)),  # may be text
                limit=f"--{limit.replace('_', '-')}",
            )


def checked(arguments: Sequence[str]) -> argparse.Namespace:
    """fairseq's namespace of options, after a check that a training can start with them and their data."""
    parsed = parse(arguments)
    check_options(parsed)
    check_data(parsed)
    return parsed


def _unreadable(arguments: Sequence[str], error: SyntaxError | NameError) -> str:
    """Name the option whose value fairseq could not evaluate."""
    text = error.text.strip() if isinstance(error, SyntaxError) and error.text else str(getattr(error, "name", ""))
    pairs = [f"{name} {value}" for name, value in itertools.pairwise(arguments) if text and text in value]
    unreadable = next((pair for pair in pairs if pair.startswith("--")), repr(text))
    return f"fairseq-train cannot read {unreadable}: it must be a number, or several as [1, 2] ({error})."


def _refuse(message: str) -> NoReturn:
    if message.endswith("required: data"):
        raise ValueError(NO_DATA)
    raise ValueError(f"fairseq-train would refuse these options: {' '.join(message.splitlines())}")


@contextlib.contextmanager
def _command_line(argv: list[str]) -> Iterator[None]:
    """Set sys.argv, which fairseq always reads, and hide its usage text."""
    before = sys.argv
    sys.argv = argv
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        sys.argv = before
