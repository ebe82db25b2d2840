"""`roberta pretrain`: a data-bin or text files -> a trained model, by a recipe; `roberta recipes` lists these."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from roberta_plugin.cli.command import command
from roberta_plugin.data.mixture import data_folders
from roberta_plugin.data.text_inputs import InputSettings, LineRules
from roberta_plugin.data.text_inputs_files import ENDINGS
from roberta_plugin.pretraining.recipe import FOLDER, load, package_recipes
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


@command(PretrainSettings, LineRules, InputSettings, skip=("keep_spaces", "split_sentences"), takes_further=True)
def pretrain(settings: PretrainSettings, rules: LineRules, reading: InputSettings, *, further: Sequence[str]) -> int:
    """Pretrains a RoBERTa by a recipe that suits the machine, the text and the hours: shows what it chose and the
    command of fairseq-train, trains, and reports what the model learned beside baselines. Any further option of
    fairseq-train may follow, and wins. After an interruption, the same command resumes.
    """
    return run(replace(settings, reading=replace(reading, rules=rules)), further=further)


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
    check_words(settings, further)
    is_made = not settings.is_text or Path(data, "dict.txt").is_file()
    if settings.dry_run or not is_made:  # what is refused is refused before hours of tokenizing
        plan = make_plan(settings, data, further)
        check(plan, with_data=is_made)
    if settings.dry_run:
        if not is_made:
            say("The text is made into a tokenizer and a data-bin first: what follows does not know its size.")
        say("\n".join([*plan.described(), "", command_line(folder, plan)]))
        return 0
    with locked(folder) as lock:
        for verb in steps_of_text(settings) if settings.is_text else []:
            say(f"$ roberta {shlex.join(verb)}")
            if code := main(verb):
                return code
        plan = make_plan(settings, data, further)
        check(plan)
        check_record(folder, plan.arguments, cores=plan.machine.cores)
        say("\n".join([*plan.described(), "", f"$ {command_line(folder, plan)}", ""]))
        train(plan, log=folder / "train.log", lock=lock)
        show_results(folder, plan, data)
    return 0


def check_words(settings: PretrainSettings, further: Sequence[str]) -> None:
    """Refuse text that is not there, and folders that are no data-bin, before anything is written."""
    try:
        if settings.is_text:
            settings.reading.sources(settings.data)
    except FileNotFoundError as error:
        said = [str(error)]
        if len(settings.data) == 1 and not any(map(settings.data[0].endswith, ENDINGS)):
            said.append(
                "Nor is there a data-bin of that name, a folder with dict.txt and train.bin: `roberta binarize` makes "
                "one of text, and so does `roberta pretrain TEXT`."
            )
        said += ["Options of fairseq-train come after the data."] if further else []
        raise FileNotFoundError(" ".join(said)) from None
    folders = [] if settings.is_text else data_folders(settings.data[0])
    for folder in (folder for folder in folders if not (folder / "dict.txt").is_file()):
        if (inner := folder / "data-bin").is_dir():
            raise FileNotFoundError(f"{folder} is no data-bin, but a folder with one: give {inner}.")
        raise FileNotFoundError(
            f"{folder} holds no dict.txt, so it is no data-bin: make one by `roberta binarize`, or name text files, as "
            f"'{folder}/*.txt'."
        )


def show_results(folder: Path, plan: Plan, data: str) -> None:
    """Evaluate the model, write the report, and print filled masks, scores and what may come next."""
    import roberta_plugin

    roberta_plugin.register()
    from roberta_plugin.hub import RobertaHub
    from roberta_plugin.pretraining.evaluation import evaluate, fill, load_trained
    from roberta_plugin.pretraining.report import answer_line, summary, write_report
    from roberta_plugin.tasks.masked_lm_options import break_mode

    model = Path(plan.parsed.save_dir)
    found = [
        (each, split) for each in data_folders(data) for split in ("test", "valid") if (each / f"{split}.idx").is_file()
    ]
    if not found or not (model / "checkpoint_last.pt").is_file():
        missing = f"{model} has no checkpoint_last.pt" if found else f"{data} has no held-out split"
        say(f"{missing}: nothing was evaluated. The model is in {model}.")
        return
    data_bin, split = found[0]
    say(f"Evaluation on {data_bin / split}")
    network, vocabulary = load_trained(model / "checkpoint_last.pt", data_bin, device="cuda" if plan.on_gpu else "cpu")
    parsed: Any = plan.parsed
    mode: Any = break_mode(parsed) if hasattr(parsed, "input_format") else str(parsed.sample_break_mode)
    length = int(parsed.tokens_per_sample)  # the model may have positions that it was not trained on
    evaluation = evaluate(network, vocabulary, data_bin, split=split, break_mode=mode, length=length)
    evaluation |= {"split": split, "answers": []}
    try:
        hub = RobertaHub.from_pretrained(model, checkpoint_file="checkpoint_last.pt", data=data_bin)
        evaluation["answers"] = fill(hub, data_bin / split)
    except FileNotFoundError:  # scores need no tokenizer
        say(f"{data_bin} has no tokenizer beside dict.txt, as one by `roberta binarize` has: no masks are filled.")
    write_report(folder, evaluation=evaluation, command=plan.command, log=folder / "train.log")
    if evaluation["answers"]:
        say("\nHeld-out sentences, one word masked in each; the five most probable tokens:\n")
    for answer in evaluation["answers"]:
        say(f"  {answer_line(answer)}")
    quoted = shlex.quote(str(model))
    say(
        f"\n{summary(evaluation)}\nReport, with the curve: {folder / 'report.md'}\n\nNext:\n"
        f"  roberta fill-mask {quoted} 'A sentence with a <mask>.'\n"
        f"  roberta finetune custom --train TABLE --model {quoted} --output-dir runs/tuned\n"
        f"  roberta export {quoted} --to huggingface --output-dir {shlex.quote(str(folder / 'exported'))}"
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
    for recipe in package_recipes():
        run_by = "" if recipe.run_by_us else " (not run by us)"
        print(f"{recipe.name:<14}{recipe.time:>7}  {recipe.summary}{run_by}")
    return 0
