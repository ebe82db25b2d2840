"""Prompts: what some models of vectors read in front of a text, such as "query: " (E5, Wang et al. 2022).

They are settings of a model, by their names, and come from a folder of sentence-transformers. `predict` and `embed` put
one of them in front of each text, as sentence-transformers' `encode` does. Trainings read texts as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roberta_plugin.finetuning.layouts.texts import Encoder

PROMPTS, DEFAULT = "prompts", "default_prompt_name"
INCLUDED = "include_prompt"  # False: a prompt is read, but its tokens are no part of the vector; mostly left out
OPTION = "--prompt-name"
USUAL = ("query", "document")  # names that sentence-transformers knows of every model; empty unless one says otherwise


def find_prompt(settings: Mapping[str, Any], name: str | None, *, option: str = OPTION) -> str:
    """The prompt of this name; without a name the model's default, which is mostly none.

    Raises:
        ValueError: if the model has no such prompt.
    """
    prompts = settings.get(PROMPTS) or {}
    name = settings.get(DEFAULT) if name is None else name
    if name is None:
        return ""
    if name not in prompts and name not in USUAL:
        known = f"it has {', '.join(prompts)}" if prompts else "it has none"
        raise ValueError(f"{option} {name}: the model has no prompt of this name, {known}. Name another one.")
    return str(prompts.get(name, ""))


def num_skipped(settings: Mapping[str, Any], prompt: str, encoder: Encoder, *, max_length: int) -> int:
    """Positions of a prompt that are left out of vectors, <s> included: as many as the prompt has alone.

    Example: "query: " of the tokens `query`, `:` and a space, and a model that leaves prompts out -> 4
    """
    if not prompt or settings.get(INCLUDED) is not False:
        return 0
    return min(1 + len(encoder.ids(prompt)), max_length - 1)


def are_prompts(value: object) -> bool:
    """True for texts by their names."""
    return isinstance(value, dict) and all(isinstance(text, str) for pair in value.items() for text in pair)
