"""`roberta study`: variants of pretraining, with seeds, compared beside the paper's tables."""

from __future__ import annotations

import argparse
import functools

from roberta_plugin.cli.interrupts import terminated_like_interrupted
from roberta_plugin.experiments.settings import StudySettings
from roberta_plugin.settings import add_options, from_arguments

FAILURES = 1


def define(parser: argparse.ArgumentParser) -> None:
    """Describe `roberta study`; its options are the fields of `StudySettings`."""
    parser.description = (
        "Pretrains every variant of a study file with every seed at an equal budget, measures held-out perplexity, "
        "fine-tunes, and writes report.md, results.json and curves.png; examples/README.studies.md has the format, "
        "examples/studies/ has the paper's Tables 1 to 3. Run the same command again: it resumes where it stopped. "
        "More variants, seeds or probes in the file extend the study."
    )
    add_options(parser, StudySettings)


def run(args: argparse.Namespace) -> int:
    """Do what is left of the study and show the report; 1 if a run has failed."""
    import roberta_plugin

    roberta_plugin.register()  # before anything imports fairseq, whose import would set up logging
    from roberta_plugin.experiments.studies.study import dry_run, run_study

    settings = from_arguments(StudySettings, vars(args))
    if settings.dry_run:
        print(dry_run(settings))
        return 0
    with terminated_like_interrupted():  # else SIGTERM would leave the trainings running
        outcome = run_study(settings, say=functools.partial(print, flush=True))
    print(outcome.report)
    print(f"report: {settings.output_dir / 'report.md'}")
    for name, reason in outcome.failures.items():
        print(f"failed: {name}: {reason}")
    return FAILURES if outcome.failures else 0
