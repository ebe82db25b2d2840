"""The code in model cards for getting the answers of an exported folder by transformers (`Kind.usage`).

The code cuts texts as in fine-tuning, and applies a threshold and a temperature, because the weights do not contain
these. The exported folder is "FOLDER" in the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roberta_plugin.finetuning.layouts.texts import TextLayout


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The properties of an export that the code depends on, besides the settings of the kind."""

    mask: str
    """The mask in the spelling of the folder's tokenizer."""
    labels: tuple[str, ...]
    decides_by: Mapping[str, float]
    reads_pairs: bool | None
    """None: not known."""
    layout: TextLayout
    max_positions: int
    pooling: str
    is_normalized: bool
    model_arguments: Mapping[str, Any]
    """Arguments of the class without a head, so that it adds no pooler."""
    is_byte_level: bool

    def cut(self, how: str = "True") -> str:
        """Arguments of the tokenizer for cutting a text; the tokenizer's own limit is the number of positions."""
        shorter = f", max_length={self.layout.max_length}" if self.layout.max_length < self.max_positions else ""
        return f"truncation={how}{shorter}"


def python_block(code: str) -> str:
    """Code as a block of Markdown."""
    return f"```python\n{code}\n```"


def pipeline_block(call: str, *lines: str, imports: str = "") -> str:
    """A block of code that makes a pipeline with the arguments `call`, and then runs `lines`."""
    return python_block("\n".join([f"{imports}from transformers import pipeline\n\npipe = pipeline({call})", *lines]))


def note_on_long_texts(model: Exported) -> str:
    """A note for models that read more than the beginning of a long text, because the code reads only that."""
    parts = {"tail": "their end", "head+tail": "their beginning and end", "windows": "windows over all of them"}
    part = parts.get(model.layout.long_texts or "")
    return f"\n\nOf longer texts the model was evaluated on {part}, not on their beginning as here." if part else ""
