"""Fault 4: `--bf16` selects a TPU."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from fairseq.dataclass.utils import convert_namespace_to_omegaconf

_fairseq_convert = convert_namespace_to_omegaconf


def take_back_tpu(args: argparse.Namespace, argv: Sequence[str]) -> None:
    """Unset the `tpu` that fairseq derives from --bf16, unless `argv` has --tpu; see fault 4."""
    if getattr(args, "bf16", False):
        args.tpu = "--tpu" in argv


def without_tpu(args: argparse.Namespace) -> Any:
    """Parsed options of the running command -> fairseq's config."""
    take_back_tpu(args, sys.argv)
    return _fairseq_convert(args)


def install() -> None:
    """Replace fairseq's converter by `without_tpu` in the commands already loaded."""
    for name in ("fairseq_cli.train", "fairseq_cli.validate", "__main__"):
        module = sys.modules.get(name)
        if getattr(module, "convert_namespace_to_omegaconf", None) is _fairseq_convert:
            module.convert_namespace_to_omegaconf = without_tpu  # type: ignore[union-attr]
