"""Which settings let a small model learn most in the same processor time?

    OMP_NUM_THREADS=1 python -m tests.benchmarks.bench_switches DATA-BIN --output-dir DIR [--minutes 6] [--seeds 1,2]
        [--cells today,rotary] [--write]

Each cell is the recipe half-hour with learned positions, which it had before this search, and some options changed, trained
by fairseq's Trainer with this package's task, model and optimizer. Learning rate and batch are functions of the share of
`--minutes` of processor time that the training has used, so that all cells have the same time, whatever else the machine
does; faster settings make more updates. The learning rate rises for 7 % of the time and falls linearly from there; batches
are of 1,024 tokens for the first quarter, then of 2,048. The score is the validation loss by the recipe's masks (30 %), and
nothing else chooses.

Each cell leaves its last checkpoint in a folder of DIR, which `roberta` opens. A cell whose folder exists is not trained
again, so that several of these commands, one a core, share a DIR; delete the folder of one that was interrupted.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from fairseq import options as fairseq_options
from fairseq import tasks, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.trainer import Trainer

import roberta_plugin  # noqa: F401  -- registers the task and the model
from roberta_plugin.data.count_baselines import baselines_of
from roberta_plugin.launch.options_file import to_arguments
from roberta_plugin.optim.stages import parse, share_at
from roberta_plugin.pretraining import recipe as recipes
from tests.benchmarks import harness

Options = dict[str, Any]

BATCHES = ((0.0, 1024), (0.25, 2048))  # share of the time -> tokens of a batch
TIME = 100_000  # the whole time, in units of the stages of the learning rate
STAGES, STAGES_WITH_DECAY = "7000:1 100000:0", "7000:1 80000:1 100000:0"
VALIDATION_BATCHES = 12  # of 8,192 tokens
CONTROL = ("max-update", "lr-scheduler", "lr-stages", "grow-max-tokens", "max-valid-steps")  # by updates in the recipe

# The recipe before it took what won.
LEARNED: Options = {"position-encoding": None, "qk-norm": None, "init-attention": "neighbors"}
GATED = {"encoder-ffn-embed-dim": 688}  # with three matrices as many parameters as 1,024 with two
CELLS: dict[str, Options] = {
    "today": {},
    "rotary": {"position-encoding": "rotary", "init-attention": None},
    "random-heads": {"init-attention": None},
    "no-zero-init": {"zero-init-residual": None},
    "geglu": {"feed-forward": "geglu"} | GATED,
    "swiglu": {"feed-forward": "swiglu"} | GATED,
    "rms": {"norm": "rms"},
    "no-biases": {"no-norm-bias": True, "no-linear-bias": True},
    "qk-norm": {"qk-norm": True},
    "no-first-norm": {"no-first-attention-norm": True},
    "window": {"attention-window": 32, "global-attention-every": 2},
    "base-300": {"rotary-base": 300},
    "untied": {"untie-weights-roberta": True},
    "decay-sqrt": {"decay": "1-sqrt"},
    "decay-linear": {"decay": "linear"},
}
"""What each cell changes; null takes an option of the recipe away. decay: constant for 4/5 of the time, then to 0."""


def rate(share: float, decay: str | None) -> float:
    """The learning rate after this share of the time, of its peak: `--lr-stages` with the time in place of updates."""
    points = parse(STAGES if decay is None else STAGES_WITH_DECAY)
    return share_at(points, round(share * TIME), shape=decay or "linear")


def arguments_of(data: Path, cell: Options, seed: int) -> list[str]:
    """The arguments of fairseq-train for the recipe with the options of `cell`."""
    train = {name: value for name, value in recipes.load("half-hour").train.items() if name not in CONTROL}
    train |= LEARNED | {name: value for name, value in cell.items() if name != "decay"}
    train = {name: str(value).lower() for name, value in train.items() if value is not None}
    given = to_arguments(train, where="half-hour")
    return [str(data), *given, "--seed", str(seed), "--no-progress-bar", "--lr-scheduler", "fixed", "--cpu"]


def build(arguments: list[str]) -> tuple[Trainer, Any]:
    """The Trainer and the task of a command of fairseq-train."""
    parser = fairseq_options.get_training_parser()
    cfg = convert_namespace_to_omegaconf(fairseq_options.parse_args_and_arch(parser, arguments))
    utils.import_user_module(cfg.common)
    torch.manual_seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    task.load_dataset("train", epoch=1, combine=True)
    task.load_dataset("valid", epoch=1)
    return Trainer(cfg, task, model, task.build_criterion(cfg.criterion)), task


def train(trainer: Trainer, task: Any, seconds: float, decay: str | None) -> dict[str, float]:
    """Train for so many seconds of processor time. Returns the updates and the tokens read."""
    dataset, lr = task.dataset("train"), float(trainer.cfg.optimization.lr[0])
    updates = tokens = epoch = 0
    start = time.process_time()
    for number, (_, batch) in enumerate(BATCHES):
        end = BATCHES[number + 1][0] if number + 1 < len(BATCHES) else 1.0
        while time.process_time() - start < end * seconds:
            epoch += 1
            iterator = task.get_batch_iterator(
                dataset,
                max_tokens=batch,
                max_positions=trainer.model.max_positions(),
                seed=trainer.cfg.common.seed,
                epoch=epoch,
                disable_iterator_cache=True,
            )
            for sample in iterator.next_epoch_itr(shuffle=True):
                share = (time.process_time() - start) / seconds
                if share >= end:
                    break
                trainer.optimizer.set_lr(lr * rate(share, decay))
                with metrics.aggregate(new_root=True):
                    trainer.train_step([sample])
                updates += 1
                tokens += sample["ntokens"]
    return {"updates": updates, "tokens": int(tokens), "seconds": time.process_time() - start}


@torch.no_grad()
def validation_loss(trainer: Trainer, task: Any) -> float:
    """Bits a masked token of the validation split."""
    iterator = task.get_batch_iterator(
        task.dataset("valid"), max_tokens=8192, max_positions=trainer.model.max_positions(), seed=1, epoch=1
    ).next_epoch_itr(shuffle=False)
    trainer.model.eval()
    total = number = 0.0
    for _, sample in zip(range(VALIDATION_BATCHES), iterator, strict=False):
        loss, size, _ = trainer.criterion(trainer.model, sample)
        total, number = total + float(loss), number + size
    return total / number / math.log(2)


def options_of(name: str) -> Options:
    """The options that a cell changes: those of its parts, joined by +."""
    unknown = [part for part in name.split("+") if part not in CELLS]
    if unknown:
        raise ValueError(f"--cells: no cell {', '.join(unknown)}; there are {', '.join(CELLS)}.")
    return {option: value for part in name.split("+") for option, value in CELLS[part].items()}


def folder_of(name: str, seed: int, options: argparse.Namespace) -> Path:
    """Where a cell's checkpoint lies."""
    folder: Path = options.output_dir / f"{name}.{seed}"
    return folder


