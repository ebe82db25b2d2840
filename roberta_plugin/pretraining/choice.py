"""A machine, a text and hours -> a recipe, scaled to them, and fairseq-train's command.

The rules, each with its source:

    recipe        the longest for the device and its memory that the hours allow; without --hours, the one that is made
                  for an hour of processors or a day of GPUs
    updates       in proportion to the hours, on the machine's GPUs; warm-up, growth and decay with them
    options       the user's win, and take the place of those of the recipe that only go with what they replace
    passes        a warning above 40 passes over the text (the paper's Table 3 makes some 37 over 16 GB), and below one
    batch         the recipe's, on any number of GPUs: --update-freq takes what they do not hold; a recipe for
                  processors takes one GPU
    vocabulary    8,000 symbols for 55 MB of text (our searches), 50,000 for 160 GB (the paper), between them in
                  proportion to the size of the text to the power of 0.23
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from roberta_plugin.launch.options_file import replaced_by
from roberta_plugin.machine import num_cores
from roberta_plugin.pretraining.recipe import Recipe, package_recipes
from roberta_plugin.record import options_of

DEFAULT_HOURS = {"cpu": 0.5, "gpu": 24.0}
MOST_PASSES = 40
_SLACK = 1.25  # a recipe may be this much longer than the hours, and is then shortened
_SMALL_TEXT_MB, _SMALL_VOCABULARY, _POWER, _LARGEST = 55.0, 8_000, 0.23, 50_000
_OF_BATCHES = (
    *("max-update", "max-tokens", "batch-size", "tokens-per-sample", "grow-max-tokens", "update-freq"),
    "grow-tokens-per-sample",
)


@dataclass(frozen=True)
class Machine:
    """What there is to train on."""

    cores: int
    has_bf16: bool
    gpus: int = 0
    gpu_memory_gb: float = 0.0
    gpu_name: str = ""

    @classmethod
    def here(cls, *, cpu: bool = False, gpus: int | None = None) -> Machine:
        """This machine; with `cpu`, without its GPUs; with `gpus`, with so many."""
        import torch

        from roberta_plugin.models.cpu import has_fast_bf16

        if cpu or not torch.cuda.is_available():
            return cls(num_cores(), has_fast_bf16())
        device = torch.cuda.get_device_properties(0)
        return cls(
            num_cores(),
            torch.cuda.is_bf16_supported(including_emulation=False),
            gpus or torch.cuda.device_count(),
            device.total_memory / 1e9,
            device.name,
        )

    @property
    def device(self) -> str:
        """cpu or gpu."""
        return "gpu" if self.gpus else "cpu"

    def described(self) -> str:
        """In words."""
        bf16 = "with bf16" if self.has_bf16 else "without bf16"
        if self.gpus:
            return f"{self.gpus} x {self.gpu_name} of {self.gpu_memory_gb:.0f} GB, {bf16}"
        return f"{self.cores} CPU core{'s' if self.cores > 1 else ''} {bf16}, no GPU"


def choose(machine: Machine, *, hours: float | None) -> Recipe:
    """The longest recipe of the package for the machine that takes no longer than the hours, or else the shortest."""
    allowed = hours or DEFAULT_HOURS[machine.device]
    found = [
        recipe
        for recipe in package_recipes()
        if recipe.device == machine.device
        and recipe.gpus <= max(1, machine.gpus)
        and recipe.gpu_memory_gb <= machine.gpu_memory_gb
        and recipe.name not in ("demo", "large", "xlmr-base")
    ]
    if not found:
        raise ValueError(
            f"There is no recipe for GPUs of {machine.gpu_memory_gb:.0f} GB: name one by --recipe, with a smaller "
            "--batch-size and a larger --update-freq, or train on the processor by --cpu."
        )
    fitting = [recipe for recipe in found if recipe.hours <= _SLACK * allowed]
    return max(fitting, key=lambda each: (each.gpus, each.hours)) if fitting else found[0]


def fitted(recipe: Recipe, machine: Machine, *, hours: float | None, is_shared: bool = True) -> Recipe:
    """The recipe with the same batch on the machine's GPUs, and for as many hours of these.

    Args:
        recipe: any.
        machine: with GPUs, for a recipe that needs them.
        hours: None: as many updates as the recipe has.
        is_shared: whether its batch is shared out among the GPUs; False where the user gives --update-freq.

    Raises:
        ValueError: if the batch cannot be shared out among the GPUs.
    """
    made = recipe
    if recipe.device == "gpu" and recipe.gpus != machine.gpus and is_shared:
        product = recipe.gpus * int(recipe.train.get("update-freq", 1))
        if product % machine.gpus:
            raise ValueError(
                f"The batch of recipe {recipe.name} is {product} parts, which {machine.gpus} GPUs cannot share out "
                "evenly: give --distributed-world-size a number that divides it, or another --update-freq."
            )
        train = {**recipe.train, "update-freq": str(product // machine.gpus)}
        made = replace(recipe, train=train, gpus=machine.gpus, hours=recipe.hours * recipe.gpus / machine.gpus)
    return made if hours is None else made.scaled(hours / made.hours)


def as_given(recipe: Recipe, parsed: argparse.Namespace) -> Recipe:
    """The recipe with the updates and batches of the command, in which the user's own options have won.

    Raises:
        ValueError: if the training has no end.
    """
    train = dict(recipe.train)
    for name in _OF_BATCHES:
        value = getattr(parsed, name.replace("-", "_"), None)
        value = value[-1] if isinstance(value, list) else value  # --update-freq of the later epochs
        train[name] = "" if value is None else str(value)
    if not int(train["max-update"]):
        raise ValueError("--max-update 0 is a training without an end: give the number of updates.")
    made = replace(recipe, train=train, gpus=max(1, parsed.distributed_world_size))
    return replace(made, hours=recipe.hours * made.tokens() / recipe.tokens())


def vocabulary_size(text_bytes: int) -> int:
    """Symbols of a tokenizer for so much text, rounded to hundreds.

    Example: 55 MB -> 8,000; 1 GB -> 15,600; 160 GB and more -> 50,000; 1 MB -> 3,200.
    """
    size = _SMALL_VOCABULARY * (text_bytes / 1e6 / _SMALL_TEXT_MB) ** _POWER
    return int(min(_LARGEST, max(1_000, round(size, -2))))


def command(recipe: Recipe, machine: Machine, data: str, *, folder: Path, further: Sequence[str] = ()) -> list[str]:
    """The arguments of fairseq-train: the recipe, what the machine adds, folders, and the user's own, which win."""
    import roberta_plugin

    every = max(1, recipe.updates // 10)
    added = ["--save-dir", str(folder / "checkpoints"), "--save-interval-updates", str(min(every, 1000))]
    added += ["--keep-interval-updates", "1", "--no-epoch-checkpoints", "--validate-interval-updates", str(every)]
    added += ["--validate-interval", "1000000", "--tensorboard-logdir", str(folder / "tensorboard")]
    added += ["--log-format", "json", "--log-interval", str(min(100, max(1, recipe.updates // 100))), "--seed", "1"]
    ranks = machine.gpus if recipe.device == "gpu" else 1
    added += ["--distributed-world-size", str(ranks)]  # fairseq's default is a rank on each GPU
    added += (["--bf16"] if machine.has_bf16 else ["--fp16"]) if machine.gpus else ["--cpu", "--num-workers", "0"]
    own = [data, "--user-dir", str(Path(roberta_plugin.__file__).parent), *recipe.arguments(), *added]
    given = options_of(["", *further]).keys() - {"data"}
    left_out = {f"--{name}" for name in replaced_by(name.removeprefix("--") for name in given)}
    if not machine.has_bf16 and not machine.gpus:
        left_out.add("--matmul-precision")  # medium: products in bf16, which only some processors have
    return [*(word for option in _options(own) if option[0] not in left_out for word in option), *further]


def _options(arguments: Sequence[str]) -> list[list[str]]:
    """The options with their values; what comes before the first option is one of its own."""
    found: list[list[str]] = []
    for word in arguments:
        if word.startswith("--") or not found:
            found.append([])
        found[-1].append(word)
    return found


def remarks(recipe: Recipe, machine: Machine, *, tokens: int) -> list[str]:
    """What should be known about this recipe, text (0 tokens: not known yet) and machine; empty if nothing."""
    said = []
    passes = recipe.tokens() / tokens if tokens else 1.0
    if passes > MOST_PASSES:
        said.append(
            f"{passes:,.0f} passes over the text are more than the paper's {MOST_PASSES}: the model may learn it by "
            "heart. Give more text, or fewer --hours."
        )
    elif passes < 1:
        said.append(
            f"the training reads {passes:.0%} of the text: with more --hours, or a larger recipe, it reads all."
        )
    if recipe.device == "cpu" and not machine.has_bf16 and recipe.hours > 0.1:
        said.append("this processor has no bf16, in which the hours were measured: they are about twice as many here.")
    return said
