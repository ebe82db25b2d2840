"""Faults 4, 5, 6, 22 and 25: how fairseq's commands read their options, and report what is wrong with them.

A refusal is one sentence and exit code 2. The variable ROBERTA_DEBUG=1 keeps the traceback.
"""

from __future__ import annotations

import argparse
import builtins
import inspect
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import pairwise, zip_longest
from pathlib import Path
from types import NoneType
from typing import Any, NoReturn, get_args

import fairseq
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.data import data_utils
from fairseq.file_io import PathManager
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.optim.lr_scheduler import LR_SCHEDULER_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from omegaconf import MISSING, DictConfig, open_dict
from torch.multiprocessing.spawn import ProcessRaisedException

from roberta_plugin.data.mixture import data_folders
from roberta_plugin.fairseq_workarounds import starts
from roberta_plugin.fairseq_workarounds.hooks import NAMES
from roberta_plugin.fairseq_workarounds.option_limits import check_limits
from roberta_plugin.fairseq_workarounds.resuming import check_trained
from roberta_plugin.settings import MOST_NAMES, nearest

REMOVED = {
    "--background-checkpoints": "save less often where checkpoints take long, by --save-interval-updates",
    "--bert-pairs": "leave it out, and pairs are drawn anew in every epoch; --num-static-masks N draws N times",
    "--degenerate-patience": "see accuracy in the log; reports name a run that is not better than a constant answer",
    "--degenerate-action": "see accuracy in the log; reports name a run that is not better than a constant answer",
    "--attention-backend nested": "leave it out, and auto chooses",
    "--attention-backend varlen": "leave it out, and auto chooses torch_flash where the GPU has it",
    "--attention-backend flash": "leave it out, and auto chooses torch_flash where the GPU has it",
}
"""An option, or one value of it -> what to do instead."""
HUGGING_FACE = {
    "learning-rate": "--lr",
    "per-device-train-batch-size": "--batch-size",
    "gradient-accumulation-steps": "--update-freq",
    "num-train-epochs": "--max-epoch",
    "epochs": "--max-epoch",
    "max-steps": "--max-update",
    "warmup-steps": "--warmup-updates",
    "save-steps": "--save-interval-updates",
    "eval-steps": "--validate-interval-updates",
    "logging-steps": "--log-interval",
    "max-grad-norm": "--clip-norm",
    "max-seq-length": "--tokens-per-sample",
    "mlm-probability": "--mask-prob",
    "lr-scheduler-type": "--lr-scheduler",
    "optim": "--optimizer",
}
"""An option of the training scripts of transformers -> fairseq's."""

DEBUG = "ROBERTA_DEBUG"  # variable of the environment
USER_ERROR = 2  # exit code
REFUSALS = (ValueError, OSError, ImportError, FloatingPointError)

_HELP = ("-h", "--help")
_OURS, _FAIRSEQS = Path(__file__).resolve().parents[1], Path(fairseq.__file__).resolve().parent


