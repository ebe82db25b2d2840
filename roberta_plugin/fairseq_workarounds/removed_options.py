"""Fault 22: commands and checkpoints of earlier versions, with options that are gone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise, zip_longest
from typing import Any

from omegaconf import DictConfig, open_dict

REMOVED = {
    "--background-checkpoints": "save less often where checkpoints take long, by --save-interval-updates",
    "--bert-pairs": "leave it out, and pairs are drawn anew in every epoch; --num-static-masks N draws N times",
    "--degenerate-patience": "see accuracy in the log; reports name a run that is no better than a constant answer",
    "--degenerate-action": "see accuracy in the log; reports name a run that is no better than a constant answer",
    "--attention-backend nested": "leave it out, and auto chooses",
    "--attention-backend varlen": "leave it out, and auto chooses torch_flash where the GPU has it",
    "--attention-backend flash": "leave it out, and auto chooses torch_flash where the GPU has it",
}
"""An option, or one value of it -> what to do instead."""


def parse_args_and_arch(
    fairseqs: Callable[..., Any],
    parser: argparse.ArgumentParser,
    input_args: Sequence[str] | None = None,
    *args: Any,
    **options: Any,
) -> Any:
    """fairseq's parse; a removed option is refused in one line, without the usage of all others."""
    arguments = sys.argv[1:] if input_args is None else list(input_args)
    if removed := _removed(arguments):
        option = removed[0]
        parser.usage = argparse.SUPPRESS
        parser.error(f"{option} was removed: {REMOVED[option]}.")
    return fairseqs(parser, input_args, *args, **options)


def without_removed(arguments: Sequence[str]) -> list[str]:
    """The arguments of an earlier version that are still options."""
    if not _removed(arguments):
        return list(arguments)
    kept: list[str] = []
    is_removed = False
    for word, following in zip_longest(words := _words(arguments), words[1:]):
        if word.startswith("--"):  # its values follow
            is_removed = word in REMOVED or f"{word} {following}" in REMOVED
        if not is_removed:
            kept.append(word)
    return kept


def load_checkpoint_to_cpu(fairseqs: Callable[..., dict[str, Any]], *args: Any, **options: Any) -> dict[str, Any]:
    """fairseq's function; a removed value of the saved model is as if not given, which fairseq does for options."""
    state = fairseqs(*args, **options)
    model: Any = (state.get("cfg") or {}).get("model")
    for option in REMOVED if isinstance(model, DictConfig) else ():
        name, _, value = option.removeprefix("--").replace("-", "_").partition(" ")
        if value and name in model and str(model[name]) == value:
            with open_dict(model):
                del model[name]
    return state


def _removed(arguments: Sequence[str]) -> list[str]:
    words = _words(arguments)
    return [word for word in (*words, *map(" ".join, pairwise(words))) if word in REMOVED]


def _words(arguments: Sequence[str]) -> list[str]:
    """The arguments, `--name=value` in two words."""
    return [part for text in arguments for part in (text.split("=", 1) if text.startswith("--") else [text])]
