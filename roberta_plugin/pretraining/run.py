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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from glob import has_magic
from pathlib import Path
from typing import Any

from roberta_plugin.data.mixture import data_folders, whole_paths
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.text_inputs import InputSettings, LineRules, count_lines, lines_of, read_blocks
from roberta_plugin.data.text_inputs_files import STANDARD_INPUT, TextInput, find_inputs
from roberta_plugin.data.text_inputs_remote import is_url
from roberta_plugin.files import atomic_write
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.launch import process
from roberta_plugin.launch.log import parse_line, show_on
from roberta_plugin.launch.options_file import replaced_by
from roberta_plugin.launch.recipe import FREE, LaunchSettings, complete
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
    vocabulary_size,
)
from roberta_plugin.pretraining.ranks import slurm_ranks, with_training
from roberta_plugin.pretraining.recipe import Recipe, load
from roberta_plugin.progress import progress_bar
from roberta_plugin.record import differences, moved, options_of, refuse
from roberta_plugin.settings import REQUIRED, Checked, flag, setting

logger = logging.getLogger(__name__)

RECORD = "pretrain.json"
TEXT_RECORD = "text.json"
_EVERY, _LINES, _MOST_HELD_OUT = 50, 50, 2**21  # documents, lines of one at most, characters
_FREE = ("cores", "--user-dir", "--log-interval", "--save-dir", "--tensorboard-logdir")  # the folder may have moved
_WARNING = re.compile(r" \| WARNING \| roberta_plugin\S* \| (.*)")
_ASKED = ("recipe", "hours", "updates")
_NO_OPTIONS = ("data", "reading")
_LARGEST_COPY = 2**32  # bytes of text of which a part is held out


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(Checked):
    """The fields are options of `roberta pretrain`."""

    data: Sequence[str] = setting(
        REQUIRED,
        "folder made by `roberta binarize` or fairseq-preprocess (or several, as A,B); or text files, of which a "
        "tokenizer and a data-bin are made first",
        flag="data",
        nargs="+",
        metavar="DATA",
    )
    recipe: str | None = setting(
        None,
        "name of a recipe (`roberta recipes` lists them), or a YAML file",
        default_text="chosen by machine and hours",
    )
    hours: float | None = setting(
        None,
        "how long the training may take: the recipe's updates are scaled to it",
        above=0,
        default_text="the recipe's",
    )
    updates: int | None = setting(
        None,
        "how long the training is, in updates instead of --hours",
        smallest=20,
        excludes=("hours",),
        default_text="the recipe's",
    )
    without: Sequence[str] = setting(
        (),
        "options of the recipe to leave out, as qk-norm position-encoding",
        nargs="+",
        action="extend",
        metavar="OPTION",
    )
    output_dir: Path | None = setting(None, "folder for all files of the run", default_text="runs/ and the data's name")
    valid: Sequence[str] = setting(
        (),
        "with text files: held-out text",
        nargs="+",
        action="extend",
        default_text="one document in fifty, held out of the training",
    )
    test: Sequence[str] = setting(
        (),
        "with text files: text for the scores at the end",
        nargs="+",
        action="extend",
        default_text="the validation's",
    )
    tokenizer: Path | None = setting(
        None, "with text files: a tokenizer's folder", default_text="one is trained", gives="tokenizer"
    )
    vocab_size: int | None = setting(
        None,
        "symbols of the tokenizer that is trained",
        smallest=300,
        default_text="by the size of the text",
        excludes=("tokenizer",),
    )
    slurm: Mapping[str, str] | None = setting(
        None,
        "submit the training as a job of SLURM: nodes=4 partition=gpu time=1-00:00:00, any option of `roberta launch`. "
        "The same command resumes it, and shows the results at its end",
        nargs="*",
        metavar="NAME=VALUE",
        goes_with={"recipe": ()},
    )
    dry_run: bool = setting(False, "show the recipe and the command of fairseq-train, and train nothing")
    reading: InputSettings = InputSettings()  # how the text is read

    @property
    def is_text(self) -> bool:
        """Whether the data are text: files, patterns, URLs, pipes, and data sets that the library datasets saved."""
        first = self.data[0]
        if len(self.data) > 1 or first == STANDARD_INPUT or is_url(first) or has_magic(first):
            return True
        path = Path(first)
        if path.exists():
            return not path.is_dir() or any((path / name).is_file() for name in ("state.json", "dataset_dict.json"))
        return not all(folder.is_dir() for folder in data_folders(first))

    @property
    def folder(self) -> Path:
        """Where the files of the run go."""
        if self.output_dir is not None:
            return self.output_dir.absolute()
        first = self.data[0] if Path(self.data[0]).exists() else re.split(r"[,@]|:(?!//)", self.data[0])[0]
        names = [part.split(".")[0] for part in Path(first).absolute().parts]
        plain = (name for name in reversed(names) if name and not has_magic(name) and name not in ("-", "/"))
        return (Path("runs") / re.sub(r"[,:@\s]+", "-", next(plain, "text"))).absolute()


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
        passes = recipe.tokens() / self.tokens if self.tokens else 0
        unchanged = "unchanged, " if self.is_changed else ""
        theirs = f"{unchanged}the recipe takes {self.original.time} on {recipe.hardware}"
        yield (
            f"length   {recipe.updates:,} updates of {recipe.tokens() / recipe.updates:,.0f} tokens"
            + (f", {passes:,.{0 if passes >= 100 else 1}f} passes over the text" if passes else "")
            + (f"; about {recipe.time} here ({theirs})" if self.is_timed else f"; {theirs}")
        )
        source = f"run by us: {recipe.run_by_us}" if recipe.run_by_us else "not run by us"
        of_what = "of the unchanged recipe: " if self.is_changed else ""
        yield f"expect   {of_what}{recipe.result or 'no result is known'} ({source}; on {recipe.text})"
        yield from (f"note     {note}" for note in self.notes)


