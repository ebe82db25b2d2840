"""The code of model cards, by which transformers gives the answers of an exported folder (`Kind.usage`).

It has what is not in the weights: texts are cut as in fine-tuning, and a threshold and a temperature are applied.
FOLDER, in quotation marks, stands for the folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roberta_plugin.finetuning.layouts.texts import TextLayout


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What the code depends on beside the settings of the kind."""

    mask: str
    """The mask as the tokenizer of the folder has it."""
    labels: tuple[str, ...]
    decides_by: Mapping[str, float]
    reads_pairs: bool | None
    """None: not known."""
    layout: TextLayout
    max_positions: int
    pooling: str
    is_normalized: bool
    model_arguments: Mapping[str, Any]
    """What the class without a head is called with, so that it adds no pooler."""
    is_byte_level: bool

    def cut(self, how: str = "True") -> str:
        """Arguments of the tokenizer that cut a text; by itself it cuts at the most positions."""
        shorter = f", max_length={self.layout.max_length}" if self.layout.max_length < self.max_positions else ""
        return f"truncation={how}{shorter}"


def python_block(code: str) -> str:
    """Code as a block of Markdown."""
    return f"```python\n{code}\n```"


def pipeline_block(call: str, *lines: str, imports: str = "") -> str:
    """The block of code that makes a pipeline by the arguments `call`, and then runs these lines."""
    return python_block("\n".join([f"{imports}from transformers import pipeline\n\npipe = pipeline({call})", *lines]))


def note_on_long_texts(model: Exported) -> str:
    """What the code of a text does not say of a model that reads more than the begin of a long one."""
    parts = {"tail": "their end", "head+tail": "their begin and end", "windows": "windows over all of them"}
    part = parts.get(model.layout.long_texts or "")
    return f"\n\nOf longer texts, the model was judged by {part}, not by their begin as here." if part else ""
