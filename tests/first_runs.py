"""`roberta finetune` with its default grid, whose first run is trained in this process by fairseq's own main.

So that importing everything is paid for once.
"""

from __future__ import annotations

from pathlib import Path

from roberta_plugin.cli import build_parser
from roberta_plugin.experiments.evaluation import EvaluateSettings, evaluate
from roberta_plugin.experiments.finetuning_plan import GRID
from roberta_plugin.experiments.sweeps.grid import read_grid
from roberta_plugin.launch import arguments as train_arguments


def finetune_first_run(work: Path, task: str, folder: Path, *options: str, raw: str = "raw") -> Path:
    """Prepare, write the grid, train its first run and evaluate it in `folder`/results; the run's best checkpoint.

    Args:
        work: has the official files in `raw`, tokenizer/ and model.pt.
        task: of `roberta finetune`.
        folder: its output folder.
        options: further ones of `roberta finetune`.
        raw: folder in `work`.
    """
    words = [task, "--raw", work / raw, "--tokenizer", work / "tokenizer", "--model", work / "model.pt"]
    words += ["--output-dir", folder, "--seeds", "1", "--grid-only", *options]
    args = build_parser("finetune").parse_args(["finetune", *map(str, words)])
    assert args.run(args) == 0
    grid = read_grid(folder / GRID)
    first = grid.runs[0]
    train(first.arguments_in(folder / "runs" / first.name, grid.metric))
    checkpoint = folder / "runs" / first.name / "checkpoints" / "checkpoint_best.pt"
    evaluate(
        EvaluateSettings(data=folder / "data", checkpoints=[checkpoint], output_dir=folder / "results", device="cpu")
    )
    return checkpoint


def train(words: list[str]) -> None:
    """What `fairseq-train` does with these words."""
    from fairseq.checkpoint_utils import save_checkpoint
    from fairseq.logging import metrics
    from fairseq_cli.train import main

    from roberta_plugin.fairseq_workarounds.stopping import interruption

    if hasattr(save_checkpoint, "best"):
        del save_checkpoint.best  # fairseq keeps the best metric there, also of the task before
    try:
        main(train_arguments.to_config(train_arguments.parse(words)))
    finally:  # so that other tests find nothing of it
        metrics.reset()
        interruption.end()  # else what they fork is deaf to SIGTERM, as data-loader workers are
