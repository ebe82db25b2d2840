"""`roberta finetune`: the paper's whole procedure for a task, from official files to the official metric."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_plugin.cli.prepare import add_options as add_prepare_options
from roberta_plugin.cli.prepare import named_values, prepare
from roberta_plugin.experiments.finetuning_start import Start, check_model, check_positions, starting_model
from roberta_plugin.finetuning.paper_settings import MAX_LENGTH

if TYPE_CHECKING:
    from roberta_plugin.finetuning.prepared import Prepared

GRID = "finetune.yaml"


def add_parser(subparsers: Any) -> None:
    """Add `roberta finetune` and its options."""
    from roberta_plugin.finetuning.benchmarks import TASKS

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
        help="pretrained checkpoint (.pt), ours or fairseq's; or the --output-dir of a finished `roberta finetune`, "
        "whose best run is taken, as the paper starts RTE, STS-B and MRPC from MNLI",
    )
    parser.add_argument("--output-dir", type=Path, required=True, help="where the runs and the results are written")
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
        "--set",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="option of fairseq-train, as bf16=true; with "
        "batch-size=N, what a GPU takes at once, update-freq follows so that the cell's batch stays what it is",
    )
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time (1)")
    parser.add_argument(
        "--gpus-per-run",
        type=int,
        help="GPUs of its own for each run, which share the paper's batch (1 where there are GPUs; 0: one, shared by "
        "all runs)",
    )
    parser.add_argument(
        "--keep",
        choices=("best", "weights", "all"),
        default="best",
        help="checkpoints of finished runs that stay, 4 bytes a parameter each: `best`, of each cell's best run, once "
        "all is evaluated (default); `weights`, of every run; `all`: best and last with the optimizer's state, 24 "
        "bytes a parameter a run. Runs that are not finished keep all, to go on from",
    )
    parser.add_argument("--retries", type=int, default=0, help="start a failed run again so often at once (0)")
    parser.add_argument(
        "--slurm",
        nargs="*",
        metavar="NAME=VALUE",
        help="as a job array: time=8:00:00 partition=... sbatch.OPTION=...",
    )
    parser.add_argument("--device", help="where to evaluate (default: a GPU if there is one)")
    parser.add_argument("--grid-only", action="store_true", help="write the grid file for `roberta sweep`, and stop")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prepare, train, evaluate; 1 if a run has failed."""
    import roberta_plugin
    from roberta_plugin.experiments.sweep_run import RUNNING, WAITING

    check_arguments(args)
    roberta_plugin.register()
    start = starting_model(args.model)
    prepared = prepared_data(args, start)
    path = write_grid(args, prepared, start)
    if args.grid_only:
        print(f"grid file: {path}")
        return 0
    facts = train(args, path)
    num_unfinished = sum(facts["states"].get(state, 0) for state in (RUNNING, WAITING))
    if num_unfinished or not facts["best_cell"]:
        print("Some runs are not done: run the same command again when they are, or to try again what failed.")
        return 1 if facts["failures"] else 0
    evaluate_runs(args, prepared, path, facts["best_cell"])
    if facts["failures"]:
        print(
            f"Missing in this table: {len(facts['failures'])} of {facts['num_runs']} runs have failed "
            f"({', '.join(facts['failures'])}). Run the same command again to try them again.",
        )
    return 1 if facts["failures"] else 0


def check_arguments(args: argparse.Namespace) -> None:
    """Refuse numbers and settings that cannot work, before anything is read."""
    slurm = named_values(args.slurm or [], "--slurm")
    if args.epochs is not None and args.epochs < 1:
        raise ValueError(f"--epochs must be 1 or more, got {args.epochs}.")
    if args.slurm is not None and "time" not in slurm and not args.grid_only:
        raise ValueError(
            "--slurm needs a time limit for a run: --slurm time=8:00:00. A run that needs longer is requeued and "
            "goes on."
        )
    options_of(args)


def options_of(args: argparse.Namespace) -> tuple[dict[str, str], dict[str, str]]:
    """What --option says, for the preparation and for the scoring.

    Raises:
        ValueError: if a name is neither's.
    """
    from roberta_plugin.finetuning.benchmarks import benchmark_of

    benchmark, options = benchmark_of(args.task), named_values(args.option, "--option")
    known = [*benchmark.PREPARING_OPTIONS, *benchmark.SCORING_OPTIONS]
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise ValueError(
            f"--option {unknown[0]}: {args.task} has {'the options ' + ', '.join(known) if known else 'none'}."
        )
    scoring = {name: value for name, value in options.items() if name in benchmark.SCORING_OPTIONS}
    return {name: value for name, value in options.items() if name not in scoring}, scoring


