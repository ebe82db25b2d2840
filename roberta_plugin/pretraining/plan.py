"""A request -> the plan of a pretraining: recipe, command of fairseq-train, and notes on both.

request, machine --choose--> recipe --target.py--> where it runs --fit_length--> its length there
  --make_command--> fairseq-train's arguments, parsed --as_given--> the recipe that these describe
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

from roberta_plugin.data.mixture import data_folders
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.launch import process
from roberta_plugin.launch.options_file import replaced_by
from roberta_plugin.launch.recipe import LaunchSettings, complete
from roberta_plugin.launch.resume_policy import SAME, policies
from roberta_plugin.pretraining.choice import (
    Machine,
    as_given,
    choose,
    command,
    fitted,
    most_factor,
    remarks,
    tokens_of_text,
    vocabulary_size,
)
from roberta_plugin.pretraining.ranks import with_training
from roberta_plugin.pretraining.recipe import Recipe, load
from roberta_plugin.pretraining.record import asked_settings
from roberta_plugin.pretraining.request import Request
from roberta_plugin.pretraining.settings import PretrainSettings
from roberta_plugin.pretraining.target import Target, find_machine, find_target, first_machine
from roberta_plugin.pretraining.texts import text_bytes
from roberta_plugin.record import differences, options_of
from roberta_plugin.settings import flag

if TYPE_CHECKING:
    from roberta_plugin.pretraining.start import Start  # imports torch, which plans and help do without

_NO_OPTIONS = ("data", "reading")


@dataclass(frozen=True)
class Plan:
    """The training that a command starts, and what the command says about it."""

    recipe: Recipe  # after applying the user's options
    machine: Machine
    tokens: int
    arguments: list[str]
    parsed: argparse.Namespace
    why: str
    original: Recipe  # as its file has it
    is_changed: bool  # True if the result may differ from the result of `original`
    is_timed: bool  # True if it takes as long here as `recipe` says
    notes: list[str]
    ranks: LaunchSettings | None = None  # the training as a launch, on SLURM or by torchrun
    start: Start | None = None  # the model that it goes on from

    @property
    def on_gpu(self) -> bool:
        """True if it trains on GPUs."""
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

    def estimated(self, *, vocab_size: int = 0) -> str:
        """FLOPs of the training, and on GPUs its hours and memory, as a line; empty for other models.

        `vocab_size` is the number of symbols of a tokenizer that is not made yet.
        """
        from roberta_plugin.launch.estimate import estimate

        gpu, memory = self.machine.gpu_name or self.original.gpu_name, self.machine.gpu_memory_gb
        words = estimate(self.parsed, gpu=gpu, gpu_memory_gb=memory, vocab_size=vocab_size)
        return f"estimate {words}" if words else ""

    def _expected(self) -> str:
        recipe = self.recipe
        source = f"run by us: {recipe.run_by_us}" if recipe.run_by_us else "not run by us"
        of_what = "of the unchanged recipe: " if self.is_changed else ""
        return f"{of_what}{recipe.result or 'no result is known'} ({source}; on {recipe.text})"


def make_plan(request: Request) -> Plan:
    """The recipe for the data and the machine, and the command.

    The architecture is taken from the model to start from, as far as the user names no other.

    Raises:
        ValueError: if fairseq-train would refuse the options.
        FileNotFoundError: if there is no data-bin.
    """
    settings, options = request.settings, options_of(request.further)
    text = count_tokens(request)
    here = find_machine(settings.folder, options, torchrun=request.torchrun)
    is_launched = settings.slurm is not None or request.torchrun > 0
    first = first_machine(settings.folder) if is_launched else None  # by which a training keeps its length
    base = load(settings.recipe) if settings.recipe else choose(first or here, hours=settings.hours, tokens=text.number)
    target = find_target(request, base, here)
    timed_on = first or target.machine
    is_shared = target.ranks is None and "--update-freq" not in options
    recipe = fit_length(base, settings, timed_on, text, is_shared=is_shared)
    training = make_command(request, base, recipe, target, timed_on)
    effective = as_given(recipe, training.parsed)
    notes = remarks(
        effective,
        base,
        target.machine,
        tokens=text.number,
        hours=settings.hours,
        size_is_given=request.start is not None,
    )
    return Plan(
        recipe=effective,
        machine=target.machine,
        tokens=text.number,
        arguments=training.arguments,
        parsed=training.parsed,
        why=_reason(settings, target, text),
        original=base,
        is_changed=effective.tokens() != base.tokens() or _changes_result(training.changes, training.parsed),
        is_timed=target.is_here and request.start is None and not _resizing(options),
        notes=[*notes, *_notes_on_start(request, training), *_notes_on_options(options, effective, recipe)],
        ranks=training.ranks,
        start=request.start,
    )


class TextSize(NamedTuple):
    """Tokens to train on, 0 if not known; a guess before a text is tokenized."""

    number: int
    is_guess: bool = False

    def described(self) -> str:
        """The number in words."""
        return f"{'about ' if self.is_guess else ''}{self.number:,} tokens of text"


def count_tokens(request: Request) -> TextSize:
    """How many tokens there are to train on."""
    folders = data_folders(request.data)
    counts = (MmapTokens(each / "train").num_tokens for each in folders if (each / "train.idx").is_file())
    settings = request.settings
    if (tokens := sum(counts)) or not settings.is_text:
        return TextSize(tokens)
    return TextSize(tokens_of_text(text_bytes(settings.reading.sources(settings.data))), is_guess=True)


def count_symbols(request: Request) -> int:
    """Symbols of the tokenizer that will be made of a text; 0 where there is one, or its size is not known."""
    settings = request.settings
    if request.has_data or settings.tokenizer is not None:
        return 0
    return settings.vocab_size or vocabulary_size(text_bytes(settings.reading.sources(settings.data)))


def fit_length(
    base: Recipe, settings: PretrainSettings, machine: Machine, text: TextSize, *, is_shared: bool
) -> Recipe:
    """The recipe for the hours or updates of the settings; one that was chosen makes no more passes than help."""
    most = math.inf if settings.recipe or settings.updates else most_factor(base, text.number)
    recipe = fitted(base, machine, hours=settings.hours, most=most, is_shared=is_shared)
    return recipe if settings.updates is None else recipe.scaled(settings.updates / recipe.updates)


@dataclass(frozen=True)
class TrainCommand:
    """fairseq-train's arguments, as its own parser reads them."""

    arguments: list[str]
    parsed: argparse.Namespace
    ranks: LaunchSettings | None  # with these arguments
    changes: list[str]  # options that differ from the unchanged recipe's


