"""The verb `roberta study`."""

from __future__ import annotations

from functools import partial

from roberta_plugin.cli.command import RESUMES, command
from roberta_plugin.extensions.studies.study_file import StudySettings


@command(StudySettings, if_interrupted=RESUMES)
def study(settings: StudySettings) -> int:
    """Pretrains every variant of a study file with every seed at an equal budget, measures held-out perplexity,
    fine-tunes, and writes a report; examples/README.studies.md has the format, examples/studies/ the paper's Tables 1
    to 3. The same command resumes, also with more variants, seeds or probes. With --slurm it waits for the job arrays.
    """
    import roberta_plugin

    roberta_plugin.register()  # it must precede the first import of fairseq, which would set up logging
    from roberta_plugin.extensions.studies.report import describe_plan
    from roberta_plugin.extensions.studies.study import Work, run_study

    if settings.dry_run:
        print(describe_plan((work := Work(settings, say=print)).study, work.plans))
        return 0
    results, report = run_study(settings, say=partial(print, flush=True)), settings.output_dir / "report.md"
    print(report.read_text(), f"report: {report}", sep="\n")
    return 1 if results["failures"] else 0
