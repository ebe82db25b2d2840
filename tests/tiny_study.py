"""A study file of tiny models on made-up text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

BASE = {
    "cpu": "true",
    "task": "roberta_masked_lm",
    "criterion": "roberta_masked_lm",
    "arch": "fast_roberta_tiny",
    "encoder-layers": "2",
    "encoder-embed-dim": "32",
    "encoder-ffn-embed-dim": "64",
    "encoder-attention-heads": "2",
    "tokens-per-sample": "64",
    "max-positions": "64",
    "sample-break-mode": "complete",
    "batch-size": "4",
    "optimizer": "roberta_adamw",
    "lr": "1e-3",
    "lr-scheduler": "polynomial_decay",
    "num-workers": "0",
    "no-epoch-checkpoints": "true",
    "save-interval-updates": "5",
    "keep-interval-updates": "1",
    "validate-interval": "1000",
    "log-interval": "1",
}


def write_study(
    path: Path, *, data: Path, variants: dict[str, Any], base: dict[str, Any] | None = None, **sections: Any
):
    """Write a study file; `sections` replace or add to what is here, None leaves a section out."""
    content = {
        "title": "A tiny study",
        "base": {"data": str(data), **BASE, **(base or {})},
        "variants": variants,
        "seeds": ["1", "2"],
        "budget": {"equal": "updates", "amount": "20"},
        "probes": {"held-out": {"kind": "perplexity"}},
        **sections,
    }
    path.write_text(yaml.safe_dump({name: section for name, section in content.items() if section is not None}))
    return path