def parse_args_and_arch(
    fairseqs: Callable[..., Any],
    parser: argparse.ArgumentParser,
    input_args: Sequence[str] | None = None,
    parse_known: bool = False,
    suppress_defaults: bool = False,
    modify_parser: Callable[[argparse.ArgumentParser], None] | None = None,
) -> Any:
    """fairseq's parse, with all options in the help text (fault 6), without a TPU (fault 4), with short errors (25)
    and removed options named (22).

    Without --arch the text has the options of our own model.
    """
    arguments = sys.argv[1:] if input_args is None else list(input_args)
    if removed := _find_removed(arguments):
        parser.usage = argparse.SUPPRESS  # one line, without the usage of all others
        parser.error(f"{removed[0]} was removed: {REMOVED[removed[0]]}.")
    refuse = parser.error if "error" in vars(parser) else _refuse_words(parser)
    parser.error = lambda message: refuse(in_short(message, parser))  # type: ignore[assignment, method-assign]
    if not any(argument in _HELP for argument in arguments):
        try:
            parsed = fairseqs(parser, input_args, parse_known, suppress_defaults, modify_parser)
        except RuntimeError as error:
            if str(error):
                raise
            # fairseq's word for options without --arch
            parser.error("--arch is missing: name a model, as in --arch fast_roberta_base.")
        options = parsed[0] if parse_known else parsed
        if getattr(options, "bf16", False):
            options.tpu = "--tpu" in arguments
        return parsed
    num_calls = 0

    def print_help_when_complete(parser: argparse.ArgumentParser) -> None:
        nonlocal num_calls
        num_calls += 1
        if modify_parser is not None:
            modify_parser(parser)
        if num_calls == 2:  # fairseq calls it before each of its two parses
            parser.print_help()
            parser.exit()

    # a later --arch overrides this one; without any, fairseq fails between its two parses
    arguments = ["--arch", "fast_roberta_base", *(argument for argument in arguments if argument not in _HELP)]
    return fairseqs(parser, arguments, modify_parser=print_help_when_complete)


def _refuse_words(parser: argparse.ArgumentParser) -> Callable[[str], NoReturn]:
    """`parser.error` without the usage, which would be a hundred lines."""
    return lambda message: parser.exit(USER_ERROR, f"{parser.prog}: error: {message}\n")


def in_short(message: str, parser: argparse.ArgumentParser) -> str:
    """argparse's message about a word, with the nearest names instead of all names, or of none."""
    unknown = message.partition("unrecognized arguments: ")[2].split()
    options = [word.partition("=")[0] for word in unknown if word.startswith("--")]
    if options:
        candidates = [name for name in parser._option_string_actions if name.startswith("--")]
        candidates += getattr(parser, "options_besides", ())
        said = [f"{option} is unknown{_here(option) or nearest(option, candidates)}." for option in options]
        return f"{' '.join(said)}\n`{parser.prog} --help`, with your --task and --arch, lists all options."
    match = re.match(r"argument (\S+): invalid choice: (.+?) \(choose from", message)
    action = parser._option_string_actions.get(match[1].split("/")[0]) if match else None
    if match is None or action is None or action.choices is None:
        return message.replace("invalid <lambda> value", "cannot read")  # fairseq's types have no names
    value, names = match[2].strip("'"), sorted(map(str, action.choices))
    option = action.option_strings[0]
    if len(names) <= MOST_NAMES:
        return f"{option} {value} is unknown: give one of {', '.join(names)}."
    return f"{option} {value} is unknown{nearest(value, names)}.\n`{parser.prog} --help` lists all {len(names)} names."


def _here(option: str) -> str:
    """`: here it is --X` for an option of transformers."""
    name = HUGGING_FACE.get(option.lower().strip("-").replace("_", "-"))
    return f": here it is {name}" if name else ""


def convert_namespace_to_omegaconf(fairseqs: Callable[..., Any], args: argparse.Namespace) -> Any:
    """fairseq's configuration of its options, after a check that none is missing; see fault 25."""
    try:
        check_needed(args)
    except ValueError as error:
        _end(f"ValueError: {error}")
    return fairseqs(args)


def _end(sentence: str) -> NoReturn:
    """End the program with a sentence, in which sweeps find the error by the name of its class."""
    sys.stderr.write(f"{sentence}\n")
    sys.exit(USER_ERROR)


def check_needed(args: argparse.Namespace) -> None:
    """Refuse options that miss one without a default, such as --total-num-update."""
    for kind, chosen in chosen_classes(args).items():
        options = with_defaults(args, chosen)
        for name in needed_by(chosen):
            if getattr(options, name) in (None, MISSING):
                option, owner = (f"--{word.replace('_', '-')}" for word in (name, kind))
                raise ValueError(f"{option} is missing: {owner} {getattr(args, kind)} needs it.")


