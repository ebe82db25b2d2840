"""Whether a multiple-choice training is stuck at chance, judged by sums over windows of updates.

A model that no longer distinguishes the options has the loss log(number of options) and the accuracy of guessing. Such
a run seldom recovers, but would still use its days of computing time. It is called degenerate if, over a whole window,

    mean loss >= (1 - 0.01) * mean of log(number of options)   and
    right answers <= what chance gives + 3 standard deviations of that.

The first condition has no upper bound: a loss above that of guessing is not better. With the default of 2,000 updates
of 16 questions with 4 options, 3 standard deviations are 0.7 points over 25 %. The window is half as long again as the
paper's warm-up on RACE (1,318 of 21,968 updates), so that a healthy run has left chance before the first window ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

DEFAULT_PATIENCE = 2000
LOSS_BAND = 0.01
DEVIATIONS = 3.0


@dataclass
class Sums:
    """Sums over the questions of one update, or of all updates of a window."""

    questions: float = 0.0
    loss: float = 0.0  # nats
    chance_loss: float = 0.0  # of log(number of options)
    correct: float = 0.0
    chance_correct: float = 0.0  # of p = 1 / number of options
    chance_variance: float = 0.0  # of p (1 - p)

    def add(self, other: Sums) -> None:
        """Add the sums of another update."""
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def is_at_chance(self) -> bool:
        """Whether loss and right answers are no better than chance; see the top of this file."""
        is_no_lower = self.loss >= (1 - LOSS_BAND) * self.chance_loss
        limit = self.chance_correct + DEVIATIONS * math.sqrt(self.chance_variance)
        return self.questions > 0 and is_no_lower and self.correct <= limit


@dataclass
class DegenerateRunWatch:
    """Watches consecutive windows of `patience` updates. A resumed run starts a new window."""

    patience: int
    updates: int = 0
    window: Sums = field(default_factory=Sums)

    def see(self, update: Sums) -> str | None:
        """Add an update; at the end of a window that was at chance, return a message with usual causes."""
        self.window.add(update)
        self.updates += 1
        if self.updates < self.patience:
            return None
        window, self.window, self.updates = self.window, Sums(), 0
        return self._message(window) if window.is_at_chance else None

    def _message(self, window: Sums) -> str:
        number = window.questions
        return (
            f"This run is stuck at chance: over the last {self.patience:,} updates the mean loss was "
            f"{window.loss / number:.4f}, that of guessing is log(number of options) = "
            f"{window.chance_loss / number:.4f}; {100 * window.correct / number:.1f} % of the answers were right, "
            f"guessing gets {100 * window.chance_correct / number:.1f} %. Usual causes: the learning rate is too high, "
            "or starts without warm-up (the paper has --lr 1e-5, rising over the first 6 % of the updates: "
            "--warmup-updates); no pretrained checkpoint was loaded (give --finetune-from-model); --arch or its sizes "
            "are not those of the checkpoint; or the model is too small for this task. Mend the cause and start again: "
            "a collapsed run seldom recovers."
        )