def prepared_data(args: argparse.Namespace, start: Start) -> Prepared:
    """The prepared folder, made now if it is not there.

    Raises:
        ValueError: if it is for another task, or was prepared otherwise than the command says.
    """
    from roberta_plugin.finetuning.benchmarks import benchmark_of
    from roberta_plugin.finetuning.preparation import Asked, check_same
    from roberta_plugin.finetuning.prepared import NAME, Prepared

    folder, benchmark = args.data or args.output_dir / "data", benchmark_of(args.task)
    if args.raw is not None and args.max_length is None:
        args.max_length = min(MAX_LENGTH, start.max_positions)
    options, _ = options_of(args)
    if not (folder / NAME).is_file() and args.raw is not None:
        check_positions(start, args.task, max_length=args.max_length, options=options)
        prepare(args, args.task, folder, overwrite=False, options=options)
    prepared = Prepared.open(folder)
    if prepared.task != args.task:
        raise ValueError(f"{folder} is prepared for {prepared.task}, not for {args.task}: give another --data.")
    check_same(prepared, Asked(args.raw, args.tokenizer, args.max_length, options), benchmark)
    return prepared


def write_grid(args: argparse.Namespace, prepared: Prepared, start: Start) -> Path:
    """Write the grid file of all runs."""
    from roberta_plugin.experiments.finetuning_grid import as_yaml, grid_of
    from roberta_plugin.files import atomic_write
    from roberta_plugin.finetuning.benchmarks import benchmark_of

    check_model(start, prepared)
    recipe = benchmark_of(args.task).recipe(args.task, prepared, epochs=args.epochs)
    if recipe.starts_from and start.checkpoint == args.model:
        print(
            f"The paper starts {args.task} from its {recipe.starts_from} model: give --model the folder of "
            f"`roberta finetune {recipe.starts_from}` to do the same.",
            flush=True,
        )
    slurm = named_values(args.slurm or [], "--slurm")
    num_gpus = gpus_of_a_run(args, slurm)
    content = grid_of(
        recipe,
        data=prepared.folder,
        model=start.options,
        checkpoint=None if args.from_scratch else start.checkpoint,
        changes={
            **({} if num_gpus else {"cpu": "true"}),
            **of_earlier_folders(prepared),
            **named_values(args.set, "--set"),
        },
        only=named_values(args.only, "--only"),
        seeds=args.seeds,
        slurm=slurm,
        num_ranks=max(1, num_gpus),
    )
    path: Path = args.output_dir / GRID
    args.output_dir.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, "w") as file:
        file.write(as_yaml(content))
    return path


def of_earlier_folders(prepared: Prepared) -> dict[str, str]:
    """An option without which fairseq-train refuses the folders of earlier versions that have a split valid1."""
    return {"ignore-unused-valid-subsets": "true"} if "valid1" in prepared.splits else {}


def gpus_of_a_run(args: argparse.Namespace, slurm: dict[str, str]) -> int:
    """GPUs that a training has: of those that SLURM is asked for, or of this machine's; 0: it computes on the CPU."""
    import torch

    from roberta_plugin.training.sbatch_options import parse_gpus

    if args.slurm is not None:
        return parse_gpus(slurm.get("gpus_per_node", "0")).num
    if args.gpus_per_run is None:
        args.gpus_per_run = 1 if torch.cuda.is_available() else 0
    asked = int(args.gpus_per_run)
    return max(1, asked) if torch.cuda.is_available() else asked


def train(args: argparse.Namespace, grid_path: Path) -> dict[str, Any]:
    """Do all runs that are not done, and return the sweep's report."""
    from roberta_plugin.cli.sweep import show
    from roberta_plugin.experiments.sweep import SweepSettings, sweep

    is_local = args.slurm is None
    report = sweep(
        SweepSettings(
            grid=grid_path,
            output_dir=args.output_dir / "runs",
            parallel=args.parallel,
            retries=args.retries if is_local else 0,
            gpus_per_run=args.gpus_per_run or 0 if is_local else 0,
            slurm=None if is_local else {},
            wait=not is_local,
            keep="all" if args.keep == "all" else "weights",  # of each cell's runs, some are evaluated first
        )
    )
    show(report)
    return dict(report.facts)


def evaluate_runs(args: argparse.Namespace, prepared: Prepared, grid_path: Path, best_cell: str) -> None:
    """Evaluate the best cell's finished runs on every split but train, print the table, keep what is to be kept."""
    from roberta_plugin.cli.evaluate import default_device
    from roberta_plugin.experiments.evaluation import evaluate_splits, where_predictions_are
    from roberta_plugin.experiments.evaluation_report import write_report
    from roberta_plugin.experiments.grid import read_grid
    from roberta_plugin.experiments.sweep_keep import keep_best
    from roberta_plugin.experiments.sweep_report import write_report as write_sweep_report
    from roberta_plugin.experiments.sweep_run import DONE, RunFolder

    grid, root = read_grid(grid_path), args.output_dir / "runs"
    folders = [RunFolder(root, item, grid.metric) for item in grid.runs]
    members = [folder for folder in folders if folder.run.cell == best_cell and folder.state() == DONE]
    found = evaluate_splits(
        prepared,
        [folder.path / "checkpoints" / "checkpoint_best.pt" for folder in members],
        folder=args.output_dir / "results",
        options=options_of(args)[1],
        device=args.device or default_device(),
        show_progress=True,
    )
    print(write_report(found, args.output_dir / "results"))
    print(where_predictions_are(found), end="")
    print(f"results: {args.output_dir / 'results'}")
    if args.keep == "best" and all(folder.state() == DONE for folder in folders):
        keep_best(folders, grid.metric)
        write_sweep_report(grid, folders, root=root.resolve(), ensemble_size=len(members))
