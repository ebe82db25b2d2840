"""`roberta finetune`: the paper's whole procedure for a task, from official files to the official metric."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_plugin.cli.prepare import add_options as add_prepare_options
from roberta_plugin.cli.prepare import named_values, prepare

if TYPE_CHECKING:
    from roberta_plugin.finetuning.prepared import Prepared

GRID = "finetune.yaml"


def add_parser(subparsers: Any) -> None:
    """Add `roberta finetune` and its options."""
    from roberta_plugin.finetuning.suites import TASKS

    parser = subparsers.add_parser(
        "finetune",
        help="fine-tune on such a task as the paper does: grid, seeds, median, ensemble, predictions",
        description="Prepares the task's official files where that is not done, trains every cell of the paper's grid "
        "with every seed from a pretrained checkpoint, chooses the cell with the best median on the development set, "
        "evaluates its runs by the official metric and writes predictions of their average. Run the same command "
        "again: it goes on where it stopped.",
    )
    parser.add_argument("task", choices=TASKS, metavar="TASK", help=f"one of {', '.join(TASKS)}")
    parser.add_argument(
        "--model",
        type=Path,
        required=True,
        help="pretrained checkpoint (.pt), ours or fairseq's; or the --folder of a finished `roberta finetune`, whose "
        "best run is taken, as the paper starts RTE, STS-B and MRPC from MNLI",
    )
    parser.add_argument("--folder", type=Path, required=True, help="where the runs and the results are written")
    parser.add_argument("--data", type=Path, help="prepared folder (default: FOLDER/data, made from --raw)")
    add_prepare_options(parser)
    parser.add_argument(
        "--from-scratch", action="store_true", help="a baseline: the model's architecture with random weights"
    )
    parser.add_argument("--seeds", nargs="+", metavar="N", help="seeds of the runs (the paper's five: 1 to 5)")
    parser.add_argument("--epochs", type=int, help="passes over the data, instead of the paper's number")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="AXIS=LABEL",
        help="keep one value of an axis of the grid, as lr=1e-5, instead of trying all",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="OPTION=VALUE", help="option of fairseq-train, as bf16=true"
    )
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time (1)")
    parser.add_argument("--gpus-per-run", type=int, default=0, help="GPUs of its own for each run (0: all see all)")
    parser.add_argument("--retries", type=int, default=0, help="start a failed run again so often at once (0)")
    parser.add_argument(
        "--slurm", nargs="*", metavar="NAME=VALUE", help="as a job array, with SLURM's partition=..., sbatch.OPTION=..."
    )
    parser.add_argument("--device", help="where to evaluate (default: a GPU if there is one)")
    parser.add_argument("--grid-only", action="store_true", help="write the grid file for `roberta sweep`, and stop")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prepare, train, evaluate; 1 if a run has failed."""
    import roberta_plugin
    from roberta_plugin.cluster.grid import read_grid

    if args.epochs is not None and args.epochs < 1:
        raise ValueError(f"--epochs must be 1 or more, got {args.epochs}.")
    roberta_plugin.register()
    logging.disable(logging.INFO)  # what fairseq and matplotlib log while we ask them things
    prepared = prepared_data(args)
    path = write_grid(args, prepared)
    if args.grid_only:
        print(f"grid file: {path}")
        return 0
    facts = train(args, path)
    if facts["states"].get("done", 0) < facts["num_runs"]:
        print("Some runs are not done: run the same command again when they are, or to try again what failed.")
        return 1 if facts["failures"] else 0
    chosen = [item for item in read_grid(path).runs if item.cell == facts["best_cell"]]
    return evaluate_runs(args, prepared, [args.folder / "runs" / item.name for item in chosen])


def prepared_data(args: argparse.Namespace) -> Prepared:
    """The prepared folder, made now if it is not there.

    Raises:
        ValueError: if it is for another task.
    """
    from roberta_plugin.finetuning.prepared import NAME, Prepared

    folder = args.data or args.folder / "data"
    if not (folder / NAME).is_file() and args.raw is not None:
        prepare(args, args.task, folder, overwrite=False)
    prepared = Prepared.open(folder)
    if prepared.task != args.task:
        raise ValueError(f"{folder} is prepared for {prepared.task}, not for {args.task}: give another --data.")
    return prepared


