"""Recipes of pretraining, as data: the YAML files of `launch/recipes/`, or a user's own in the same form.

    summary       one line, for `roberta recipes`
    device        cpu or gpu
    gpus          how many, with gpu
    gpu_memory_gb memory of one GPU that it needs
    hours         of the hardware that `hardware` names
    hardware      what the hours were measured or estimated on, and the basis of an estimate
    text          the text that it was made for
    vocab_size    symbols of a tokenizer for that text
    result        what came out
    run_by_us     the file with the results; empty: not run by us
    why           the reasons for these settings, with sources
    train         options of fairseq-train, without data, machine and folders

A longer or shorter training has the same shape: `scaled` multiplies every number of updates, for --hours by its ratio
to `hours`. If `hours` changed, runs that began with --hours could not be resumed. So the hours on GPUs, all of them
estimates, stay as they are until they are measured. A dry run (`launch/estimate.py`) estimates up to a sixth more or
less.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import Any, Literal

from roberta_plugin.launch.options_file import RECIPES, read_file, recipe_path, scale_updates, to_arguments
from roberta_plugin.settings import Checked, setting, short


@dataclass(frozen=True, kw_only=True)
class Recipe(Checked):
    """A recipe; the module describes its fields."""

    name: str
    summary: str
    device: Literal["cpu", "gpu"] = "cpu"
    gpus: int = setting(1, "GPUs", smallest=1)
    gpu_memory_gb: float = setting(0.0, "GB of memory of one GPU", smallest=0)
    hours: float = setting(1.0, "hours that it takes", above=0)
    hardware: str
    text: str
    vocab_size: int = setting(50_000, "symbols of the tokenizer", smallest=300)
    result: str = ""
    run_by_us: str = ""
    why: str = ""
    train: Mapping[str, Any] = field(default_factory=dict)

    @property
    def updates(self) -> int:
        """Updates of the whole training."""
        return int(self.train["max-update"])  # checked by `load`

    @property
    def time(self) -> str:
        """The hours of the training, in words."""
        if self.hours < 1 / 60:
            return f"{max(1, 3600 * self.hours):.0f} s"
        return f"{self.hours:.3g} h" if self.hours >= 0.5 else f"{60 * self.hours:.0f} min"

    @property
    def gpu_name(self) -> str:
        """The GPU that `hardware` names.

        Example: 8 H100 SXM (estimate at 31 % of their peak)  ->  H100 SXM
        """
        return re.sub(r"^(\d+|one) ", "", re.split(r" ?[(;]", self.hardware)[0])

    def arguments(self) -> list[str]:
        """The options as arguments of fairseq-train."""
        return to_arguments(self.train, where=f"recipe {self.name}")

    def scaled(self, factor: float) -> Recipe:
        """The same shape with `factor` times as many updates, at least 20."""
        factor = max(factor, 20 / self.updates)
        return replace(self, train=scale_updates(self.train, factor), hours=self.hours * factor)

    def without(self, names: Iterable[str]) -> Recipe:
        """The recipe without these options.

        Raises:
            ValueError: for an option that it has not, and for --max-update.
        """
        left_out = {name.removeprefix("--") for name in names}
        can = self.train.keys() - {"max-update"}
        if unknown := sorted(left_out - can):
            raise ValueError(f"--without {' '.join(unknown)}: recipe {self.name} has only {', '.join(sorted(can))}.")
        return replace(self, train={name: value for name, value in self.train.items() if name not in left_out})

    def tokens(self) -> float:
        """Tokens that the training reads, padding left out of account: the sum of its batches on all GPUs.

        Raises:
            ValueError: if batches or updates are not numbers, or are missing.
        """

        def number(name: str) -> int:
            value = str(self.train.get(name) or "")
            if value and not value.isdecimal():
                raise ValueError(f"Recipe {self.name}: train: {name} is {short(value)}, which is not a whole number.")
            return int(value or 0)

        blocks = number("batch-size") * (number("tokens-per-sample") or 512)
        if not (size := min(filter(None, (number("max-tokens"), blocks)), default=0)):
            raise ValueError(f"Recipe {self.name}: train: batch-size and max-tokens are missing: give one of them.")
        end, name, times = number("max-update"), "grow-max-tokens", 1
        if size == blocks and self.train.get("grow-tokens-per-sample"):
            name, times = "grow-tokens-per-sample", number("batch-size")
        text = self.train.get(name) or f"0:{size}"
        try:
            steps = [(int(update), int(value) * times) for update, value in (word.split(":") for word in text.split())]
        except ValueError:
            raise ValueError(f"Recipe {self.name}: {name} {text!r} is not UPDATE:VALUE ...") from None
        total = sum(value * max(0, min(to, end) - at) for (at, value), (to, _) in pairwise([*steps, (end, 0)]))
        return float(total * (number("update-freq") or 1) * (self.gpus if self.device == "gpu" else 1))


@cache
def package_recipes() -> tuple[Recipe, ...]:
    """The recipes of the package, the shortest first."""
    recipes = (load(path.stem) for path in RECIPES.glob("*.yaml"))
    return tuple(sorted(recipes, key=lambda each: (each.device == "gpu", each.gpus, each.hours)))


def load(name: str) -> Recipe:
    """The recipe of a name of the package, or of a YAML file.

    Raises:
        ValueError: if there is none of that name, with the nearest ones; or for a file that is not a recipe.
        FileNotFoundError: if there is no such file.
    """
    path = recipe_path(name)
    file = read_file(path)
    train = file.subsection("train").as_options()
    if not str(train.get("max-update", "")).isdecimal() or int(train["max-update"]) == 0:
        number = train.get("max-update")
        raise file.subsection("train").error(f"--max-update must be the number of updates, got {number!r}.")
    return file.as_settings(Recipe, name=file.content.get("name", path.stem), train=train)