def make_command(request: Request, base: Recipe, recipe: Recipe, target: Target, timed_on: Machine) -> TrainCommand:
    """The command of a recipe that was made from `base`.

    Raises:
        ValueError: if fairseq-train would refuse the options; names the recipe if they are its own.
    """
    from roberta_plugin.launch.arguments import parse

    settings, start, options = request.settings, request.start, options_of(request.further)
    left, further = recipe.without(settings.without), request.further
    if start is not None:
        left, further = start.fitted(left, further), [*start.words(further), *further]
    arguments = command(left, target.machine, request.data, folder=settings.folder, further=further)
    promised = command(base, target.machine, request.data, folder=settings.folder)
    changes = [each.name for each in differences(options_of(promised), options_of(arguments), named=str)]
    ranks = target.ranks
    if ranks is not None:
        asked = {**asked_settings(settings), "machine": asdict(timed_on)}
        ranks = with_training(ranks, arguments, recipe, options=options, asked=asked)
    our_options = [flag(each) for each in fields(PretrainSettings) if each.name not in _NO_OPTIONS]
    with _naming_the_recipe(base, options):
        arguments = arguments if ranks is None else list(complete(ranks))
        parsed = parse(arguments, besides=our_options)
    if ranks is not None:
        parsed.distributed_world_size = ranks.num_gpus
    return TrainCommand(arguments, parsed, ranks, changes)


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
                f"--lr-scheduler does not support: give --without {' '.join(name[2:] for name in extra)}, or a "
                "fast_roberta."
            ) from error
        raise


def _reason(settings: PretrainSettings, target: Target, text: TextSize) -> str:
    """Why this recipe is trained at this length, in words."""
    reasons = ["named by --recipe"] if settings.recipe else []
    reasons.append(target.described)
    reasons += [f"--hours {settings.hours:g}"] if settings.hours else []
    reasons += [text.described()] if text.number else []
    return "; ".join(reasons)


def _notes_on_start(request: Request, training: TrainCommand) -> list[str]:
    start, further = request.start, request.further
    return [] if start is None else start.check(training.parsed, [*start.words(further), *further])


def _notes_on_options(options: Mapping[str, str], effective: Recipe, planned: Recipe) -> list[str]:
    """Notes on settings that the user's options leave as the recipe planned them."""
    notes = []
    if effective.updates != planned.updates and not options.keys() & {"--lr-scheduler", "--lr-stages"}:
        notes.append(
            f"--max-update leaves the learning rates and the growth of a training of {planned.updates:,} updates: "
            "--hours scales them as well."
        )
    if resized := _resizing(options):
        notes.append(
            f"{', '.join(resized)}: the time of a model of another size is not known, and --hours hold for the "
            "recipe's own size. See the first lines of its log."
        )
    return notes


def _resizing(options: Mapping[str, str]) -> list[str]:
    """The options among these that change the size of the model."""
    return [name for name in options if name.removeprefix("--") in ("arch", *replaced_by(["arch"]))]


def _changes_result(options: Sequence[str], parsed: argparse.Namespace) -> bool:
    """True if other values of these options make the recipe's published result invalid.

    The number of tokens that are read is counted apart, and another seed is as good.
    """
    policy = policies(parsed)
    names = {option.removeprefix("--").replace("-", "_") for option in options} - {"seed"}
    return any(policy.get(name, SAME) == SAME for name in names)


def check(plan: Plan, *, with_data: bool = True, is_to_start: bool = True) -> None:
    """Refuse options and data with which fairseq-train could not begin; `is_to_start`: on this machine."""
    from roberta_plugin.fairseq_workarounds.command_line import check_devices
    from roberta_plugin.launch.arguments import check_data, check_options, to_config

    if with_data:
        check_data(plan.parsed)
    check_options(plan.parsed)
    if is_to_start and plan.ranks is None:
        check_devices(to_config(plan.parsed))