def chosen_classes(args: argparse.Namespace) -> dict[str, Any]:
    """Classes of fairseq that --task, --arch, --criterion, --optimizer and --lr-scheduler name, by option."""
    registries: dict[str, dict[str, Any]] = {
        "task": TASK_REGISTRY,
        "arch": ARCH_MODEL_REGISTRY,
        "criterion": CRITERION_REGISTRY,
        "optimizer": OPTIMIZER_REGISTRY,
        "lr_scheduler": LR_SCHEDULER_REGISTRY,
    }
    return {kind: registry.get(getattr(args, kind, None) or "") for kind, registry in registries.items()}


def with_defaults(args: argparse.Namespace, chosen: Any) -> argparse.Namespace:
    """All options, with the defaults of a registered class of fairseq; options of two classes are left out."""
    dataclass = getattr(chosen, "__dataclass", None)
    return argparse.Namespace(**{**(vars(dataclass()) if dataclass else {}), **vars(args)})


def needed_by(chosen: Any) -> list[str]:
    """Options of a class of fairseq's registries without a default, or with another option's, which may be null."""
    dataclass = getattr(chosen, "__dataclass", None)
    items = [item for item in fields(dataclass) if NoneType not in get_args(item.type)] if dataclass else []
    return [item.name for item in items if item.default == MISSING or str(item.default).startswith("${")]


def check_valid_subsets(fairseqs: Callable[..., None], train_cfg: Any) -> None:
    """Refuse validation splits that would be ignored, in all folders of a mixture; see fault 5."""
    is_mixture = getattr(train_cfg.task, "_name", None) == "roberta_masked_lm"
    find_in_folder = data_utils._find_extra_valid_paths

    def find(data: str) -> set[str]:
        if is_mixture or os.path.isdir(data):
            folders = data_folders(data) if is_mixture else [Path(data)]
            return set().union(*map(further_validation_splits, folders))
        splits: set[str] = find_in_folder(data)
        return splits

    data_utils._find_extra_valid_paths = find
    try:
        fairseqs(train_cfg)
    finally:
        data_utils._find_extra_valid_paths = find_in_folder


def further_validation_splits(folder: Path) -> set[str]:
    """Names such as `valid1`, as fairseq's search matches them."""
    return {path.stem for path in folder.iterdir() if re.match("valid*[0-9].*", path.name)}


def call_main(fairseqs: Callable[..., None], cfg: Any, main: Any, **options: Any) -> None:
    """fairseq's start of a training, after our classes have checked its options and data; see fault 25.

    Refusals that come later, as the task, the model, a data set or a checkpoint is opened, end in one sentence, too.
    """
    model, task = ARCH_MODEL_REGISTRY.get(_name(cfg.model)), TASK_REGISTRY.get(_name(cfg.task))
    # a job of `roberta launch` notes its errors itself
    is_program = getattr(inspect.unwrap(main), "__module__", None) in NAMES
    try:
        check_limits(cfg)
        check_writable(cfg)
        check_devices(cfg)
        starts.settle(cfg.checkpoint)
        if hasattr(task, "check_start"):  # one of ours
            task.check_start(cfg)
            if hasattr(model, "check_options"):
                model.check_options(cfg.model)
        check_first_weights(cfg)
        make_log_folder(cfg.common.log_file)
        fairseqs(cfg, main, **options)
        check_trained()
    except KeyboardInterrupt:
        if not is_program:
            raise
        sys.stderr.write("interrupted: what was saved is whole, and the same command goes on from there\n")
        sys.exit(128 + signal.SIGINT)
    except Exception as error:
        sentence = refusal_in(error, task, model) if is_program and not os.environ.get(DEBUG) else None
        if sentence is None:
            raise
        _end(sentence)


