"""`roberta pretrain`: a data-bin or text files -> a trained model, by a recipe; `roberta recipes` lists these."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_plugin.cli.command import command
from roberta_plugin.data.mixture import data_folders
from roberta_plugin.pretraining.recipe import FOLDER, load, names
from roberta_plugin.pretraining.run import (
    SPIN_COUNT,
    Plan,
    PretrainSettings,
    check,
    check_record,
    command_line,
    locked,
    make_plan,
    steps_of_text,
    train,
)
from roberta_plugin.settings import Checked, setting


@command(PretrainSettings, takes_further=True)
def pretrain(settings: PretrainSettings, *, further: Sequence[str]) -> int:
    """Pretrains a RoBERTa by a recipe that suits the machine, the text and the hours: shows what it chose and the
    command of fairseq-train, trains, and reports what the model learned beside baselines. Any further option of
    fairseq-train may follow, and wins. After an interruption, the same command resumes.
    """
    return run(settings, further=further)


def run(settings: PretrainSettings, *, further: Sequence[str] = ()) -> int:
    """Make what is missing, train to the end, and report; the exit code is that of the first step that fails.

    `further` are options of fairseq-train.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)  # read when torch is imported
    from roberta_plugin.cli import main

    folder, data = settings.folder, settings.data[0]
    if settings.is_text:
        data = str(folder / "data-bin")
    elif settings.valid or settings.test or settings.tokenizer or settings.vocab_size:
        raise ValueError(f"--valid, --test, --tokenizer and --vocab-size go with text, and {data} is a data-bin.")
    if settings.dry_run and (settings.is_text and not Path(data, "dict.txt").is_file()):
        say("The text is made into a tokenizer and a data-bin first: what follows does not know its size.")
    if settings.dry_run:
        plan = make_plan(settings, data, further)
        say("\n".join([*plan.described(), "", command_line(folder, plan)]))
        return 0
    with locked(folder) as lock:
        for verb in steps_of_text(settings) if settings.is_text else []:
            say(f"$ roberta {shlex.join(verb)}")
            if code := main(verb):
                return code
        plan = make_plan(settings, data, further)
        check(plan)
        check_record(folder, plan.arguments)
        say("\n".join([*plan.described(), "", f"$ {command_line(folder, plan)}", ""]))
        train(plan, log=folder / "train.log", lock=lock)
        show_results(folder, plan, data)
    return 0


def show_results(folder: Path, plan: Plan, data: str) -> None:
    """Evaluate the model, write the report, and print filled masks, scores and what may come next."""
    import roberta_plugin

    roberta_plugin.register()
    from roberta_plugin.hub import RobertaHub
    from roberta_plugin.pretraining.evaluation import evaluate, fill
    from roberta_plugin.pretraining.report import answer_line, summary, write_report

    data_bin = data_folders(data)[0]
    split = next((name for name in ("test", "valid") if (data_bin / f"{name}.idx").is_file()), None)
    if split is None:
        say(f"{data_bin} has no held-out split: nothing was evaluated. The model is {folder / 'checkpoints'}.")
        return
    hub = RobertaHub.from_pretrained(folder / "checkpoints", checkpoint_file="checkpoint_last.pt", data=data_bin)
    mode: Any = plan.recipe.train.get("sample-break-mode", "none")
    evaluation = {**evaluate(hub, data_bin, split=split, break_mode=mode), "split": split}
    evaluation["answers"] = fill(hub, data_bin / split)
    write_report(folder, evaluation=evaluation, command=plan.command, log=folder / "train.log")
    if evaluation["answers"]:
        say("\nHeld-out sentences, one word masked in each; the five most probable tokens:\n")
    for answer in evaluation["answers"]:
        say(f"  {answer_line(answer)}")
    say(
        f"\n{summary(evaluation)}\nReport, with the curve: {folder / 'report.md'}\n\nNext:\n"
        f"  echo 'A sentence with a <mask>.' | roberta predict {folder / 'checkpoints'}\n"
        f"  roberta finetune custom --train TABLE --model {folder / 'checkpoints'} --output-dir runs/tuned\n"
        f"  roberta export {folder / 'checkpoints'} --to huggingface --output-dir {folder / 'exported'}"
    )


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    print(text, flush=True)


@dataclass(frozen=True, kw_only=True)
class RecipesSettings(Checked):
    """The fields are options of `roberta recipes`."""

    name: str | None = setting(None, "a recipe to show", flag="name", nargs="?", default_text="all, a line each")


@command(RecipesSettings)
def recipes(settings: RecipesSettings) -> int:
    """Lists the recipes of `roberta pretrain --recipe`, or shows one: its options, the reasons for them, and what came
    out. A copy of the file, changed, is a recipe, too.
    """
    if settings.name:
        load(settings.name)
        print((FOLDER / f"{settings.name}.yaml").read_text(encoding="utf-8"), end="")
        return 0
    for recipe in map(load, names()):
        hours = f"{recipe.hours:g} h" if recipe.hours >= 0.5 else f"{60 * recipe.hours:.0f} min"
        run_by = "" if recipe.run_by_us else " (not run by us)"
        print(f"{recipe.name:<14}{hours:>7}  {recipe.summary}{run_by}")
    return 0
