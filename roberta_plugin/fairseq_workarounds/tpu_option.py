"""Fault 4: a `--bf16` that looks for a TPU."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from fairseq.dataclass.utils import convert_namespace_to_omegaconf

_fairseq_convert = convert_namespace_to_omegaconf


def take_back_tpu(args: argparse.Namespace, words: Sequence[str]) -> None:
    """Undo what fairseq makes of --bf16 in the options parsed from `words`; see fault 4."""
    if getattr(args, "bf16", False):
        args.tpu = "--tpu" in words


def without_tpu(args: argparse.Namespace) -> Any:
    """Options of the running command -> fairseq's config."""
    take_back_tpu(args, sys.argv)
    return _fairseq_convert(args)


def install() -> None:
    """Put `without_tpu` in the place of fairseq's converter in the commands that run already."""
    for name in ("fairseq_cli.train", "fairseq_cli.validate", "__main__"):
        module = sys.modules.get(name)
        if getattr(module, "convert_namespace_to_omegaconf", None) is _fairseq_convert:
            module.convert_namespace_to_omegaconf = without_tpu  # type: ignore[union-attr]
