"""`roberta study`: the options, and what it prints."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from roberta_plugin.cli.command import RESUMES, command
from roberta_plugin.experiments.settings import GridRuns
from roberta_plugin.settings import REQUIRED, setting


@dataclass(frozen=True, kw_only=True)
class StudySettings(GridRuns):
    """Settings of `roberta study`."""

    study: Path = setting(REQUIRED, "study file (YAML)", flag="study")
    output_dir: Path = setting(None, "where everything is written (runs/NAME of the file)")
    device: str | None = setting(None, "where to evaluate (default: a GPU if there is one)")
    dry_run: bool = setting(False, "check everything, print updates, tokens and FLOPs; write nothing")

    def __post_init__(self) -> None:
        if self.output_dir is None:
            object.__setattr__(self, "output_dir", Path("runs") / self.study.stem)
        super().__post_init__()


@command(StudySettings, if_interrupted=RESUMES)
def study(settings: StudySettings) -> int:
    """Pretrains every variant of a study file with every seed at an equal budget, measures held-out perplexity,
    fine-tunes, and writes report.md and results.json; examples/README.studies.md has the format, examples/studies/ the
    paper's Tables 1 to 3. Run the same command again: it resumes where it stopped, also with more variants, seeds or
    probes in the file. With --slurm it waits for its job arrays.
    """
    import roberta_plugin

    roberta_plugin.register()  # before anything imports fairseq, whose import would set up logging
    from roberta_plugin.extensions.studies.report import describe_plan
    from roberta_plugin.extensions.studies.study import Work, run_study

    if settings.dry_run:
        print(describe_plan((work := Work(settings, say=print)).study, work.plans))
        return 0
    results, report = run_study(settings, say=partial(print, flush=True)), settings.output_dir / "report.md"
    print(report.read_text(), f"report: {report}", sep="\n")
    return 1 if results["failures"] else 0
