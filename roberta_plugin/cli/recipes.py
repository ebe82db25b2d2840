"""`roberta recipes`: the recipes of pretraining in a table, or one of them whole."""

from __future__ import annotations

import argparse

from roberta_plugin.pretraining.recipe import FOLDER, load, names


def define(parser: argparse.ArgumentParser) -> None:
    """Describe `roberta recipes`."""
    parser.description = (
        "Lists the recipes of `roberta pretrain --recipe`, or shows one: its options, the reasons for them, and what "
        "came out. A copy of the file, changed, is a recipe, too."
    )
    parser.add_argument("name", nargs="?", help="a recipe to show (default: all, a line each)")


def run(args: argparse.Namespace) -> int:
    """Print the table, or the file of one."""
    if args.name:
        load(args.name)
        print((FOLDER / f"{args.name}.yaml").read_text(encoding="utf-8"), end="")
        return 0
    for recipe in map(load, names()):
        hours = f"{recipe.hours:g} h" if recipe.hours >= 0.5 else f"{60 * recipe.hours:.0f} min"
        run_by = "" if recipe.run_by_us else " (not run by us)"
        print(f"{recipe.name:<14}{hours:>7}  {recipe.summary}{run_by}")
    return 0
