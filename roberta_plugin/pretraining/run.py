"""`roberta pretrain`: text -> tokenizer -> data-bin -> trained model -> results; the same command resumes.

The folder of the output holds what the steps make, each once:

    text.json       the text and how it was read
    text/           train.txt and valid.txt, if texts are given without --valid; train.txt, if the text is a pipe
    tokenizer/      if texts are given without --tokenizer
    data-bin/       if texts are given
    pretrain.json   options of fairseq-train with which the training began
    train.log       output of fairseq-train
    checkpoints/    and tensorboard/
    report.md       results, with loss.png; report.json has the numbers
"""

from __future__ import annotations

import argparse
import logging
import math
import operator
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_plugin.data.mixture import data_folders, whole_paths
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.launch import process
from roberta_plugin.launch.log import parse_line, show_on
from roberta_plugin.launch.options_file import replaced_by
from roberta_plugin.launch.recipe import LaunchSettings, complete
from roberta_plugin.launch.resume_policy import SAME, policies
from roberta_plugin.launch.run_folder import RUN, read_record
from roberta_plugin.machine import num_cores
from roberta_plugin.pretraining.choice import (
    MAX_THREADS,
    Machine,
    as_given,
    choose,
    command,
    fitted,
    most_factor,
    remarks,
    tokens_of_text,
)
from roberta_plugin.pretraining.pace import Pace
from roberta_plugin.pretraining.ranks import slurm_ranks, with_training
from roberta_plugin.pretraining.recipe import Recipe, load
from roberta_plugin.pretraining.settings import PretrainSettings
from roberta_plugin.pretraining.texts import text_bytes
from roberta_plugin.progress import progress_bar
from roberta_plugin.record import differences, moved, options_of, refuse
from roberta_plugin.settings import flag, short

if TYPE_CHECKING:
    from roberta_plugin.pretraining.start import Start  # imports torch, which plans and help do without

logger = logging.getLogger(__name__)

RECORD = "pretrain.json"
START = "--finetune-from-model"
_FREE = ("cores", "--user-dir", "--log-interval", "--save-dir", "--tensorboard-logdir")  # the folder may have moved
_WARNING = re.compile(r" \| WARNING \| roberta_plugin\S* \| (.*)")
_STARTS = {START, "--restore-file", "--continue-once"}
_ASKED = ("recipe", "hours", "updates")
_NO_OPTIONS = ("data", "reading")


@dataclass(frozen=True)
class Plan:
    """The training that a command starts, and what the command says about it."""

    recipe: Recipe  # as the command has it, in which the user's options have won
    machine: Machine
    tokens: int
    arguments: list[str]
    parsed: argparse.Namespace
    why: str
    original: Recipe  # as its file has it
    is_changed: bool  # whether the result may be another than that of `original`
    is_timed: bool  # whether its time here is that of `recipe`
    notes: list[str]
    ranks: LaunchSettings | None = None  # the training as a launch, on SLURM or by torchrun
    start: Start | None = None  # the model that it goes on from

    @property
    def on_gpu(self) -> bool:
        """Whether it trains on GPUs."""
        return self.machine.gpus > 0

    @property
    def command(self) -> list[str]:
        """fairseq-train and its arguments."""
        return [*process.train_program(), *self.arguments]

    def described(self) -> Iterator[str]:
        """The recipe, why it was chosen, its length, what to expect and remarks, a line each."""
        recipe = self.recipe
        yield f"recipe   {recipe.name}: {recipe.summary}"
        yield f"because  {self.why}"
        if self.start is not None:
            yield f"start    {self.start.described()}"
        passes = recipe.tokens() / self.tokens if self.tokens else 0
        unchanged = "unchanged, " if self.is_changed else ""
        theirs = f"{unchanged}the recipe takes {self.original.time} on {recipe.hardware}"
        yield (
            f"length   {recipe.updates:,} updates of {recipe.tokens() / recipe.updates:,.0f} tokens"
            + (f", {passes:,.{0 if passes >= 100 else 1}f} passes over the text" if passes else "")
            + (f"; about {recipe.time} here ({theirs})" if self.is_timed else f"; {theirs}")
        )
        if self.start is None:  # results are of new weights
            yield f"expect   {self._expected()}"
        yield from (f"note     {note}" for note in self.notes)

    def estimated(self) -> str:
        """FLOPs of the training, and on GPUs its hours and memory, as a line; empty for other models."""
        from roberta_plugin.launch.estimate import estimate

        gpu = self.machine.gpu_name or self.original.gpu_name
        words = estimate(self.parsed, gpu=gpu, gpu_memory_gb=self.machine.gpu_memory_gb)
        return f"estimate {words}" if words else ""

    def _expected(self) -> str:
        recipe = self.recipe
        source = f"run by us: {recipe.run_by_us}" if recipe.run_by_us else "not run by us"
        of_what = "of the unchanged recipe: " if self.is_changed else ""
        return f"{of_what}{recipe.result or 'no result is known'} ({source}; on {recipe.text})"


