"""`roberta train`: one rank of a recipe's training, started by torchrun where there is no SLURM."""

from __future__ import annotations

import argparse

from roberta_plugin.cli.launch import add_recipe_options, recipe_of


def define(parser: argparse.ArgumentParser) -> None:
    """Describe `roberta train`; its options are those of a recipe."""
    parser.usage = "torchrun [options] --no-python roberta train [--config FILE] [options] [-- DATA-BIN train options]"
    parser.description = (
        "Trains the recipe of `roberta launch` as one rank of torchrun, or alone without torchrun. Every start begins "
        "at the newest whole checkpoint of the run folder, and the recipe's batch is shared out among the ranks; "
        "Ctrl-C and SIGTERM save a checkpoint first. Settings for SLURM are not used."
    )
    add_recipe_options(parser)
    parser.set_defaults(takes_further=True)  # refused by `run`


def run(args: argparse.Namespace) -> int:
    """Train; the exit code is 0 at the end, and 128 + the signal's number after a stop."""
    if args.further or not (args.config or args.output_dir):
        raise ValueError(
            "this verb is a rank of a recipe: give --config or --output-dir, and options of fairseq-train after --. To "
            "pretrain on your own text or data-bin: `roberta pretrain DATA`; to fine-tune: `roberta finetune TASK`."
        )
    from roberta_plugin.launch.job import rank_of_torchrun, train_rank

    return train_rank(recipe_of(args), rank_of_torchrun())
