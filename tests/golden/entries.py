"""Entries of a recording: text, numbers, or the digest of something large; and how two of them compare.

A digest is {"sha", "form", "numbers"}: the hash of all bytes; shape or text without its decimal numbers; the largest of
the numbers and two projections of them on fixed random directions, whose difference is about the root mean square
difference of the numbers.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

TOLERANCE = 1e-6
EQUAL, WITHIN, DIFFERENT, MISSING, NEW = "equal", "within 1e-6", "different", "missing", "new"
_DECIMAL = re.compile(r"(?<![\w.])-?\d+(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+)(?![\w.])", re.IGNORECASE)
_TEXT_LENGTH = 60  # longer texts are digests


def sha(content: bytes) -> str:
    """Twelve digits of the SHA-256."""
    return hashlib.sha256(content).hexdigest()[:12]


def of_array(array: Any) -> Any:
    """The digest of an array or a tensor; integers have no tolerance, so their hash is enough."""
    values = np.ascontiguousarray(array)
    form = f"{values.dtype}{list(values.shape)}"
    digest = sha(form.encode() + values.tobytes())
    if values.dtype.kind != "f":
        return f"{form} {digest}"
    return {"sha": digest, "form": form, "numbers": _projections(values)}


def of_series(values: list[float]) -> Any:
    """A list of numbers to eight digits, and the hash of their bits."""
    exact = sha(np.array(values, dtype=np.float64).tobytes())
    return {"sha": exact, "form": str(len(values)), "numbers": [float(f"{value:.8g}") for value in values]}


def of_text(text: str) -> Any:
    """A text itself if it is short; the digest of a long one."""
    numbers = [float(number) for number in _DECIMAL.findall(text)]
    if len(text) <= _TEXT_LENGTH and not numbers:
        return text
    digest = sha(text.encode())
    if not numbers:
        return digest
    form = f"{len(numbers)} numbers in {sha(_DECIMAL.sub('#', text).encode())}"
    return {"sha": digest, "form": form, "numbers": _projections(np.array(numbers))}


def of_state(state: Mapping[str, Any], *, listed: re.Pattern[str] | None) -> dict[str, Any]:
    """Names, shapes and values of a model's parameters; those whose name matches `listed` are also named."""
    shapes = [f"{name} {str(state[name].dtype)[6:]}{list(state[name].shape)}" for name in sorted(state)]
    values = [state[name].detach().float().cpu().numpy().ravel() for name in sorted(state)]
    found = {
        "names": f"{len(shapes)} parameters {sha(chr(10).join(shapes).encode())}",
        "values": of_array(np.concatenate(values)),
    }
    if listed is not None:
        heads: dict[str, list[str]] = {}
        for shape in filter(listed.search, shapes):
            place = shape.find(".", shape.find(".") + 1)  # after the second word of the name
            heads.setdefault(shape[:place], []).append(shape[place + 1 :].replace("float32", ""))
        found["heads"] = [f"{head}: {', '.join(names)}" for head, names in heads.items()]
    return found


def of_tree(tree: Any) -> str:
    """The hash of all tensors and plain values of nested dicts and lists."""
    from tests.campaign.subjects import digest

    return digest(tree)[:12]


def of_folder(folder: Path, clean: Any, *, skip: Iterable[str] = ()) -> dict[str, Any]:
    """The files of a folder: arrays, texts with decimal numbers, and bytes; `clean` takes out of texts what changes."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or any(re.search(pattern, name) for pattern in skip):
            continue
        content = path.read_bytes()
        if path.suffix == ".npy":
            found[name] = of_array(np.load(path))
        elif path.suffix in (".bin", ".idx", ".gz", ".zip", ".model", ".png") or b"\0" in content:
            found[name] = sha(content)
        else:
            found[name] = of_text(clean(content.decode()))
    return found


def _projections(values: np.ndarray) -> list[float]:
    flat = np.nan_to_num(values.astype(np.float64).ravel(), nan=1e9, posinf=2e9, neginf=-2e9)
    if not flat.size:
        return []
    directions = np.random.default_rng(0).standard_normal((2, flat.size)) / math.sqrt(flat.size)
    return [float(f"{number:.9g}") for number in (np.abs(flat).max(), *(directions @ flat))]


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts -> one, with names joined by "/"; digests stay whole."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict) and set(value) != {"sha", "form", "numbers"}:
            flat |= flatten(value, f"{prefix}{name}/")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def outcome(before: Any, now: Any) -> str:
    """How an entry of now compares with the one before."""
    if before == now:
        return EQUAL
    if isinstance(before, dict) and isinstance(now, dict):
        is_near = before["form"] == now["form"] and _near(before["numbers"], now["numbers"])
    else:
        is_near = _near(before, now)
    return WITHIN if is_near else DIFFERENT


def _near(before: Any, now: Any) -> bool:
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(_near, before, now))
    if isinstance(before, int | float) and isinstance(now, int | float):
        return abs(before - now) <= TOLERANCE * max(1.0, abs(before))
    return bool(before == now)


def compare(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """The outcome of each entry."""
    outcomes = {name: outcome(value, now[name]) if name in now else MISSING for name, value in before.items()}
    return outcomes | {name: NEW for name in now if name not in before}


def difference(before: Any, now: Any) -> str:
    """What differs, in a line: of lists and digests the numbers, of texts their beginning."""
    if isinstance(before, dict) and isinstance(now, dict) and before["form"] == now["form"]:
        return difference(before["numbers"], now["numbers"])
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        places = [place for place, pair in enumerate(zip(before, now, strict=True)) if pair[0] != pair[1]]
        if not places:
            return "only the bits differ"
        place = places[0]
        return f"{len(places)} of {len(now)} differ, from number {place}: {before[place]!r} -> {now[place]!r}"
    if isinstance(before, list) and isinstance(now, list):
        gone, come = [item for item in before if item not in now], [item for item in now if item not in before]
        return f"- {gone[:5]} + {come[:5]}"
    return f"{json.dumps(before)[:300]} -> {json.dumps(now)[:300]}"