def run(name: str, seed: int, options: argparse.Namespace) -> None:
    """Train one cell, keep its checkpoint, and add its line to the results."""
    cell = options_of(name)
    trainer, task = build(arguments_of(options.data, cell, seed))
    found: dict[str, Any] = {"cell": name, "seed": seed, "minutes": options.minutes}
    found |= train(trainer, task, options.minutes * 60, cell.get("decay"))
    found["bits"] = validation_loss(trainer, task)
    found["perplexity"] = 2 ** found["bits"]
    folder = folder_of(name, seed, options)
    trainer.consolidate_optimizer()
    trainer.save_checkpoint(str(folder / "checkpoint_last.pt"), {"train_iterator": {"epoch": 1}})
    harness.add(options.output_dir / "results.jsonl", found)


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=6, help="processor time of a cell")
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument(
        "--cells", default=",".join(CELLS), help="names, joined by + to change all of it: rotary+qk-norm"
    )
    options = parser.parse_args()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    names = options.cells.split(",")
    for name in names:
        options_of(name)
    for seed in map(int, options.seeds.split(",")):
        for name in names:
            try:
                folder_of(name, seed, options).mkdir()
            except FileExistsError:
                continue  # trained before, or beside this
            run(name, seed, options)

    found = baselines_of([options.data / "train"], {"": [options.data / "valid"]})[""]
    assert found is not None
    report = harness.Report("switches_cpu1", "Switches of a small model, at equal processor time", __doc__)
    both = 2**found.neighbors.both.loss
    report.text(
        f"Unigram baseline {2**found.unigram:,.1f}, bigram baseline {2**found.bigram:,.1f}, counts of both neighbors, "
        f"if none of them is masked, {both:,.1f}."
    )
    rows = rows_of(harness.known(options.output_dir / "results.jsonl"))
    report.rows(("cell", "updates", "million tokens", "perplexity of each seed", "mean"), rows, texts=1)
    report.show(write=options.write)


def rows_of(lines: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """A row a cell, the best first: the mean of its seeds in bits, as a perplexity."""
    cells: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        cells.setdefault(line["cell"], []).append(line)
    means = {name: 2 ** statistics.mean(line["bits"] for line in own) for name, own in cells.items()}
    rows = []
    for name in sorted(cells, key=lambda name: means[name]):
        own = sorted(cells[name], key=lambda line: line["seed"])
        updates = "; ".join(f"{line['updates']:,}" for line in own)
        tokens = "; ".join(f"{line['tokens'] / 1e6:.1f}" for line in own)
        seeds = "; ".join(f"{line['perplexity']:.1f}" for line in own)
        rows.append((name, updates, tokens, seeds, f"{means[name]:.1f}"))
    return rows


if __name__ == "__main__":
    main()
