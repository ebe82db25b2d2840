"""The size of the data -> the grid of trainings.

The paper tunes on GLUE with learning rates of 1e-5, 2e-5 and 3e-5, batches of 16 and 32, 10 epochs and five seeds
(Table 10). That is the middle of this table; smaller sets get more epochs, because few updates leave a model unstable
(Mosbach et al. 2021, arXiv 2006.04884, who train 20 epochs), and larger ones fewer runs:

    examples         learning rates    batch    epochs  seeds  runs
    below 1,000      {1,2,3}e-5        16       20      5      15
    below 10,000     {1,2,3}e-5        16, 32   10      3      18
    below 100,000    {1,2,3}e-5        32       5       3      9
    from 100,000 on  {1,3}e-5          32       3       3      6

The rest is as in Table 10: warm-up 6 %, linear decay, weight decay 0.1.
"""

from __future__ import annotations

from typing import NamedTuple

from roberta_plugin.finetuning.benchmarks import PaperRecipe
from roberta_plugin.finetuning.paper_settings import COMMON, schedule


class Size(NamedTuple):
    """A row of the table."""

    below: float
    lrs: tuple[str, ...]
    batches: tuple[int, ...]
    epochs: int
    num_seeds: int


SIZES = (
    Size(1_000, ("1e-5", "2e-5", "3e-5"), (16,), 20, 5),
    Size(10_000, ("1e-5", "2e-5", "3e-5"), (16, 32), 10, 3),
    Size(100_000, ("1e-5", "2e-5", "3e-5"), (32,), 5, 3),
    Size(float("inf"), ("1e-5", "3e-5"), (32,), 3, 3),
)


def recipe_for(num_examples: int, *, fairseq_task: str, selection: str, epochs: int | None = None) -> PaperRecipe:
    """The grid for a training set of this size; `epochs` replaces those of the table."""
    size = next(size for size in SIZES if num_examples < size.below)
    batches = {
        str(batch): schedule(num_examples, batch_size=batch, epochs=epochs or size.epochs) for batch in size.batches
    }
    return PaperRecipe(
        train={"task": fairseq_task, "criterion": fairseq_task, **COMMON, "weight-decay": "0.1"},
        axes={"lr": list(size.lrs), "batch": batches},
        seeds=[str(seed) for seed in range(1, size.num_seeds + 1)],
        metric={"log": "valid", "value": selection, "goal": "max", "at": "best"},
    )
