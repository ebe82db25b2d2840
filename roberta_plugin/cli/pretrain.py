"""`roberta pretrain`: a data-bin or text files -> a trained model, by a recipe; `roberta recipes` lists these, and
`roberta demo` trains one on the docstrings of this Python.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_plugin.cli.command import RESUMES, command
from roberta_plugin.data.mixture import data_folders
from roberta_plugin.data.text_inputs import InputSettings, LineRules
from roberta_plugin.data.text_inputs_remote import without_secrets
from roberta_plugin.launch.options_file import recipe_path
from roberta_plugin.launch.recipe_checks import check_changes
from roberta_plugin.locks import only_process
from roberta_plugin.pretraining.plan import Plan, check, count_symbols, make_plan
from roberta_plugin.pretraining.ranks import check_cluster, check_start, is_finished, torchrun_rank, train_rank
from roberta_plugin.pretraining.recipe import load, package_recipes
from roberta_plugin.pretraining.record import RECORD, check_record, earlier_logs
from roberta_plugin.pretraining.request import Request, read_request, with_words_of_data
from roberta_plugin.pretraining.run import command_line, train
from roberta_plugin.pretraining.settings import PretrainSettings
from roberta_plugin.pretraining.text_look import warnings_before, warnings_of_copy
from roberta_plugin.pretraining.texts import steps_of_text
from roberta_plugin.runs import FILES
from roberta_plugin.settings import Checked, setting

if TYPE_CHECKING:
    from roberta_plugin.launch.rendezvous import RankInfo

_LOCK_PATIENCE_S = 20.0  # a training whose parent was killed needs a moment to end


@command(
    PretrainSettings,
    LineRules,
    InputSettings,
    skip=("keep_spaces", "split_sentences"),
    takes_further=True,
    if_interrupted=RESUMES,
)
def pretrain(settings: PretrainSettings, rules: LineRules, reading: InputSettings, *, further: Sequence[str]) -> int:
    """Pretrains a RoBERTa by a recipe that suits the machine, the text and the hours: shows what it chose and the
    command of fairseq-train, trains, and reports what the model learned beside baselines. Any further option of
    fairseq-train may follow, and overrides the recipe. After an interruption, the same command resumes.
    """
    return run(replace(settings, reading=replace(reading, rules=rules)), further=further)


def run(settings: PretrainSettings, *, further: Sequence[str] = ()) -> int:
    """Make what is missing, train to the end, and report. Returns the exit code of the first step that fails.

    `further` are options of fairseq-train. What cannot work is refused before the hours of tokenizing, and once more
    when the data are there.
    """
    rank = torchrun_rank()
    if rank and rank.rank:
        return 0 if settings.dry_run else train_rank(rank)  # as rank 0 has planned
    request = read_request(settings, further, torchrun=rank.world_size if rank else 0)
    if settings.dry_run or not request.has_data:
        plan = make_plan(request)
        check(plan, with_data=request.has_data, is_to_start=not settings.dry_run)
        if settings.slurm is not None and plan.ranks is not None:
            check_cluster(plan.ranks, is_to_submit=not settings.dry_run)
    if not request.has_data and (warnings := warnings_before(request.settings)):
        say("\n".join([*warnings, ""]))
    if settings.dry_run:
        show_plan(request, plan)
        return 0
    folder = settings.folder
    refusal = f"Another process trains in {folder}: wait for it, or choose another --output-dir."
    with only_process(folder, refusal, patience_s=_LOCK_PATIENCE_S) as lock:
        if failed := build_data(request):
            return failed
        request = with_words_of_data(request)
        plan = make_plan(request)
        check(plan)
        check_start(folder, record=RECORD, has_ranks=plan.ranks is not None)
        if plan.ranks is None:
            check_record(folder, plan.arguments, settings=request.settings, cores=plan.machine.cores)
        command = [f"$ {command_line(folder, plan)}", ""] if settings.slurm is None else []
        say("\n".join([*plan.described(), "", *command]))
        code = train_plan(request, plan, rank, lock=lock)
        if code is None:
            show_results(folder, plan, request.data)
    return code or 0


def show_plan(request: Request, plan: Plan) -> None:
    """Print the recipe, the estimate and the command, or the script for SLURM, which ends with the estimate."""
    if not request.has_data:
        say("A tokenizer and a data-bin will be built first; token counts below are estimates.")
    has_script = request.settings.slurm is not None and request.has_data
    estimate = "" if has_script else plan.estimated(vocab_size=count_symbols(request))
    say("\n".join([*plan.described(), *filter(None, [estimate]), ""]))
    if has_script:
        submit(plan, dry_run=True)
    else:
        say(command_line(request.settings.folder, plan))


def build_data(request: Request) -> int:
    """Make tokenizer and data-bin of text, by the verbs that make them; the exit code of the first that fails."""
    from roberta_plugin.cli import build_parser
    from roberta_plugin.pretraining.start import FOLDER

    settings = request.settings
    if request.start is not None and request.takes_words:
        request.start.write_tokenizer(settings.folder / FOLDER, tokenizer=request.tokenizer)
    steps = steps_of_text(settings) if settings.is_text else []
    if settings.is_text and not request.has_data and (warnings := warnings_of_copy(settings)):
        say("\n".join([*warnings, ""]))
    for verb in steps:
        say(f"$ roberta {shlex.join(map(without_secrets, verb))}")
        step = build_parser(verb[0]).parse_args(verb)
        if code := step.run(step):  # its errors are reported as this command's
            return int(code)
    return 0


def train_plan(request: Request, plan: Plan, rank: RankInfo | None, *, lock: int) -> int | None:
    """Train to the end, or submit the training; the exit code, or None where there are results to show."""
    log = request.settings.folder / "train.log"
    if request.settings.slurm is not None:
        return None if submit(plan) else 0
    if rank is not None:
        assert plan.ranks is not None
        check_changes(plan.ranks, tuple(plan.arguments), accepted_by="")
        return train_rank(rank, plan.ranks, log=log) or None
    train(plan, log=log, lock=lock)
    return None


def submit(plan: Plan, *, dry_run: bool = False) -> bool:
    """Submit the training to SLURM, if it is neither there nor finished; whether it is finished."""
    from roberta_plugin.cli.launch import in_words
    from roberta_plugin.launch.recipe_checks import active_job
    from roberta_plugin.launch.submission import launch

    assert plan.ranks is not None
    ranks, folder = plan.ranks, plan.ranks.output_dir
    check_changes(ranks, tuple(plan.arguments), accepted_by="accept_changes=true after --slurm")
    if dry_run:
        say(in_words(launch(ranks, dry_run=True)))
        return False
    if active := active_job(folder):
        shown = shlex.quote(str(folder))
        say(f"job {active[0]} is {active[1]}: progress by `roberta jobs {shown}`, results by this command at its end")
        return False
    if is_finished(ranks, updates=plan.recipe.updates):
        return True
    say(in_words(launch(ranks)))
    return False


def show_results(folder: Path, plan: Plan, data: str) -> None:
    """Evaluate the model, write the report, and print filled masks, scores and what may come next."""
    import torch

    import roberta_plugin

    roberta_plugin.register()
    from roberta_plugin.checkpoint_files import updates_of
    from roberta_plugin.conversion.model_files import find_checkpoint
    from roberta_plugin.hub import RobertaHub
    from roberta_plugin.pretraining.evaluation import answer_line, evaluate, fill, load_trained, summary, write_report
    from roberta_plugin.tasks.input_formats import break_mode

    model = Path(plan.parsed.save_dir)
    held_out = [
        (each, split) for each in data_folders(data) for split in ("test", "valid") if (each / f"{split}.idx").is_file()
    ]
    if not held_out or not any((model / name).is_file() for name in FILES.values()):
        missing = f"{model} has neither {' nor '.join(FILES.values())}" if held_out else f"{data} has no held-out split"
        say(f"{missing}: nothing was evaluated. The model is in {model}.")
        return
    data_bin, split = held_out[0]
    device = "cuda" if plan.on_gpu and torch.cuda.is_available() else "cpu"  # a login node has no GPU
    say(f"Evaluation on {data_bin / split}")
    checkpoint = find_checkpoint(model, None)  # as the commands below find it
    network, vocabulary = load_trained(checkpoint, data_bin, device=device)
    parsed: Any = plan.parsed
    mode: Any = break_mode(parsed) if hasattr(parsed, "input_format") else str(parsed.sample_break_mode)
    length = int(parsed.tokens_per_sample)  # the model may have positions that it was not trained on
    evaluation = evaluate(network, vocabulary, data_bin, split=split, break_mode=mode, length=length)
    updates, of_last = updates_of(checkpoint) or 0, updates_of(model / FILES["last"])
    choice = "best" if checkpoint.name == FILES["best"] and updates != of_last else "last"
    evaluation |= {"split": split, "answers": [], "checkpoint": choice, "updates": updates}
    quoted = shlex.quote(str(model))
    may_follow = (
        f"Next:\n  roberta fill-mask {quoted} 'A sentence with a <mask>.'\n"
        f"  roberta finetune custom --train TABLE --model {quoted} --output-dir runs/tuned\n"
        f"  roberta export {quoted} --to huggingface --output-dir {shlex.quote(str(folder / 'exported'))}"
    )
    try:
        hub = RobertaHub.from_pretrained(model, checkpoint_file=checkpoint.name, data=data_bin)
        evaluation["answers"] = fill(hub, data_bin / split)
    except FileNotFoundError:  # scores need no tokenizer
        may_follow = (
            f"{data_bin} has no tokenizer beside dict.txt, as one by `roberta binarize` has: no masks are filled. Copy "
            "the files of yours there before you use, fine-tune or export the model."
        )
    logs = [folder / "train.log"] if (folder / "train.log").is_file() else sorted(folder.glob("logs/*_0_log.out"))
    logs = [*earlier_logs(getattr(parsed, "restore_file", "")), *logs]
    write_report(folder, evaluation=evaluation, command=plan.command, logs=logs)
    if evaluation["answers"]:
        say("\nHeld-out sentences, one word masked in each; the five most probable tokens:\n")
    for answer in evaluation["answers"]:
        say(f"  {answer_line(answer)}")
    say(f"\n{summary(evaluation)}\nReport, with the curve: {folder / 'report.md'}\n\n{may_follow}")


def say(text: str) -> None:
    """Print at once, also into a pipe. Bytes of names that are not UTF-8 are printed as Python escapes them."""
    print(text.encode(errors="backslashreplace").decode(), flush=True)


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
        print(recipe_path(settings.name).read_text(encoding="utf-8"), end="")
        return 0
    for recipe in package_recipes():
        run_by = "" if recipe.run_by_us else " (not run by us)"
        print(f"{recipe.name:<14}{recipe.time:>7}  {recipe.summary}{run_by}")
    return 0


@dataclass(frozen=True, kw_only=True)
class DemoSettings(Checked):
    """The fields are options of `roberta demo`."""

    output_dir: Path = setting(Path("runs/demo"), "folder for all files of the run")
    updates: int = setting(8000, "length of the pretraining: some four minutes of a fast core", smallest=20)
    seed: int = setting(1, "seed of weights, masks and order")


@command(DemoSettings, if_interrupted=RESUMES)
def demo(settings: DemoSettings) -> int:
    """Takes text from the docstrings of the installed Python and pretrains a small RoBERTa on it, as `roberta pretrain`
    does with your own. Nothing is downloaded. After an interruption, the same command resumes.
    """
    from roberta_plugin.pretraining.docstrings import SPLITS, documents, write_corpus

    folder, recipe = settings.output_dir.absolute(), load("demo")
    text = {split: folder / "corpus" / f"{split}.txt" for split in SPLITS}
    if not text["train"].is_file():
        say("Text: the docstrings in the source files of this Python")
        text["train"].parent.mkdir(parents=True, exist_ok=True)
        write_corpus(text["train"].parent, documents())
    pretraining = PretrainSettings(
        data=[str(text["train"])],
        valid=[str(text["valid"])],
        test=[str(text["test"])],
        vocab_size=recipe.vocab_size,
        recipe="demo",
        updates=settings.updates,
        output_dir=folder,
    )
    return run(pretraining, further=["--cpu", "--seed", str(settings.seed)])