def load_checkpoint(fairseqs: Callable[..., Any], cfg: Any, trainer: Any, **options: Any) -> Any:
    """fairseq's `load_checkpoint`, after the checks of `call_main`: fairseq-hydra-train knows us only since then."""
    if hasattr(type(trainer.task), "check_start"):
        trainer.task.check_start(trainer.cfg)
    check_first_weights(trainer.cfg)
    return fairseqs(cfg, trainer, **options)


def check_first_weights(cfg: Any) -> None:
    """Let a model of ours refuse initial weights that the training, of any task, does not make."""
    model = ARCH_MODEL_REGISTRY.get(_name(cfg.model))
    if hasattr(model, "check_start"):
        has_start = starts.start_file(cfg.checkpoint) is not None
        model.check_start(cfg.model, TASK_REGISTRY.get(_name(cfg.task)), has_start=has_start)


def check_devices(cfg: Any) -> None:
    """Refuse options that fairseq supports only on a GPU, if there is none, and more ranks than it can start here."""
    common, wanted = cfg.common, cfg.distributed_training.distributed_world_size
    is_flat = common.fp16 and not (common.fp16_no_flatten_grads or common.memory_efficient_fp16)
    if is_flat and not (torch.cuda.is_available() or common.cpu or common.tpu):  # the task refuses --cpu
        raise ValueError(
            "--fp16 needs a GPU, and torch finds none here: leave it out, or give --bf16, which also trains on a CPU."
        )
    if not _starts_one_rank(cfg) and wanted > max(1, torch.cuda.device_count()):
        raise ValueError(
            f"--distributed-world-size {wanted} needs as many GPUs, and torch finds {torch.cuda.device_count()} here: "
            "leave it out for a rank on each of them. (Ranks on CPUs are started one by one, with "
            "--distributed-init-method and --distributed-rank.)"
        )