def make_plan(
    settings: PretrainSettings, data: str, further: Sequence[str], *, start: Start | None = None, torchrun: int = 0
) -> Plan:
    """The recipe for the data, and the command; `torchrun` is the number of ranks that it has started.

    The architecture is that of `start`, as far as the user names no other.

    Raises:
        ValueError: if fairseq-train would refuse the options.
        FileNotFoundError: if there is no data-bin.
    """
    from roberta_plugin.launch.arguments import parse

    options = options_of(further)
    number = options.get("--distributed-world-size", "")
    machine = Machine.detect(cpu="--cpu" in options, gpus=torchrun or (int(number) if number.isdecimal() else None))
    if cores := (_read_record(settings.folder) or {}).get("cores"):
        machine = replace(machine, cores=int(cores))  # a training that goes on elsewhere keeps its length
    (tokens, is_guess), hours = _tokens(settings, data), settings.hours
    first = _first_machine(settings.folder) if settings.slurm is not None or torchrun else None  # likewise
    original = load(settings.recipe) if settings.recipe else choose(first or machine, hours=hours, tokens=tokens)
    most = math.inf if settings.recipe or settings.updates else most_factor(original, tokens)
    why = f"named by --recipe; {machine.described()}" if settings.recipe else f"{machine.described()}"
    ranks, is_timed = _ranks_of(settings, original, torchrun=torchrun), True
    if settings.slurm is not None and ranks:
        why = f"named by --recipe; {ranks.nodes} x {ranks.gpus_per_node} ranks by SLURM"
        machine = Machine(ranks.cpus_per_gpu, has_bf16=True)  # which the nodes use where they have it
        if original.device == "gpu":
            machine = replace(machine, gpus=ranks.num_gpus, gpu_memory_gb=original.gpu_memory_gb)
    elif original.device == "gpu" and not machine.gpus:
        if not settings.dry_run:
            raise ValueError(
                f"Recipe {original.name} needs a GPU, and there is none: choose another by --recipe, or start it on a "
                "cluster by --slurm; --dry-run shows its command."
            )
        machine = replace(machine, has_bf16=True, gpus=original.gpus, gpu_memory_gb=original.gpu_memory_gb)
        why += f", the command is for {original.hardware}"
        is_timed = False
    if hours:
        why += f"; --hours {hours:g}"
    is_shared = ranks is None and "--update-freq" not in options
    recipe = fitted(original, first or machine, hours=hours, most=most, is_shared=is_shared)
    recipe = recipe if settings.updates is None else recipe.scaled(settings.updates / recipe.updates)
    why += f"; {'about ' if is_guess else ''}{tokens:,} tokens of text" if tokens else ""
    left = recipe.without(settings.without)
    if start is not None:
        left, further = start.fitted(left, further), [*start.words(further), *further]
    arguments = command(left, machine, data, folder=settings.folder, further=further)
    promised = command(original, machine, data, folder=settings.folder)
    changes = differences(options_of(promised), options_of(arguments), named=str)
    if ranks is not None:
        asked = {**_asked(settings), "machine": asdict(first or machine)}
        ranks = with_training(ranks, arguments, recipe, options=options, asked=asked)
    our_options = [flag(each) for each in fields(PretrainSettings) if each.name not in _NO_OPTIONS]
    with _naming_the_recipe(original, options):
        arguments = arguments if ranks is None else list(complete(ranks))
        parsed = parse(arguments, besides=our_options)
    if ranks is not None:
        parsed.distributed_world_size = ranks.num_gpus
    of_command = as_given(recipe, parsed)
    notes = remarks(of_command, original, machine, tokens=tokens, hours=hours, size_is_given=start is not None)
    if start is not None:
        notes, is_timed = [*notes, *start.check(parsed, further)], False
    if of_command.updates != recipe.updates and not options.keys() & {"--lr-scheduler", "--lr-stages"}:
        notes.append(
            f"--max-update leaves the learning rates and the growth of a training of {recipe.updates:,} updates: "
            "--hours scales them as well."
        )
    if resized := [name for name in options if name.removeprefix("--") in ("arch", *replaced_by(["arch"]))]:
        notes.append(
            f"{', '.join(resized)}: the time of a model of another size is not known, and --hours are those of the "
            "recipe's own: see the first lines of its log."
        )
        is_timed = False
    is_changed = of_command.tokens() != original.tokens() or _changes_result([each.name for each in changes], parsed)
    return Plan(
        of_command, machine, tokens, arguments, parsed, why, original, is_changed, is_timed, notes, ranks, start
    )


