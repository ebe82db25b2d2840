"""The progress of a whole study: all pretrainings and fine-tunings, weighed by their FLOPs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence

from tqdm import tqdm

from roberta_plugin.experiments.sweeps.progress import SweepProgress, share_done
from roberta_plugin.experiments.sweeps.run import RunFolder

_LOOK_EVERY_S = 5.0
_BAR = "{l_bar}{bar}| {n:.1f} of 100 %, {elapsed} so far, {remaining} left{postfix}"


class StudyProgress:
    """How much of the work of a study is done; time left at the speed since this start."""

    def __init__(self, total: float, *, now: Callable[[], float] = time.monotonic) -> None:
        self.total, self._now = total, now
        self._finished = 0.0  # work of the stages before the present one
        self._at_start: float | None = None  # share done when this process began to train
        self._started = 0.0

    def begin(self, share: float) -> None:
        """Take note of the share of the work (0 to 1) that is done before this process trains."""
        if self._at_start is None:
            self._at_start, self._started = share, self._now()

    def finish(self, work: float) -> None:
        """Add the work of a stage that is over."""
        self._finished += work

    def share(self, work_in_stage: float) -> float:
        """Share of all the work that is done, 0 to 1, when so much of the present stage is."""
        return min(1.0, (self._finished + work_in_stage) / self.total) if self.total else 1.0

    def describe(self, share: float) -> str:
        """As in `study: 37 % of the work done, 0:12:00 left`; the time once there is a speed."""
        begun = self._at_start if self._at_start is not None else share
        elapsed = self._now() - self._started
        text = f"study: {100 * share:.0f} % of the work done"
        if share <= begun:
            return text
        left = round(elapsed * (1 - share) / (share - begun))
        return f"{text}, about {left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left"

    def stage(
        self, all_folders: Sequence[RunFolder], work: Mapping[str, float]
    ) -> Callable[[Sequence[RunFolder]], SweepProgress]:
        """What `sweep` takes as `progress` for one stage.

        Args:
            all_folders: every run of the stage, also those that are done already.
            work: FLOPs of each run, by its name.
        """
        return lambda to_do: _StageProgress(to_do, study=self, all_folders=all_folders, work=work)


class _StageProgress(SweepProgress):
    def __init__(
        self,
        folders: Sequence[RunFolder],
        *,
        study: StudyProgress,
        all_folders: Sequence[RunFolder],
        work: Mapping[str, float],
    ) -> None:
        super().__init__(folders)
        self._bar.close()
        self._study, self._all, self._work = study, all_folders, work
        self._study.begin(self._share())
        at_start = 100 * self._share()
        self._bar = tqdm(
            total=100, initial=at_start, smoothing=0, bar_format=_BAR, desc="study", disable=not sys.stderr.isatty()
        )

    def _share(self) -> float:
        return self._study.share(sum(self._work[folder.run.name] * share_done(folder) for folder in self._all))

    def report(self, folder: RunFolder, event: str) -> None:
        """Take note of a run; after each that ends, say how far the study is."""
        super().report(folder, event)
        if event not in ("started", "elsewhere") and self._bar.disable:
            tqdm.write(self._study.describe(self._share()), file=sys.stdout)
            sys.stdout.flush()

    def look(self) -> None:
        """Move the bar, every few seconds."""
        if self._bar.disable or time.monotonic() < self._looked + _LOOK_EVERY_S:
            return
        self._looked = time.monotonic()
        self._bar.update(max(0.0, 100 * self._share() - self._bar.n))