def _starts_one_rank(cfg: Any) -> bool:
    """True if this process is one of several that something else started: a user, a TPU, torchrun or SLURM."""
    is_by_user = cfg.distributed_training.distributed_init_method is not None or cfg.common.tpu
    is_by_torchrun = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"} <= os.environ.keys()
    return is_by_user or is_by_torchrun or bool({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"} & os.environ.keys())


def refusal_in(error: Exception, *classes: Any) -> str | None:
    """The sentence by which we or fairseq refuse what a user gave; None for a fault of a program.

    Refusals are raised by a statement `raise` of ours or fairseq's, not within some operation, or name a file that
    cannot be opened. An error of other code, such as a subclass of `classes`, is not a refusal.
    """
    if isinstance(error, ProcessRaisedException) or _OF_WORKER in str(error):
        return _refusal_in_text(str(error))
    is_of_weights = type(error) is Exception  # fairseq's "Cannot load model parameters", whatever the cause
    if is_of_weights and isinstance(error.__context__, REFUSALS):
        error = error.__context__
    is_refusal = isinstance(error, REFUSALS) or is_of_weights
    is_file = isinstance(error, OSError) and error.filename is not None
    if not is_refusal or not (_is_raised_by_us(error) or is_file) or _is_of_others(error, *classes):
        return None
    return f"{type(error).__name__}: {error}"


def _is_raised_by_us(error: Exception) -> bool:
    """True if a statement `raise` of ours or fairseq's has raised the error.

    Example: `raise ValueError(...)` in our code, but not `int("x")` there, which raises a ValueError as well.
    """
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and (frames[-1].line or "").startswith("raise ") and _is_known(frames[-1].filename)


_OF_WORKER = "Original Traceback (most recent call last)"  # in torch's errors of data-loader workers
_LAST_RAISE = re.compile(
    r'  File "(?P<path>[^"]+)", line \d+, in \S+\n    raise .*\n(?: +[~^]+\n)?'
    r"(?P<sentence>(?P<kind>\w+): (?:.|\n)*)\Z"
)


def _refusal_in_text(text: str) -> str | None:
    """The same of an error that another process has sent: a spawned rank or a data-loader worker."""
    chain = re.split(r"\n\n.+ exception.*:\n\n", text.rpartition(_OF_WORKER)[2].rstrip())
    if len(chain) > 1 and chain[-1].rpartition("\n")[2].startswith("Exception: Cannot load model"):
        chain.pop()
    match = _LAST_RAISE.search(chain[-1])
    if match is None or not issubclass(getattr(builtins, match["kind"], object), REFUSALS):
        return None
    return match["sentence"] if _is_known(match["path"]) else None


def _is_known(path: str) -> bool:
    return not {_OURS, _FAIRSEQS}.isdisjoint(Path(path).resolve().parents)


def check_writable(cfg: Any) -> None:
    """Refuse a folder of the first rank's files that cannot be written to, before hours of training.

    Raises:
        PermissionError: naming the option, the folder and the remedy.
    """
    paths = {
        "--save-dir": None if cfg.checkpoint.no_save else cfg.checkpoint.save_dir,
        "--log-file": cfg.common.log_file,
        "--tensorboard-logdir": cfg.common.tensorboard_logdir,
    }
    for option, name in paths.items() if cfg.distributed_training.distributed_rank == 0 else ():
        if not name or PathManager.path_requires_pathmanager(name):
            continue
        path = Path(name).absolute()
        nearest = next(one for one in (path, *path.parents) if one.exists())
        if not os.access(nearest, os.W_OK):
            raise PermissionError(
                f"{option} {name}: {nearest} cannot be written to. Change its permissions, or name another folder."
            )


def make_log_folder(log_file: str | None) -> None:
    """Make the folder of --log-file, as fairseq makes --save-dir."""
    if log_file and not PathManager.path_requires_pathmanager(log_file):
        Path(log_file).parent.mkdir(parents=True, exist_ok=True)


def _is_of_others(error: Exception, *classes: Any) -> bool:
    """True if an error comes from a package of these classes that is neither ours nor fairseq's."""
    ours = {"roberta_plugin", "fairseq"}
    bases = [base for kind in classes if isinstance(kind, type) for base in kind.__mro__]
    packages = {_package(base.__module__) for base in bases} - {"builtins", "torch"} | ours
    frames = [_package(frame.f_globals.get("__name__", "")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((package for package in reversed(frames) if package in packages), "fairseq") not in ours


def _package(module: str) -> str:
    return module.partition(".")[0]


def _name(section: object) -> Any:
    return getattr(section, "_name", None)


def without_removed(arguments: Sequence[str]) -> list[str]:
    """The arguments of an earlier version that are still options."""
    if not _find_removed(arguments):
        return list(arguments)
    kept: list[str] = []
    is_removed = False
    for word, following in zip_longest(words := _words(arguments), words[1:]):
        if word.startswith("--"):  # its values follow
            is_removed = word in REMOVED or f"{word} {following}" in REMOVED
        if not is_removed:
            kept.append(word)
    return kept


def load_checkpoint_to_cpu(fairseqs: Callable[..., dict[str, Any]], *args: Any, **options: Any) -> dict[str, Any]:
    """fairseq's function; a removed value of the saved model is as if not given, which fairseq does for options."""
    state = fairseqs(*args, **options)
    model: Any = (state.get("cfg") or {}).get("model")
    for option in REMOVED if isinstance(model, DictConfig) else ():
        name, _, value = option.removeprefix("--").replace("-", "_").partition(" ")
        if value and name in model and str(model[name]) == value:
            with open_dict(model):
                del model[name]
    return state


def _find_removed(arguments: Sequence[str]) -> list[str]:
    words = _words(arguments)
    return [word for word in (*words, *map(" ".join, pairwise(words))) if word in REMOVED]


def _words(arguments: Sequence[str]) -> list[str]:
    """The arguments, `--name=value` in two words."""
    texts = [text for text in arguments if isinstance(text, str)]  # fairseq's own tests pass None
    return [part for text in texts for part in (text.split("=", 1) if text.startswith("--") else [text])]
