"""`roberta study`: variants of pretraining, with seeds, compared beside the paper's tables."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_plugin.cli.interrupts import terminated_like_interrupted

if TYPE_CHECKING:
    from roberta_plugin.experiments.studies.study import StudySettings

FAILURES = 1


def add_parser(subparsers: Any) -> None:
    """Add `roberta study` and its options."""
    parser = subparsers.add_parser(
        "study",
        help="compare variants of pretraining, with seeds and tests, beside the paper's tables",
        description="Pretrains every variant of a study file with every seed at an equal budget, measures held-out "
        "perplexity, fine-tunes, and writes report.md, results.json and plots; examples/README.studies.md has the "
        "format, examples/studies/ has the paper's Tables 1 to 3. Run the same command again: it goes on where it "
        "stopped. More variants, seeds or probes in the file extend the study.",
    )
    parser.add_argument("study", type=Path, help="study file (YAML)")
    parser.add_argument("--output-dir", type=Path, help="where everything is written (runs/NAME of the file)")
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time (1)")
    parser.add_argument(
        "--gpus-per-run", type=int, default=0, help="GPUs of its own for each run here (0: every run sees all GPUs)"
    )
    parser.add_argument("--retries", type=int, default=0, help="how often to restart a failed run at once (0)")
    parser.add_argument(
        "--slurm",
        nargs="*",
        metavar="NAME=VALUE",
        help="submit the runs as job arrays and wait for them; settings given here win over the file's section slurm",
    )
    parser.add_argument(
        "--redo-changed",
        action="store_true",
        help="if the file has changed: delete the results of what has changed, and make them anew",
    )
    parser.add_argument("--device", help="where to evaluate (default: a GPU if there is one)")
    parser.add_argument("--report-only", action="store_true", help="write the report of what is there, train nothing")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check everything and print the plan: tokens, FLOPs, hours; write nothing",
    )
    parser.add_argument(
        "--tflops",
        type=float,
        help="for the hours of --dry-run: TFLOP/s that a run reaches (default: of finished runs, or a share of this "
        "machine's peak)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what is left of the study and show the report; 1 if a run has failed."""
    import roberta_plugin

    roberta_plugin.register()  # before anything imports fairseq, whose import would set up logging
    from roberta_plugin.experiments.studies.study import StudySettings, run_study
    from roberta_plugin.training.settings import parse_pairs

    settings = StudySettings(
        study=args.study,
        output_dir=args.output_dir or Path("runs") / args.study.stem,
        parallel=args.parallel,
        gpus_per_run=args.gpus_per_run,
        retries=args.retries,
        slurm=None if args.slurm is None else parse_pairs(args.slurm, option="--slurm"),
        redo_changed=args.redo_changed,
        report_only=args.report_only,
        device=args.device,
    )
    if args.dry_run:
        print(dry_run(settings, tflops=args.tflops))
        return 0
    with terminated_like_interrupted():  # else SIGTERM would leave the trainings running
        outcome = run_study(settings, say=functools.partial(print, flush=True))
    print(outcome.report)
    print(f"report: {settings.output_dir / 'report.md'}")
    for name, reason in outcome.failures.items():
        print(f"failed: {name}: {reason}")
    return FAILURES if outcome.failures else 0


def dry_run(settings: StudySettings, *, tflops: float | None) -> str:
    """The plan as text; fine-tuning data is prepared in a temporary folder, to be checked and counted."""
    from roberta_plugin.experiments.studies.costs import describe_plan
    from roberta_plugin.experiments.studies.study import planned_costs

    if tflops is not None and tflops <= 0:
        raise ValueError(f"--tflops must be more than 0, got {tflops:g}.")
    planned, costs, speed, source = planned_costs(settings, flops_per_second=None if tflops is None else 1e12 * tflops)
    hours = costs.hours(speed, parallel=settings.parallel)
    described = f"{settings.parallel} run(s) at a time at {speed / 1e12:.3g} TFLOP/s each ({source})"
    return describe_plan(planned.study, planned.plans, costs, hours=hours, speed=described)
