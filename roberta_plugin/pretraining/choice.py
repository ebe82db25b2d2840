"""A machine, a text and hours -> a recipe, scaled to them, and fairseq-train's command.

The rules, each with its source:

    speed         a recipe's hours are for its hardware: a CPU core with bf16, whose products take 1.8 times as
                  long in fp32 (4 layers x 256); two cores are 1.5 times as fast (both measured), more by Amdahl's law;
                  GPUs by their peaks; a small model on a GPU waits for its kernels to start
    recipe        the one whose length here is nearest, by ratio, to what hours and text allow; without --hours, half an
                  hour on processors and a day on GPUs
    updates       in proportion to the hours; warm-up, growth and decay with them
    options       the user's override the recipe's, and remove options of the recipe that only go with a replaced one
    passes        at most 40 over the text, unless --recipe is given: the paper's Table 3 makes some 37 over 16 GB, and
                  more would not help (Muennighoff et al. 2023); a warning above, and below one
    model         its best size grows with the root of the compute (Hoffmann et al. 2022), as in the recipes; a
                  warning if a recipe is made more than four times as long, or as short
    batch         the recipe's, on any number of GPUs: --update-freq takes what they do not hold; a recipe for
                  processors takes one GPU
    vocabulary    8,000 symbols for 55 MB of text (our searches), 50,000 for 160 GB (the paper), between them in
                  proportion to the size of the text to the power of 0.23
    tokens        before there is a tokenizer: one for 4 bytes of text (measured: 3.8 of docstrings, 4.0 of Icelandic)
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from roberta_plugin.launch.options_file import replaced_by
from roberta_plugin.machine import num_cores
from roberta_plugin.pretraining.recipe import Recipe, package_recipes
from roberta_plugin.record import options_of

MAX_THREADS = 8  # small models cannot use more
DEFAULT_HOURS = {"cpu": 0.5, "gpu": 24.0}
MOST_PASSES = 40
FAR = 4.0  # times the recipe's length, or its fourth: another size of model would learn more
_FP32_TIME = 1.8  # of products in bf16, on a processor with AVX512-BF16
_PARALLEL = 2 / 3  # of an update's work (Amdahl 1967): two cores are 1.5 times as fast
_GPU_UPDATE_S = 0.02  # of a small model; an estimate: some hundred kernels, and fairseq's own work
_SMALL_TEXT_MB, _SMALL_VOCABULARY, _POWER, _LARGEST = 55.0, 8_000, 0.23, 50_000
_BYTES_OF_A_TOKEN = 4
_OF_BATCHES = (
    *("max-update", "max-tokens", "batch-size", "tokens-per-sample", "grow-max-tokens", "update-freq"),
    "grow-tokens-per-sample",
)


@dataclass(frozen=True)
class Machine:
    """The cores and GPUs that there are to train on."""

    cores: int
    has_bf16: bool
    gpus: int = 0
    gpu_memory_gb: float = 0.0
    gpu_name: str = ""

    @classmethod
    def detect(cls, *, cpu: bool = False, gpus: int | None = None) -> Machine:
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
        """The machine in words."""
        bf16 = "with bf16" if self.has_bf16 else "without bf16"
        if self.gpus:
            return f"{self.gpus} x {self.gpu_name} of {self.gpu_memory_gb:.0f} GB, {bf16}"
        return f"{self.cores} CPU core{'s' if self.cores > 1 else ''} {bf16}, no GPU"


def hours_on(machine: Machine, recipe: Recipe) -> float:
    """About how long the recipe takes on the machine."""
    if recipe.device == "gpu":
        from roberta_plugin.models.flops import half_precision_peak

        theirs, ours = (half_precision_peak(name) for name in (recipe.gpu_name, machine.gpu_name))
        return recipe.hours * recipe.gpus / max(1, machine.gpus) * (theirs / ours if theirs and ours else 1.0)
    if machine.gpus:
        return recipe.updates * _GPU_UPDATE_S / 3600
    rounds = recipe.train.get("matmul-precision") == "medium"
    slower = _FP32_TIME if rounds and not machine.has_bf16 else 1.0
    return recipe.hours * slower * (1 - _PARALLEL + _PARALLEL / min(MAX_THREADS, machine.cores))


def choose(machine: Machine, *, hours: float | None, tokens: int = 0) -> Recipe:
    """The package's recipe that is nearest to what machine, hours and the text's tokens (0: not known) allow."""
    allowed = hours or DEFAULT_HOURS[machine.device]
    candidates = [
        recipe
        for recipe in package_recipes()
        if recipe.device in ("cpu", machine.device)
        and recipe.gpu_memory_gb <= machine.gpu_memory_gb
        and recipe.name not in ("demo", "xlmr-base")
    ]
    whole = [recipe for recipe in candidates if recipe.device == "gpu" and not _parts(recipe) % machine.gpus]
    candidates = [recipe for recipe in candidates if recipe.device == "cpu" or not whole or recipe in whole]
    shortest = min((hours_on(machine, recipe) for recipe in candidates if recipe.device == "gpu"), default=math.inf)
    candidates = [recipe for recipe in candidates if recipe.device == "gpu" or hours_on(machine, recipe) < shortest]

    def distance(recipe: Recipe) -> tuple[float, float]:
        recipe_hours = hours_on(machine, recipe)
        return abs(math.log(min(allowed, recipe_hours * most_factor(recipe, tokens)) / recipe_hours)), -recipe.tokens()

    return min(candidates, key=distance)


def most_factor(recipe: Recipe, tokens: int) -> float:
    """How many times as long the recipe is with `MOST_PASSES` over the text."""
    return MOST_PASSES * tokens / recipe.tokens() if tokens else math.inf


def _parts(recipe: Recipe) -> int:
    """Batches of one GPU in an update."""
    return recipe.gpus * int(recipe.train.get("update-freq", 1))


def fitted(
    recipe: Recipe, machine: Machine, *, hours: float | None, most: float = math.inf, is_shared: bool = True
) -> Recipe:
    """The recipe with the same batch on the machine's GPUs, and for as many hours of the machine, if they are given.

    It has `most` times its updates at most. Its batch is not shared out where the user gives --update-freq.

    Raises:
        ValueError: if the batch cannot be shared out among the GPUs.
    """
    recipe = replace(recipe, hours=hours_on(machine, recipe))
    if recipe.device == "gpu" and recipe.gpus != machine.gpus and is_shared:
        if (product := _parts(recipe)) % machine.gpus:
            raise ValueError(
                f"The batch of recipe {recipe.name} is {product} parts, which {machine.gpus} GPUs cannot share out "
                "evenly: give --distributed-world-size a number that divides it, or another --update-freq."
            )
        train = {**recipe.train, "update-freq": str(product // machine.gpus)}
        recipe = replace(recipe, train=train, gpus=machine.gpus)
    factor = min(1.0 if hours is None else hours / recipe.hours, most)
    return recipe if factor == 1.0 else recipe.scaled(factor)


def as_given(recipe: Recipe, parsed: argparse.Namespace) -> Recipe:
    """The recipe after applying the user's options, with the updates and batches of the command.

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
    changed = replace(recipe, train=train, gpus=max(1, parsed.distributed_world_size))
    return replace(changed, hours=recipe.hours * changed.tokens() / recipe.tokens())