def write_grid(args: argparse.Namespace, prepared: Prepared) -> Path:
    """Write the grid file of all runs."""
    from roberta_plugin.data.atomic_files import atomic_write
    from roberta_plugin.finetuning.runs import as_yaml, grid_of
    from roberta_plugin.finetuning.suites import suite_of

    checkpoint = checkpoint_of(args.model)
    recipe = suite_of(args.task).recipe(args.task, prepared, epochs=args.epochs)
    if recipe.starts_from and checkpoint == args.model:
        print(
            f"The paper starts {args.task} from its {recipe.starts_from} model: give --model the folder of "
            f"`roberta finetune {recipe.starts_from}` to do the same.",
            flush=True,
        )
    slurm = named_values(args.slurm or [], "--slurm")
    content = grid_of(
        recipe,
        data=prepared.folder,
        model=fitting_model(checkpoint, prepared),
        checkpoint=None if args.from_scratch else checkpoint,
        changes={**({} if runs_on_gpus(args, slurm) else {"cpu": "true"}), **named_values(args.set, "--set")},
        only=named_values(args.only, "--only"),
        seeds=args.seeds,
        slurm=slurm,
    )
    path: Path = args.folder / GRID
    args.folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, "w") as file:
        file.write(as_yaml(content))
    return path


def fitting_model(checkpoint: Path, prepared: Prepared) -> dict[str, str]:
    """Options that build the checkpoint's model.

    Raises:
        ValueError: if its vocabulary or its positions are not those of the data.
    """
    from roberta_plugin.finetuning.inference import load_state
    from roberta_plugin.models.checkpoint_options import model_options, num_symbols

    state = load_state(checkpoint)
    model = model_options(state)
    if num_symbols(state) != len(prepared.vocabulary):
        raise ValueError(
            f"{checkpoint} has a vocabulary of {num_symbols(state):,} symbols, and {prepared.folder} one of "
            f"{len(prepared.vocabulary):,}: prepare the data with the tokenizer and the dict.txt of that model."
        )
    if int(model["max-positions"]) < prepared.settings["max_length"]:
        raise ValueError(
            f"{checkpoint} has {model['max-positions']} positions, and {prepared.folder} sequences of up to "
            f"{prepared.settings['max_length']} tokens: prepare it with --max-length {model['max-positions']}."
        )
    return model


def runs_on_gpus(args: argparse.Namespace, slurm: dict[str, str]) -> bool:
    """Whether the trainings will have GPUs: this machine's, or those that SLURM is asked for."""
    import torch

    from roberta_plugin.cluster.sbatch_options import parse_gpus

    if args.slurm is not None:
        return parse_gpus(slurm.get("gpus_per_node", "0")).num > 0
    return torch.cuda.is_available()


def checkpoint_of(path: Path) -> Path:
    """The checkpoint itself, or the best one of the fine-tuning that lies in a folder.

    Raises:
        FileNotFoundError: if the folder holds no finished run.
    """
    from roberta_plugin.cluster.json_files import read_json

    report = path / "runs" / "report.json"
    if not path.is_dir():
        return path
    content = read_json(report, keys=["ensemble"], remedy=f"run the fine-tuning in {path} again, which writes it anew")
    members = content["ensemble"] if content else []
    if not members:
        raise FileNotFoundError(f"--model {path}: {report} names no finished run. Give a checkpoint file instead.")
    return Path(members[0]["checkpoint"])


def train(args: argparse.Namespace, grid_path: Path) -> dict[str, Any]:
    """Do all runs that are not done, and return the sweep's report."""
    from roberta_plugin.cli import sweep

    words = [str(grid_path), "--folder", str(args.folder / "runs"), "--parallel", str(args.parallel)]
    if args.slurm is not None:
        words += ["--slurm", "--wait"]
    else:
        words += ["--retries", str(args.retries), "--gpus-per-run", str(args.gpus_per_run)]
    parser = argparse.ArgumentParser()
    sweep.add_parser(parser.add_subparsers())
    return sweep.do(parser.parse_args(["sweep", *words]))


def evaluate_runs(args: argparse.Namespace, prepared: Prepared, folders: list[Path]) -> int:
    """Evaluate the runs of the best cell on every split but train, and print the table."""
    from roberta_plugin.cli.evaluate import default_device
    from roberta_plugin.finetuning.evaluation import evaluate
    from roberta_plugin.finetuning.report import write_report

    checkpoints = [folder / "checkpoints" / "checkpoint_best.pt" for folder in folders]
    found: list[dict[str, Any]] = []
    options: dict[str, str] = {}
    for split in ["valid", *(name for name in prepared.splits if name not in ("train", "valid"))]:
        found.append(
            evaluate(
                prepared,
                checkpoints,
                split=split,
                folder=args.folder / "results",
                device=args.device or default_device(),
                options=options,
                show_progress=True,
            )
        )
        if "null_threshold" in found[0]["together"]:  # SQuAD 2.0's, tuned on the development set
            options = {"null-threshold": str(found[0]["together"]["null_threshold"])}
    print(write_report(found, args.folder / "results"))
    print(f"results and predictions: {args.folder / 'results'}")
    return 0