def _changes_result(options: Sequence[str], parsed: argparse.Namespace) -> bool:
    """True if other values of these options make the result another one than that of the recipe.

    The number of tokens that are read is counted apart, and another seed is as good.
    """
    policy = policies(parsed)
    names = {option.removeprefix("--").replace("-", "_") for option in options} - {"seed"}
    return any(policy.get(name, SAME) == SAME for name in names)


def _tokens(settings: PretrainSettings, data: str) -> tuple[int, bool]:
    """How many tokens there are to train on, and whether that is a guess, before a text is tokenized; 0: not known."""
    counts = (MmapTokens(each / "train").num_tokens for each in data_folders(data) if (each / "train.idx").is_file())
    if (tokens := sum(counts)) or not settings.is_text:
        return tokens, False
    return tokens_of_text(text_bytes(settings.reading.sources(settings.data))), True


@contextmanager
def _naming_the_recipe(recipe: Recipe, options: Mapping[str, str]) -> Iterator[None]:
    """Say that an unknown option is the recipe's, and not one that the user has given."""
    try:
        yield
    except ValueError as error:
        unknown = [f"--{name}" for name in recipe.train if f"--{name} is unknown" in str(error)]
        if extra := [name for name in unknown if name not in options]:
            raise ValueError(
                f"Recipe {recipe.name} has {', '.join(extra)}, which this command's --arch, --task, --optimizer or "
                f"--lr-scheduler lacks: give --without {' '.join(name[2:] for name in extra)}, or a fast_roberta."
            ) from error
        raise


def _first_machine(folder: Path) -> Machine | None:
    """The machine that the launched training in a folder was planned for; None if there is none, or it does not say."""
    if (record := read_record(folder)) is None or "machine" not in record.asked:
        return None
    value = record.asked["machine"]
    try:
        return Machine(**{**value, "cores": operator.index(value["cores"])})
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{folder / RUN}: 'machine' is {short(value)}, which describes no machine: delete it from 'asked', and the "
            "training is planned for the present one."
        ) from error


def _ranks_of(settings: PretrainSettings, recipe: Recipe, *, torchrun: int) -> LaunchSettings | None:
    """Where the training runs, if these are ranks of SLURM or of torchrun."""
    if settings.slurm is not None:
        return slurm_ranks(settings.slurm, recipe, settings.folder)
    if not torchrun:
        return None
    return LaunchSettings(output_dir=settings.folder, train=(), gpus_per_node=torchrun)


def check(plan: Plan, *, with_data: bool = True, is_to_start: bool = True) -> None:
    """Refuse options and data with which fairseq-train could not begin; `is_to_start`: on this machine."""
    from roberta_plugin.fairseq_workarounds.command_line import check_devices
    from roberta_plugin.launch.arguments import check_data, check_options, to_config

    if with_data:
        check_data(plan.parsed)
    check_options(plan.parsed)
    if is_to_start and plan.ranks is None:
        check_devices(to_config(plan.parsed))


