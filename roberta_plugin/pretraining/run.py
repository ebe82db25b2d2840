"""`roberta pretrain`: text -> tokenizer -> data-bin -> trained model -> results; the same command resumes.

The folder of the output holds what the steps make, each once:

    text/           train.txt and valid.txt, if texts are given without --valid
    tokenizer/      if texts are given without --tokenizer
    data-bin/       if texts are given
    pretrain.json   options of fairseq-train with which the training began
    train.log       output of fairseq-train
    checkpoints/    and tensorboard/
    report.md       results, with loss.png
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from roberta_plugin.data.mixture import data_folders
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.text_inputs import FAIRSEQ_RULES, lines_of, read_blocks
from roberta_plugin.data.text_inputs_files import TextInput, find_inputs
from roberta_plugin.files import atomic_write
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.locks import try_lock
from roberta_plugin.machine import num_cores
from roberta_plugin.pretraining.choice import Machine, choose, command, fitted, remarks, vocabulary_size
from roberta_plugin.pretraining.recipe import Recipe, load
from roberta_plugin.progress import progress_bar
from roberta_plugin.record import differences, options_of, refuse
from roberta_plugin.settings import REQUIRED, Checked, setting
from roberta_plugin.training import process, trackers
from roberta_plugin.training.log import parse_line, show_on

RECORD = "pretrain.json"
MAX_THREADS = 8  # small models cannot use more
# Threads that spin while they wait make a busy machine ten times slower; a short spin costs an idle machine nothing.
SPIN_COUNT = "1000"
_EVERY, _LINES, _MOST_HELD_OUT = 50, 50, 2**21  # documents, lines of one at most, characters
_LOCK_PATIENCE_S = 20  # a training whose parent was killed needs a moment to end
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
    output_dir: Path | None = setting(None, "folder for all files of the run", default_text="runs/ and the data's name")
    valid: Sequence[str] = setting(
        (), "with text files: held-out text", nargs="+", default_text="one document in fifty, held out of the training"
    )
    test: Sequence[str] = setting(
        (), "with text files: text for the scores at the end", nargs="+", default_text="the validation's"
    )
    tokenizer: Path | None = setting(None, "with text files: a tokenizer's folder", default_text="one is trained")
    vocab_size: int | None = setting(
        None,
        "symbols of the tokenizer that is trained",
        smallest=300,
        default_text="by the size of the text",
        excludes=("tokenizer",),
    )
    dry_run: bool = setting(False, "show the recipe and the command of fairseq-train, and train nothing")

    @property
    def is_text(self) -> bool:
        """Whether the data are text files."""
        return len(self.data) > 1 or not all(folder.is_dir() for folder in data_folders(self.data[0]))

    @property
    def folder(self) -> Path:
        """Where the files of the run go."""
        return (self.output_dir or Path("runs") / Path(self.data[0].split(",")[0]).name.split(".")[0]).absolute()


@dataclass(frozen=True)
class Plan:
    """What a command does."""

    recipe: Recipe
    machine: Machine
    tokens: int
    arguments: list[str]
    why: str

    @property
    def command(self) -> list[str]:
        """fairseq-train and its arguments."""
        return [*process.train_program(), *self.arguments]

    def described(self) -> Iterator[str]:
        """The recipe, why it was chosen, its length, what to expect and remarks, a line each."""
        recipe = self.recipe
        yield f"recipe   {recipe.name}: {recipe.summary}"
        yield f"because  {self.why}"
        passes = recipe.tokens() / max(1, self.tokens)
        yield (
            f"length   {recipe.updates:,} updates of {recipe.tokens() / recipe.updates:,.0f} tokens"
            + (f", {passes:.3g} passes over the text" if self.tokens else "")
            + f"; about {recipe.hours:.2g} hours on {recipe.hardware}"
        )
        source = f"run by us: {recipe.run_by_us}" if recipe.run_by_us else "not run by us"
        yield f"expect   {recipe.result or 'no result is known'} ({source}; on {recipe.text})"
        yield from (f"note     {remark}" for remark in remarks(recipe, self.machine, tokens=self.tokens))


def make_plan(settings: PretrainSettings, data: str, further: Sequence[str]) -> Plan:
    """The recipe for the data, and the command.

    Raises:
        ValueError: if fairseq-train would refuse the options.
        FileNotFoundError: if there is no data-bin.
    """
    machine = Machine.here(cpu="--cpu" in further)
    recipe = load(settings.recipe) if settings.recipe else choose(machine, hours=settings.hours)
    if recipe.device == "gpu" and not machine.gpus and not settings.dry_run:
        raise ValueError(
            f"Recipe {recipe.name} needs a GPU, and there is none: choose another by --recipe, or start it on a "
            "cluster by `roberta launch`; --dry-run shows its command."
        )
    why = f"named by --recipe; {machine.described()}" if settings.recipe else f"{machine.described()}"
    if settings.hours:
        why += f"; --hours {settings.hours:g}"
    recipe = fitted(recipe, machine, hours=settings.hours)
    tokens = sum(
        MmapTokens(folder / "train").num_tokens for folder in data_folders(data) if (folder / "train.idx").is_file()
    )
    why += f"; {tokens:,} tokens of text" if tokens else ""
    return Plan(recipe, machine, tokens, command(recipe, machine, data, folder=settings.folder, further=further), why)


def check(plan: Plan) -> None:
    """Refuse options and data with which fairseq-train could not begin."""
    from roberta_plugin.training.arguments import check_data, check_options, parse

    parsed = parse(plan.arguments)
    check_data(parsed)
    check_options(parsed)


def check_record(folder: Path, arguments: Sequence[str]) -> None:
    """Refuse other options than the training in the folder began with; keep them, if none has begun."""
    path, now = folder / RECORD, options_of(arguments)
    before = read_json(
        path, keys=("data",), remedy="delete it, and the training goes on with the options of this command"
    )
    if before is not None:
        refuse(
            f"{folder} holds a training that began with other options",
            differences(before, now, free=lambda name: name in ("--user-dir", "--log-interval")),
            "Give the same options to resume it, or another --output-dir.",
        )
    else:
        write_json(path, now)


def steps_of_text(settings: PretrainSettings) -> list[list[str]]:
    """The verbs that make a tokenizer and a data-bin of text files; what is there already, they leave."""
    folder, train, valid = settings.folder, list(settings.data), list(settings.valid)
    if not valid:
        train, valid = ([str(folder / "text" / f"{split}.txt")] for split in ("train", "valid"))
        if not Path(valid[0]).is_file():
            hold_out(settings.data, Path(train[0]), Path(valid[0]))
    tokenizer = settings.tokenizer or folder / "tokenizer"
    verbs = []
    if settings.tokenizer is None and not (tokenizer / "dict.txt").is_file():
        size = settings.vocab_size or vocabulary_size(text_bytes(find_inputs(train)))
        verbs.append(
            ["tokenizer", "train", "--input", *train, "--vocab-size", str(size), "--output-dir", str(tokenizer)]
        )
    verbs.append(["binarize", "--tokenizer", str(tokenizer), "--train", *train, "--valid", *valid])
    verbs[-1] += ["--test", *settings.test] if settings.test else []
    verbs[-1] += ["--output-dir", str(folder / "data-bin")]
    return verbs


def text_bytes(sources: Iterable[TextInput]) -> int:
    """About the bytes of the text: a compressed file holds some three times its own; of a pipe nothing is known."""
    files = (source for source in sources if not source.is_stream)
    return sum(Path(source.path).stat().st_size * (3 if source.suffix else 1) for source in files)


def hold_out(inputs: Sequence[str], train: Path, valid: Path) -> None:
    """Copy text into two files: every 50th document into `valid`, at most 2 MB, the others into `train`.

    Raises:
        ValueError: if the text is too large to copy, or too short.
    """
    sources = find_inputs(inputs)
    if text_bytes(sources) > _LARGEST_COPY:
        raise ValueError("--valid is missing: so much text is not copied to hold a part out. Give a held-out text.")
    train.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with atomic_write(train, "w") as of_train, atomic_write(valid, "w") as of_valid:
        for number, document in enumerate(_documents(sources), start=1):
            text = "\n".join(document) + "\n\n"
            is_held_out = number % _EVERY == 0 and written < _MOST_HELD_OUT
            written += len(text) if is_held_out else 0
            (of_valid if is_held_out else of_train).write(text)
        if not written:
            raise ValueError(
                f"{', '.join(map(str, inputs))}: there are less than {_EVERY} documents (a blank line ends one), too "
                "few to hold one out. Give a held-out text by --valid."
            )


def _documents(sources: Iterable[TextInput]) -> Iterator[list[str]]:
    """Lines between blank lines; a longer document in parts of `_LINES`."""
    for source in sources:
        document: list[str] = []
        for block in read_blocks(source):
            for line in lines_of(block, source=source, first_line=1, rules=FAIRSEQ_RULES)[0]:
                if line:
                    document.append(line)
                if document and (not line or len(document) == _LINES):
                    yield document
                    document = []
        if document:
            yield document


def train(plan: Plan, *, log: Path, lock: int) -> None:
    """Train to the end with a bar, from the last checkpoint if there is one; `lock` is inherited by the training."""
    environment = tracker_variables(log.parent)
    if not plan.machine.gpus:
        environment["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS") or str(min(MAX_THREADS, num_cores()))
        environment["GOMP_SPINCOUNT"] = os.environ.get("GOMP_SPINCOUNT", SPIN_COUNT)
    bar = progress_bar("training", total=int(options_of(plan.arguments)["--max-update"]), unit="update")
    lines = process.lines_of(plan.command, log=log, lock=lock, environment=environment)
    with closing(lines) as output, bar:
        for line in output:
            record = parse_line(line)
            if record and "num_updates" in record.values:
                show_on(bar, record)


def tracker_variables(folder: Path) -> dict[str, str]:
    """What tells the training in a folder apart at a tracker."""
    return trackers.tracker_variables(folder.resolve(), user=os.environ)


def command_line(folder: Path, plan: Plan) -> str:
    """The command that trains, with the variables of trackers."""
    return trackers.shown(tracker_variables(folder), plan.command) + shown(plan.command)


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


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Hold the folder for this process and the training it starts; the descriptor of the lock."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as file:
        deadline = time.monotonic() + _LOCK_PATIENCE_S
        while not try_lock(file.fileno()):
            if time.monotonic() > deadline:
                raise ValueError(f"Another process trains in {folder}: wait for it, or choose another --output-dir.")
            time.sleep(0.2)
        yield file.fileno()
