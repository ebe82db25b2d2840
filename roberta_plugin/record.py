"""Records: what something was made from, by name, and the one sentence about what differs now.

A record is a flat mapping: settings by the names of their options, inputs by hash or by size, as plain values. Whoever
keeps results keeps their record with them (`json_files`), and compares it when the command is given again:

    kept with                       made from                                 a difference
    prepared.json                   settings, tokenizer, official files       is refused
    start.json of a fine-tuning     weights, examples                         is refused
    run.json of a sweep's run       options of fairseq-train                  is refused
    run.json of a launched run      options, by their `on_resume`; batch      is refused, but for --accept-changes
    a fine-tuned checkpoint         settings of its data, options, head       is refused, or a warning
    parts of a .bin, manifest.json  text, tokenizer, dict.txt, rules          is refused, but for --overwrite

Example:
    changes = differences({"lr": "1"}, {"lr": "2", "bf16": "true"})
    refuse("runs/a holds a run with other options", changes, "Give another --output-dir.")
    ->  ValueError: runs/a holds a run with other options: --lr was 1 and is 2 now; --bf16 was not given and is true
        now. Give another --output-dir.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_DIGEST = re.compile(r"[0-9a-f]{64}")
_DIGITS = 8  # of a hash that is shown
_MOST_SHOWN = 400  # characters of a value
_GIVEN = "given"  # value of a flag


@dataclass(frozen=True)
class Difference:
    """A setting or input that is not what it was."""

    name: str  # as the user gives it
    before: Any
    now: Any

    def __str__(self) -> str:
        before, now = shown(self.before), shown(self.now)
        places = enumerate(zip(before, now, strict=False))
        first = next((place for place, (one, other) in places if one != other), min(len(before), len(now)))
        return f"{self.name} was {_around(before, first)} and is {_around(now, first)} now"


def _around(text: str, place: int) -> str:
    """A long text, cut around the place where it differs from another."""
    if len(text) <= _MOST_SHOWN:
        return text
    start = max(0, min(place - _MOST_SHOWN // 4, len(text) - _MOST_SHOWN))
    end = start + _MOST_SHOWN
    return ("..." if start else "") + text[start:end] + ("..." if end < len(text) else "")


def option_name(name: str) -> str:
    """A setting as an option of the command line, which it may be already.

    Example:
        option_name("max_length")  ->  "--max-length"
    """
    return name if name.startswith("-") else f"--{name.replace('_', '-')}"


def differences(
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    *,
    free: Callable[[str], bool] = lambda name: False,
    named: Callable[[str], str] = option_name,
) -> list[Difference]:
    """Differences between two records; values missing in one of them are None there.

    Names that are `free` may differ. `named` is the user's word for a name. If it is empty, the value follows from
    others, and its difference is reported only if none of them differs.
    """
    names = [name for name in dict.fromkeys([*before, *now]) if before.get(name) != now.get(name) and not free(name)]
    independent = [name for name in names if named(name)] or names
    return [Difference(named(name) or name, before.get(name), now.get(name)) for name in independent]


def refuse(what: str, changes: Sequence[Difference], remedy: str) -> None:
    """Raise a ValueError with `what`, each difference and the remedy, a sentence; nothing if there is no difference."""
    if changes:
        raise ValueError(f"{what}: {listed(changes)}. {remedy}".rstrip())


def listed(changes: Sequence[Difference]) -> str:
    """All differences in one clause."""
    return "; ".join(map(str, changes))


def shown(value: object) -> str:
    """A value in a sentence; hashes are shortened to their first digits.

    Examples:
        shown({"kind": "gpt2", "sizes": [1, 2]})  ->  "kind gpt2, sizes 1, 2"
        shown([])                                 ->  "nothing"
        shown("")                                 ->  "''"
    """
    if value is None:
        return "not given"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {shown(one)}" for name, one in value.items()) or "nothing"
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value)) or "nothing"
    return _DIGEST.sub(lambda digest: digest.group()[:_DIGITS], str(value)) or "''"


def options_of(arguments: Sequence[str]) -> dict[str, str]:
    """The record of a command line of fairseq-train.

    Example:
        options_of(["d", "--lr", "1", "--seed=2", "--bf16"])
        ->  {"data": "d", "--lr": "1", "--seed": "2", "--bf16": "given"}
    """
    values: dict[str, list[str]] = {}
    name = "data"
    for argument in arguments:
        words = [argument]
        if argument.startswith("--"):
            name, _, value = argument.partition("=")
            words = [value] if value else []
        values.setdefault(name, []).extend(words)
    return {name: " ".join(texts) or _GIVEN for name, texts in values.items()}


def moved(path: str, *, before: str, now: Path, among: Collection[str]) -> str:
    """A path as one of `among`, if it is there once the folder `before` is `now`; else, and for other texts, itself.

    What is beside the folder may have moved along, and so may all that is around it, as far as names are the same.

    Example:
        moved("/a/model.pt", before="/a/RTE/runs", now=Path("/b/RTE/runs"), among=["/b/model.pt"])  ->  "/b/model.pt"
    """
    old, found = Path(before), [path]
    while old.name:
        around = f"{old.parent}/"
        found += [str(now.parent / path.removeprefix(around))] if path.startswith(around) else []
        old, now = old.parent, now.parent
        if old.name != now.name:
            break
    return next((each for each in found if each in among), path)
