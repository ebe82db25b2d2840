"""Inputs and outputs of a run, and whether the outputs exist already, complete or in part. Used by `pipeline`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_plugin.data.binarize.folder import clear_parts, folder_lock
from roberta_plugin.data.manifest import read_manifest, sha256_of_files, write_manifest
from roberta_plugin.data.text_inputs_files import TextInput
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.files import atomic_write
from roberta_plugin.json_files import sha256_of_json
from roberta_plugin.record import Difference, differences, listed, option_name

_SMALLEST_PART, _LARGEST_PART = 2**20, 2**24  # bytes of text
_PARTS_OF_SMALL_CORPUS = 16  # enough for the workers of an ordinary machine


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Inputs and outputs of a run; equal plans make equal files, unless an input is a pipe.

    `inputs` has absolute path or URL, bytes, modification time or version and format of each source.
    """

    sources: list[TextInput]
    inputs: list[tuple[str, int, int | str, str]]
    split: str
    tokenizer: dict[str, Any]
    dict_sha256: str
    rules: dict[str, Any]
    part_bytes: int

    @property
    def has_streams(self) -> bool:
        """Whether an input is a pipe, which can neither be compared nor read again."""
        return any(source.is_stream for source in self.sources)

    def as_json(self) -> Any:
        """All fields but the sources, as JSON values."""
        return json.loads(json.dumps({name: value for name, value in vars(self).items() if name != "sources"}))


def make_plan(
    sources: Sequence[TextInput],
    split: str,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    rules: dict[str, Any],
    part_bytes: int | None,
) -> Plan:
    """A plan to binarize `sources` as `split`."""
    if not re.fullmatch(r"[\w.-]+", split) or split.startswith("."):
        raise ValueError(f"The name of a split may contain letters, digits, '_', '-' and '.', got {split!r}.")
    inputs = [source.identity() for source in sources]
    if part_bytes is None:
        share = sum(size for _, size, _, _ in inputs) // _PARTS_OF_SMALL_CORPUS
        part_bytes = min(max(share, _SMALLEST_PART), _LARGEST_PART)
    return Plan(
        sources=list(sources),
        inputs=inputs,
        split=split,
        tokenizer=tokenizer.description(),
        dict_sha256=hashlib.sha256(vocabulary.as_text().encode()).hexdigest(),
        rules=rules,
        part_bytes=part_bytes,
    )


def check_unchanged(plan: Plan, digests: Mapping[str, tuple[int, str]]) -> None:
    """Raise ValueError if an input has changed since the plan was made, or fewer bytes of it came than it has.

    `digests` has the bytes and the hash of inputs, by path.
    """
    for source, identity in zip(plan.sources, plan.inputs, strict=True):
        if source.identity(is_fresh=True) != identity:
            raise ValueError(f"{source.name} changed while it was being read: run the command again with --overwrite.")
        num_bytes, _ = digests.get(source.path, (identity[1], ""))
        if identity[1] not in (0, num_bytes):
            raise ValueError(
                f"{source.name} has {identity[1]:,} bytes, and {num_bytes:,} of them came: run the command again with "
                "--overwrite."
            )


def is_made(folder: Path, plan: Plan, workers: int) -> bool:
    """Whether the split exists, made by this plan or from the same text with another path or modification time."""
    manifest = read_manifest(folder)
    made = manifest["splits"].get(plan.split) if manifest else None
    if manifest is None or made is None or plan.has_streams:
        return False
    for name, record in made["outputs"].items():
        if not (folder / name).is_file() or (folder / name).stat().st_size != record["bytes"]:
            return False
    if made.get("plan_sha256") == sha256_of_json(plan.as_json()):
        return True
    if _differences(folder, plan) or any(source.is_remote for source in plan.sources):
        return False
    digests = sha256_of_files([source.path for source in plan.sources], workers=workers)
    found = [(digest, text_format) for digest, (_, _, _, text_format) in zip(digests, plan.inputs, strict=True)]
    if found != [(each["sha256"], each["format"]) for each in made["inputs"]]:
        return False
    with suppress(OSError):  # the next run need not hash; a read-only folder stays as it is
        _remember_plan(folder, plan)
    return True


def _remember_plan(folder: Path, plan: Plan) -> None:
    with folder_lock(folder):
        manifest = read_manifest(folder)
        if manifest and plan.split in manifest["splits"]:
            splits = manifest.pop("splits")
            splits[plan.split]["plan_sha256"] = sha256_of_json(plan.as_json())
            write_manifest(folder, manifest, splits)


def _differences(folder: Path, plan: Plan) -> list[Difference]:
    """What a split, or the plan of its part files, was made from otherwise; of texts, number and size are compared."""
    manifest, parts = read_manifest(folder), folder / f"{plan.split}.parts"
    made = (manifest or {"splits": {}})["splits"].get(plan.split)
    if made is not None:
        before = {**made, **(manifest or {}), "sizes": [each["bytes"] for each in made["inputs"]]}
    elif before := _planned(parts) or {}:
        before["sizes"] = [size for _, size, _, _ in before["inputs"]]
    else:
        return []
    now = {**plan.as_json(), "sizes": [size for _, size, _, _ in plan.inputs]}
    of_text = f"the text of {plan.split}"
    records = (
        {
            of_text: f"{sum(each['sizes']):,} bytes in {len(each['sizes'])} file{'s' * (len(each['sizes']) != 1)}",
            "tokenizer": each["tokenizer"],
            "dict.txt": each["dict_sha256"],
            **{"text_column" if name == "json_field" else name: value for name, value in each["rules"].items()},
            "part_bytes": each.get("part_bytes", plan.part_bytes),
        }
        for each in (before, now)
    )
    return differences(
        *records,
        free=lambda name: name == of_text and plan.has_streams,
        named=lambda name: name if name in (of_text, "dict.txt") else option_name(name),
    )


def _planned(parts: Path) -> dict[str, Any] | None:
    """The plan of a folder of part files; empty if it is damaged, None if there is none."""
    with suppress(FileNotFoundError):
        try:
            plan = json.loads((parts / "plan.json").read_bytes())
        except ValueError:
            return {}
        return plan if isinstance(plan, dict) and {"inputs", "tokenizer", "dict_sha256", "rules"} <= plan.keys() else {}
    return None


def is_planned(parts: Path, plan: Plan) -> bool | None:
    """Whether the folder of part files belongs to this plan; None if it has no plan."""
    before = _planned(parts)
    return None if before is None else before == plan.as_json()


def prepare_parts(folder: Path, parts: Path, plan: Plan, *, overwrite: bool) -> None:
    """Prepare the folder of part files: new, or left by a run of the same plan."""
    is_same = is_planned(parts, plan)
    if not is_same and not overwrite:
        present = [name for name in (f"{plan.split}.bin", f"{plan.split}.idx") if (folder / name).exists()]
        if present or is_same is not None:
            what = f"{present[0]} of another corpus" if present else f"an unfinished {plan.split} of another corpus"
            found = listed(_differences(folder, plan))
            raise FileExistsError(
                f"{folder} contains {what}, or one made with other options{f': {found}' if found else ''}. Write to "
                "another folder, or replace it with --overwrite."
            )
    if is_same and not plan.has_streams:
        for path in parts.glob(".*.tmp"):
            path.unlink()
        return
    clear_parts(parts)
    with atomic_write(parts / "plan.json", "w") as file:
        json.dump(plan.as_json(), file)
