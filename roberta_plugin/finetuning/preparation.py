"""Is a prepared folder the one that a command asks for? `roberta finetune` must not train on other data in silence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.finetuning.raw_files import describe
from roberta_plugin.finetuning.suites import Suite


class Asked(NamedTuple):
    """What a command says of the preparation; None or nothing where it says nothing."""

    raw: Path | None
    tokenizer: Path | None
    max_length: int | None
    options: Mapping[str, str]


def check_same(prepared: Prepared, asked: Asked, suite: Suite) -> None:
    """Refuse a prepared folder that was made of other files, with another tokenizer or with other settings.

    A command with --raw describes a whole preparation, so that its defaults count as well; without, only what it says.

    Raises:
        FileNotFoundError: if the official files or the tokenizer's are not there.
        ValueError: naming each difference and what to do.
    """
    different = [*_settings(prepared, asked, suite), *_words(prepared, asked), *_files(prepared, asked, suite)]
    if different:
        raise ValueError(
            f"{prepared.folder} was prepared otherwise than this command says: {'; '.join(different)}. Leave these "
            f"options out to use it as it is; or delete it (rm -r {prepared.folder}) and everything trained on it, or "
            "give another --folder, to prepare anew."
        )


def _settings(prepared: Prepared, asked: Asked, suite: Suite) -> Iterator[str]:
    there = prepared.settings
    max_length = there["max_length"] if asked.max_length is None else asked.max_length
    wanted = suite.settings(prepared.task, max_length=max_length, options=asked.options)
    named = {name.replace("-", "_") for name in asked.options} | {"max_length"}
    for name, value in wanted.items():
        if there.get(name) != value and (name in named or asked.raw is not None):
            yield f"it has {name.replace('_', '-')} {there.get(name)}, not {value}"


def _words(prepared: Prepared, asked: Asked) -> Iterator[str]:
    if asked.tokenizer is None:
        return
    known = prepared.content.get("tokenizer") or {}
    if load_tokenizer(asked.tokenizer).description() != known:
        yield f"it has another tokenizer than --tokenizer {asked.tokenizer}"
    elif Vocabulary.load(asked.tokenizer / "dict.txt").sha256 != prepared.vocabulary.sha256:
        yield f"it has another dict.txt than --tokenizer {asked.tokenizer}"


def _files(prepared: Prepared, asked: Asked, suite: Suite) -> Iterator[str]:
    known = prepared.content.get("source")
    if asked.raw is None or not known:
        return
    found: dict[str, Any] = describe(suite.raw_files(prepared.task, asked.raw, asked.options))
    if found != known:
        yield (
            f"it was made of other files ({known['files']} with {known['bytes']:,} bytes) than those of --raw "
            f"{asked.raw} ({found['files']} with {found['bytes']:,} bytes)"
        )