def vocabulary_size(text_bytes: int) -> int:
    """Symbols of a tokenizer for a text of this size, rounded to hundreds.

    Example: 55 MB -> 8,000; 1 GB -> 15,600; 160 GB and more -> 50,000; 1 MB -> 3,200.
    """
    size = _SMALL_VOCABULARY * (text_bytes / 1e6 / _SMALL_TEXT_MB) ** _POWER
    return int(min(_LARGEST, max(1_000, round(size, -2))))


def tokens_of_text(text_bytes: int) -> int:
    """Approximate number of tokens of a text of this size, to two digits.

    Example: 5,089,861 bytes of Icelandic -> 1,300,000; its tokenizer makes 1,266,460.
    """
    return int(float(f"{text_bytes / _BYTES_OF_A_TOKEN:.1e}"))


def command(recipe: Recipe, machine: Machine, data: str, *, folder: Path, further: Sequence[str] = ()) -> list[str]:
    """The arguments of fairseq-train: the recipe, what the machine adds, folders, and last the user's options."""
    import roberta_plugin

    every = max(1, recipe.updates // 10)
    added = ["--save-dir", str(folder / "checkpoints"), "--save-interval-updates", str(min(every, 1000))]
    added += ["--keep-interval-updates", "1", "--no-epoch-checkpoints", "--validate-interval-updates", str(every)]
    added += ["--validate-interval", "1000000", "--tensorboard-logdir", str(folder / "tensorboard")]
    added += ["--log-format", "json", "--log-interval", str(min(100, max(1, recipe.updates // 100))), "--seed", "1"]
    ranks = machine.gpus if recipe.device == "gpu" else 1
    added += ["--distributed-world-size", str(ranks)]  # fairseq's default is a rank on each GPU
    added += (["--bf16"] if machine.has_bf16 else ["--fp16"]) if machine.gpus else ["--cpu", "--num-workers", "0"]
    arguments = [data, "--user-dir", str(Path(roberta_plugin.__file__).parent), *recipe.arguments(), *added]
    user_options = options_of(["", *further]).keys() - {"data"}
    left_out = {f"--{name}" for name in replaced_by(name.removeprefix("--") for name in user_options)}
    if not machine.has_bf16 and not machine.gpus:
        left_out.add("--matmul-precision")  # medium: products in bf16, which only some processors have
    return [*(word for option in _options(arguments) if option[0] not in left_out for word in option), *further]


def _options(arguments: Sequence[str]) -> list[list[str]]:
    """The options with their values; the arguments before the first option are a list, too."""
    options: list[list[str]] = []
    for word in arguments:
        if word.startswith("--") or not options:
            options.append([])
        options[-1].append(word)
    return options


def remarks(
    recipe: Recipe,
    base: Recipe,
    machine: Machine,
    *,
    tokens: int,
    hours: float | None = None,
    size_is_given: bool = False,
) -> list[str]:
    """Notes for the user on a training of `recipe`, which was made from `base`.

    `tokens` 0: not known yet; `size_is_given`: the model is one that exists, so other sizes are not recommended.
    """
    notes = []
    passes, factor = recipe.tokens() / tokens if tokens else 1.0, recipe.updates / base.updates
    if passes > 1.01 * MOST_PASSES:
        notes.append(
            f"{passes:,.0f} passes over the text are more than the paper's {MOST_PASSES}: the model may memorize "
            "it. Give more text, or fewer --hours."
        )
    elif passes > 0.99 * MOST_PASSES and recipe.hours < 0.9 * (hours or recipe.hours):
        notes.append(
            f"{MOST_PASSES} passes over the text will finish before {hours:g} hours are up, and more would not help "
            "(Muennighoff et al. 2023). Give more text, or name the --recipe, which then takes the hours."
        )
    elif passes < 1:
        notes.append(
            f"the training reads {passes:.0%} of the text: with more --hours, or a larger recipe, it reads all."
        )
    size = "the best size of a model grows with the root of the compute (Hoffmann et al. 2022)"
    factor = 1.0 if size_is_given else factor
    if factor > FAR:
        notes.append(
            f"At {factor:.0f} times the recipe's length, a larger --arch, or a larger --recipe on other hardware, "
            f"would learn more: {size}."
        )
    elif factor < 1 / FAR:
        notes.append(f"With {factor:.2g} of the recipe's updates, a smaller --recipe would learn more: {size}.")
    if recipe.device == "cpu" and not machine.gpus and not machine.has_bf16 and recipe.hours > 0.1:
        notes.append(
            f"this processor has no bf16, in which the recipes were measured: updates take {_FP32_TIME} times as long, "
            "which the length above counts in; without AVX-512 it is more."
        )
    return notes