def check_record(
    folder: Path, arguments: Sequence[str], *, settings: PretrainSettings | None = None, cores: int | None = None
) -> None:
    """Refuse other options than the training in the folder began with; keep them and the cores, if none has begun.

    The settings that the options follow from are kept, too, and a difference is told by them instead of the options.
    """
    now: dict[str, Any] = options_of(arguments)
    now["data"] = whole_paths(now["data"])  # the same from any current folder
    asked = _asked(settings) if settings else {}
    before = _read_record(folder)
    for name in _STARTS & now.keys():  # likewise, and after they are gone
        path, known = os.path.abspath(now[name]), (before or {}).get(name)
        if known != now[name] and (os.path.exists(path) or known == path):
            now[name] = path
    if before is None:
        write_json(folder / RECORD, {**now, **asked, "cores": cores})
        return
    asked = {name: value for name, value in asked.items() if name in before}  # which older records lack
    if not os.path.isabs(before["data"]):  # an older record of a mixture
        before["data"] = whole_paths(before["data"])
    checkpoints = Path(os.path.abspath(now["--save-dir"]))  # beside which a data-bin may have moved with the folder
    save_dir = os.path.abspath(before["--save-dir"])
    for name in {"data", *_STARTS} & before.keys() & now.keys():
        before[name] = moved(before[name], before=save_dir, now=checkpoints, among=[now[name]])
    before, now = ({"DATA": options.pop("data"), **options} for options in (before, now))  # as the user calls it
    if differences(before, now, free=lambda name: name in (*_FREE, *asked)):
        refuse(
            f"{folder} holds a training that began with other options",
            differences(
                before,
                {**now, **asked},
                free=lambda name: name in _FREE,
                named=lambda name: "" if asked and name not in asked else name,
            ),
            "Give the same options to resume it (--without leaves out those that its recipe had not then), or another "
            "--output-dir.",
        )


def _asked(settings: PretrainSettings) -> dict[str, Any]:
    """The settings that the options follow from, besides the machine."""
    return {f"--{name}": getattr(settings, name) for name in _ASKED}


def earlier_logs(restore_file: str) -> list[Path]:
    """The logs of the pretrainings that one continues by --restore-file, the first one first; none for a new one."""
    logs: list[Path] = []
    while restore_file not in ("", "checkpoint_last.pt"):  # fairseq's default
        path = Path(restore_file)
        folder = next((each for each in (path, *path.parents[:2]) if (each / RECORD).is_file()), None)
        if folder is None or (log := folder / "train.log") in logs or not log.is_file():
            break
        logs.insert(0, log)
        restore_file = str((_read_record(folder) or {}).get("--restore-file") or "")
    return logs


def _read_record(folder: Path) -> dict[str, Any] | None:
    remedy = "delete it, and the training goes on with the options of this command"
    hints = {"data": str, "--save-dir": str, "cores": int | None}
    return read_json(folder / RECORD, keys=("data", "--save-dir"), remedy=remedy, hints=hints)


def train(plan: Plan, *, log: Path, lock: int) -> None:
    """Train to the end with a bar and our warnings, from the last checkpoint if there is one; the training inherits
    `lock`.
    """
    environment = tracker_variables(log.parent)
    if not plan.machine.gpus:
        environment["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS") or str(min(MAX_THREADS, num_cores()))
    bar = progress_bar("training", total=plan.recipe.updates, unit="update")
    lines = process.lines_of(plan.command, log=log, lock=lock, environment=environment)
    pace = Pace(updates=plan.recipe.updates, hours=plan.recipe.hours) if plan.is_timed else None
    with closing(lines) as output, bar:
        for line in output:
            if warning := _WARNING.search(line):
                bar.write(f"WARNING: {warning[1]}", file=sys.stderr)
            record = parse_line(line)
            if record and "num_updates" in record.values:
                show_on(bar, record)
                if pace is not None and (remark := pace.remark(int(record.values["num_updates"]))):
                    bar.write(remark, file=sys.stderr)


def tracker_variables(folder: Path) -> dict[str, str]:
    """The variables by which a tracker tells the training in a folder from others."""
    return process.tracker_variables(folder.resolve(), user=os.environ)


def command_line(folder: Path, plan: Plan) -> str:
    """The command that trains, with the variables of trackers."""
    return process.variables_shown(tracker_variables(folder), plan.command) + shown(plan.command)


def shown(arguments: Sequence[str]) -> str:
    """A command that can be copied, an option a line."""
    lines: list[str] = []
    for word in arguments:
        quoted = shlex.quote(word)
        if word.startswith("--") or not lines:
            lines.append(quoted)
        else:
            lines[-1] += f" {quoted}"
    return " \\\n  ".join(lines)