def make_plan(settings: PretrainSettings, data: str, further: Sequence[str], *, torchrun: int = 0) -> Plan:
    """The recipe for the data, and the command; `torchrun` is the number of ranks that it has started.

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
    arguments = command(left, machine, data, folder=settings.folder, further=further)
    promised = command(original, machine, data, folder=settings.folder)
    is_changed = bool(differences(options_of(promised), options_of(arguments), free=_leaves_result))
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
    notes = remarks(of_command, original, machine, tokens=tokens, hours=hours)
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
    is_changed = is_changed or of_command.tokens() != original.tokens()
    return Plan(of_command, machine, tokens, arguments, parsed, why, original, is_changed, is_timed, notes, ranks)


def _leaves_result(option: str) -> bool:
    """Whether a result is still that of the recipe with another value; how many tokens are read is counted."""
    return option == "--seed" or option.removeprefix("--").replace("-", "_").startswith(FREE)


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
            f"{folder / RUN}: 'machine' is {value!r:.60}, which describes no machine: delete it from 'asked', and the "
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


def check_texts(settings: PretrainSettings) -> None:
    """Refuse text that is empty, and held-out text that is trained on; of a pipe nothing is known."""
    reading = settings.reading
    trained = {os.path.realpath(source.path) for source in reading.sources(settings.data) if not source.is_stream}
    for option, patterns in (("DATA", settings.data), ("--valid", settings.valid), ("--test", settings.test)):
        sources = reading.sources(patterns) if patterns else []
        if sources and not any(file.is_stream for file in sources) and not any(_documents(sources, reading.rules)):
            raise ValueError(f"{', '.join(patterns)}: there is no text, only blank lines or nothing.")
        for source in sources:
            if option != "DATA" and os.path.realpath(source.path) in trained:
                raise ValueError(
                    f"{source.name} is given as DATA and by {option}: scores on text of the training say nothing. "
                    "Leave it out of one of them; without --valid, a part of DATA is held out."
                )


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
    if before is None:
        write_json(folder / RECORD, {**now, **asked, "cores": cores})
        return
    asked = {name: value for name, value in asked.items() if name in before}  # which older records lack
    if not os.path.isabs(before["data"]):  # an older record of a mixture
        before["data"] = whole_paths(before["data"])
    checkpoints = Path(os.path.abspath(now["--save-dir"]))  # beside which a data-bin may have moved with the folder
    save_dir = os.path.abspath(before["--save-dir"])
    before["data"] = moved(before["data"], before=save_dir, now=checkpoints, among=[now["data"]])
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


def _read_record(folder: Path) -> dict[str, Any] | None:
    remedy = "delete it, and the training goes on with the options of this command"
    hints = {"data": str, "--save-dir": str, "cores": int | None}
    return read_json(folder / RECORD, keys=("data", "--save-dir"), remedy=remedy, hints=hints)


def steps_of_text(settings: PretrainSettings) -> list[list[str]]:
    """The verbs that make a tokenizer and a data-bin of text; they leave what is there already.

    Text without --valid is copied, a part of it into valid.txt. So is a pipe, which can be read only once.
    """
    folder, reading = settings.folder, settings.reading
    sources, train, valid = reading.sources(settings.data), list(settings.data), list(settings.valid)
    check_same_text(settings, sources)
    options = _options_of(reading)
    if len(sources) > 1 and valid:
        options["binarize"] += ["--blank-line-after-files"]
    if not valid or any(source.is_stream for source in sources):
        copy, held_out = (folder / "text" / f"{split}.txt" for split in ("train", "valid"))
        if not copy.is_file():  # the last that is written
            copy_text(sources, copy, None if valid else held_out, rules=reading.rules)
        elif any(source.is_stream for source in sources):
            logger.warning(f"The pipe is not read again: the text is {copy}, which the first start read from it.")
        options = options if valid else {"tokenizer": ["--format", "text"], "binarize": ["--format", "text"]}
        train, valid = [str(copy)], valid or [str(held_out)]
    tokenizer = settings.tokenizer or folder / "tokenizer"
    verbs = []
    if settings.tokenizer is None and not (tokenizer / "dict.txt").is_file():
        size = settings.vocab_size or vocabulary_size(text_bytes(find_inputs(train)))
        verbs.append(["tokenizer", "train", "--input", *train, "--vocab-size", str(size), *options["tokenizer"]])
        verbs[-1] += ["--output-dir", str(tokenizer)]
    verbs.append(["binarize", "--tokenizer", str(tokenizer), "--train", *train, "--valid", *valid])
    verbs[-1] += ["--test", *settings.test] if settings.test else []
    verbs[-1] += [*options["binarize"], "--output-dir", str(folder / "data-bin")]
    return verbs


def _options_of(reading: InputSettings) -> dict[str, list[str]]:
    """How text is read, as options of the verbs `tokenizer` and `binarize`."""
    defaults = _reading(InputSettings())
    words = [word for name, value in _reading(reading).items() if value != defaults[name] for word in (name, value)]
    words += ["--skip-bad-lines"] if reading.rules.skip_bad_lines else []
    return {"tokenizer": words, "binarize": list(words)}


def _reading(reading: InputSettings) -> dict[str, str]:
    """The options with a value that say how text is read."""
    return {
        "--text-column": reading.rules.text_column,
        "--format": reading.text_format,
        "--delimiter": reading.delimiter,
    }


def check_same_text(settings: PretrainSettings, sources: Sequence[TextInput]) -> None:
    """Refuse other text than the tokenizer and the copies in the folder were made from; keep it, if none is there."""

    def described(files: Iterable[TextInput]) -> str:
        return ", ".join(
            "a pipe" if file.is_stream else f"{file.identity()[0]} of {file.size:,} bytes" for file in files
        )

    folder, reading = settings.folder, settings.reading
    now: dict[str, Any] = {
        "DATA": described(sources),
        "--valid": described(reading.sources(settings.valid)) if settings.valid else None,
        "--tokenizer": str(settings.tokenizer.absolute()) if settings.tokenizer else None,
        "--vocab-size": settings.vocab_size,
        **_reading(reading),
        "--skip-bad-lines": reading.rules.skip_bad_lines or None,
        "--output-dir": str(folder),
    }
    before = read_json(folder / TEXT_RECORD, keys=("DATA",), remedy="delete it, and the text is taken to be the same")
    if before is not None and any((folder / name).is_file() for name in ("text/train.txt", "tokenizer/dict.txt")):
        for name in ("DATA", "--valid", "--tokenizer"):  # may have moved with the folder; older records do not say it
            if before.get(name) and now[name] and before.get("--output-dir"):
                among, root = str(now[name]).split(", "), before["--output-dir"]
                parts = before[name].split(", ")
                before[name] = ", ".join(moved(part, before=root, now=folder, among=among) for part in parts)
        refuse(
            f"{folder} holds what was made from other text",
            differences(before, now, free=lambda name: name == "--output-dir", named=str),
            "Give the same to go on, or another --output-dir.",
        )
    else:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / TEXT_RECORD, now)


def text_bytes(sources: Iterable[TextInput]) -> int:
    """About the bytes of the text: a compressed file holds some three times its own; of a pipe nothing is known."""
    return sum(source.size * (3 if source.suffix or source.is_columnar else 1) for source in sources)


def copy_text(sources: Sequence[TextInput], train: Path, valid: Path | None, *, rules: LineRules) -> None:
    """Copy text into `train`; with `valid`, every 50th document goes there instead, up to 2 MB.

    Raises:
        ValueError: if the text is too large to copy, or too short to hold a document out.
    """
    names = ", ".join(dict.fromkeys(source.name for source in sources))
    if text_bytes(sources) > _LARGEST_COPY:
        raise ValueError("--valid is missing: so much text is not copied to hold a part out. Give a held-out text.")
    train.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with atomic_write(train, "w") as of_train, atomic_write(valid, "w") if valid else nullcontext() as of_valid:
        number = 0
        for number, document in enumerate(_documents(sources, rules), start=1):
            text = "\n".join(document) + "\n\n"
            if of_valid is not None and number % _EVERY == 0 and written < _MOST_HELD_OUT:
                written += of_valid.write(text)
            else:
                of_train.write(text)
        if valid and not written:
            raise ValueError(
                f"{names}: there is no text."
                if not number
                else f"{names}: there are fewer than {_EVERY} documents (a blank line ends one, and so do "
                f"{_LINES} lines), too few to hold one out. Give a held-out text by --valid."
            )


def _documents(sources: Iterable[TextInput], rules: LineRules) -> Iterator[list[str]]:
    """Lines between blank lines; a longer document in parts of `_LINES`."""
    for source in sources:
        document: list[str] = []
        first_line = 1
        for block in read_blocks(source):
            lines = lines_of(block, source=source, first_line=first_line, rules=rules)[0]
            first_line += count_lines(block, source)
            for line in lines:
                if line:
                    document.append(line)
                if document and (not line or len(document) == _LINES):
                    yield document
                    document = []
        if document:
            yield document


def train(plan: Plan, *, log: Path, lock: int) -> None:
    """Train to the end with a bar and our warnings, from the last checkpoint if there is one; the training inherits
    `lock`.
    """
    environment = tracker_variables(log.parent)
    if not plan.machine.gpus:
        environment["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS") or str(min(MAX_THREADS, num_cores()))
    bar = progress_bar("training", total=plan.recipe.updates, unit="update")
    lines = process.lines_of(plan.command, log=log, lock=lock, environment=environment)
    with closing(lines) as output, bar:
        for line in output:
            if warning := _WARNING.search(line):
                bar.write(f"WARNING: {warning[1]}", file=sys.stderr)
            record = parse_line(line)
            if record and "num_updates" in record.values:
                show_on(bar, record)


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
