"""Settings of `roberta evaluate blimp` and `roberta evaluate zorro`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roberta_plugin.kinds import ScoreMethod
from roberta_plugin.machine import Precision
from roberta_plugin.settings import Checked, setting

PAIR_BENCHMARKS = ("blimp", "zorro")


@dataclass(frozen=True, kw_only=True)
class PairOptions(Checked):
    """Options that only minimal pairs have."""

    method: ScoreMethod | None = setting(
        None, "blimp, zorro: how to score a sentence, as `roberta predict --score` (pll for blimp, unmasked for zorro)"
    )
    limit: int | None = setting(
        None, "blimp, zorro: only the first pairs of each paradigm, for a quick look", smallest=1
    )
    all_checkpoints: bool = setting(
        False,
        "blimp, zorro: each folder in --checkpoint stands for all checkpoints in it; draws the curve over updates",
    )
    tokenizer: Path | None = setting(
        None, "blimp, zorro: folder with dict.txt and the tokenizer's files, if they are not those of the model"
    )


@dataclass(frozen=True, kw_only=True)
class PairSettings(PairOptions):
    """What to evaluate; the other options are those of `EvaluateSettings`."""

    benchmark: str
    """blimp or zorro."""
    data: Path
    """Folder of the official files."""
    checkpoints: Sequence[Path]
    """Models: what `RobertaHub.from_pretrained` opens."""
    output_dir: Path
    """Where the report is written, and the scores are stored."""
    max_tokens: int | None = None
    """Most positions of a batch, padding included; None: what suits the device."""
    device: str | None = None
    """Where to compute; None: a GPU if there is one."""
    precision: Precision = "fp32"
    """Precision of the matrix products; see `models/precision.py`."""
    show_progress: bool = False
    """Whether to show progress bars."""
