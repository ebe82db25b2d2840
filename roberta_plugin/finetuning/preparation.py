"""Official files -> a prepared folder, and the check that a folder was prepared with the settings of a command.

Example:
    from roberta_plugin.finetuning.options import SquadOptions
    from roberta_plugin.finetuning.preparation import PrepareSettings, prepare

    prepared = prepare(
        PrepareSettings(
            task="squad2",
            raw=Path("squad"),
            tokenizer=Path("gpt2_bpe"),
            output_dir=Path("data-bin/squad2"),
            options=SquadOptions(doc_stride=64),
        )
    )
    print(prepared.splits, len(prepared.split("train")))
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.files import remove_leftovers, replace_folder
from roberta_plugin.finetuning.benchmarks import TASKS, benchmark_of, checked_options, option_fields, options_for
from roberta_plugin.finetuning.benchmarks.base import MAX_LENGTH, SMALLEST_LENGTH, describe
from roberta_plugin.finetuning.options import CustomOptions, TaskOptions
from roberta_plugin.finetuning.prepared import NAME, Prepared
from roberta_plugin.record import differences, option_name, refuse
from roberta_plugin.settings import REQUIRED, Checked, setting


@dataclass(frozen=True, kw_only=True)
class DataSettings(Checked):
    """Which task's data, made from what; `roberta prepare` and `roberta finetune` have these options."""

    task: str = setting(REQUIRED, f"one of {', '.join(TASKS)}", flag="task", metavar="TASK", choices=TASKS)
    raw: Path | None = setting(None, "folder with the official files of the task (custom: the current folder)")
    tokenizer: Path | None = setting(
        None, "folder with the tokenizer's files and dict.txt, or a model's name (org/name)", gives="tokenizer"
    )
    max_length: int | None = setting(
        None,
        "most tokens of a sequence; longer texts are cut, and counted",
        default_text=f"{MAX_LENGTH}; in `roberta finetune` the model's length, if that is less",
        smallest=SMALLEST_LENGTH,
    )
    options: TaskOptions | None = None
    """Options of the task (`options.py`); None: the paper's values. They are complete once the settings are made."""

    def __post_init__(self) -> None:
        """Complete the options; tables of your own are looked for in the current folder.

        Raises:
            ValueError: if the options are those of another task, or a value is too small.
        """
        options = checked_options(self.task, self.options)
        object.__setattr__(self, "options", options)
        if self.raw is None and isinstance(options, CustomOptions) and options.files:
            object.__setattr__(self, "raw", Path())
        super().__post_init__()

    @property
    def task_options(self) -> TaskOptions:
        """The options of the task, complete."""
        assert self.options is not None
        return self.options


@dataclass(frozen=True, kw_only=True)
class PrepareSettings(DataSettings):
    """What `prepare` does; the tokenizer must be that of the pretrained model."""

    dictionary: Path | None = None
    """The dict.txt; None: that of `tokenizer`."""
    output_dir: Path = setting(REQUIRED, "folder to write to")
    overwrite: bool = setting(False, "replace a prepared folder that exists already, once the new one is complete")


def prepare(settings: PrepareSettings) -> Prepared:
    """Write a prepared folder, and open it.

    Raises:
        FileExistsError: if the folder exists and is not to be overwritten.
    """
    raw, tokenizer, output_dir = settings.raw, settings.tokenizer, settings.output_dir
    if raw is None:
        own = "--train is missing: give your table." if settings.task == "custom" else ""
        raise ValueError(own or "--raw is missing: give the folder with the official files.")
    if tokenizer is None:
        raise ValueError("--tokenizer is missing: give the tokenizer's folder.")
    if not raw.exists():
        raise FileNotFoundError(
            f"--raw {raw} does not exist: give the folder with the official files of {settings.task}."
        )
    if output_dir.resolve() == Path.cwd():
        raise FileExistsError(
            f"--output-dir {output_dir} is the current folder, which cannot be replaced: name another."
        )
    is_replaced = settings.overwrite and (output_dir / NAME).is_file()
    folder = output_dir.with_name(f".{output_dir.name}.new") if is_replaced else output_dir
    if is_replaced:
        shutil.rmtree(folder, ignore_errors=True)
    benchmark_of(settings.task).prepare(
        raw,
        folder,
        tokenizer=load_tokenizer(tokenizer),
        vocabulary=(
            Vocabulary.load(settings.dictionary) if settings.dictionary else Vocabulary.of_tokenizer(tokenizer)
        ),
        max_length=MAX_LENGTH if settings.max_length is None else settings.max_length,
        options=settings.task_options,
    )
    if is_replaced:
        replace_folder(output_dir, by=folder)
    remove_leftovers(output_dir)
    shutil.rmtree(output_dir.with_name(f".{output_dir.name}.new"), ignore_errors=True)
    return Prepared.open(output_dir)


def check_same(prepared: Prepared, wanted: DataSettings) -> None:
    """Refuse a prepared folder for another task, or made from other files, with another tokenizer or other settings.

    With `raw`, the settings describe a whole preparation, so their defaults are compared too; without it, only what is
    given.
    """
    if prepared.task != wanted.task:
        raise ValueError(
            f"{prepared.folder} is prepared for {prepared.task}, not for {wanted.task}: give another --data."
        )
    before, now = dict(prepared.settings), dict(_settings(prepared, wanted))
    if wanted.tokenizer is not None:
        before["tokenizer"] = prepared.content.get("tokenizer") or {}
        now["tokenizer"] = load_tokenizer(wanted.tokenizer).description()
        before["dictionary"] = prepared.vocabulary.sha256
        now["dictionary"] = Vocabulary.of_tokenizer(wanted.tokenizer).sha256
    if wanted.raw is not None and prepared.content.get("source"):
        benchmark = benchmark_of(prepared.task)
        given = describe(benchmark.source_files(benchmark.files(wanted.raw, wanted.task_options)))
        before["raw"], now["raw"] = (
            f"{source['files']} files with {source['bytes']:,} bytes (SHA-256 {source.get('sha256')})"
            for source in (prepared.content["source"], given)
        )
    found = differences(
        before,
        now,
        free=lambda name: name not in now,
        named=lambda name: "dict.txt" if name == "dictionary" else option_name(name),
    )
    refuse(
        f"{prepared.folder} was prepared with other settings than this command gives",
        found,
        "Leave these options out to use the folder as it is. To prepare it again, delete it (rm -r "
        f"{prepared.folder}) and everything trained on it, or give another --output-dir.",
    )


def _settings(prepared: Prepared, wanted: DataSettings) -> Iterator[tuple[str, Any]]:
    """The settings that a prepared folder must have."""
    has, options = prepared.settings, wanted.task_options
    given = {"max_length", *options.given("prepare")}
    recorded = {item.name: has.get(item.name) for item in option_fields(prepared.task, stages=("prepare",))}
    if wanted.raw is None:  # what is not given is as in the folder
        options = options_for(prepared.task, {**recorded, **options.given("prepare")})
    length = has["max_length"] if wanted.max_length is None else wanted.max_length
    for name, value in benchmark_of(prepared.task).settings(max_length=length, options=options).items():
        if name not in has and name not in recorded:
            continue  # no option gives it, so earlier versions did not record it, and such a folder is read without it
        if wanted.raw is not None or name in given:
            yield name, value
