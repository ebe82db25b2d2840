"""Checks whether the result of a binarization is plausible. Used by `pipeline` and `roberta binarize`.

A split of mostly unknown tokens or mostly bad lines is refused. A suspicious split is written with a
warning and advice.
"""

from __future__ import annotations

from typing import Any

from roberta_plugin.data.binarize.part_files import Counts

MAX_UNKNOWN = 0.5  # share of the tokens of the text, without </s>
_SUSPICIOUS_UNKNOWN = 0.05
_MAX_BAD = 0.5  # share of the lines
_SUSPICIOUS_BAD = 0.1
_FEWEST_TOKENS = 0.01  # per byte of text; real text has 0.2 to 0.7
_BYTES_TO_JUDGE_BY = 10**5


def unknown_share(counts: Counts) -> float:
    """Share of <unk> among the tokens of the text, </s> not counted."""
    return counts.unknown / max(1, counts.tokens - counts.items)


def refuse_nonsense(split: str, counts: Counts, *, max_unknown: float) -> None:
    """Refuse to write an implausible split.

    Raises:
        ValueError: if more than `max_unknown` of its tokens are unknown, or most of its lines are bad.
    """
    if unknown_share(counts) > max_unknown:
        raise ValueError(
            f"{unknown_share(counts):.1%} of the tokens of {split} are unknown: the dict.txt does not belong to the "
            "tokenizer, is cut off, or was made from other text. Nothing was written. To accept it, give "
            "--max-unknown 1."
        )
    if _bad_share(counts) > _MAX_BAD:
        raise ValueError(
            f"{_bad_share(counts):.1%} of the lines of {split} are not UTF-8 text (or not valid records), too many for "
            "--skip-bad-lines. Nothing was written. Convert the input, or check --format and --json-field."
        )


def warnings_about(manifest: dict[str, Any], split: str) -> list[str]:
    """Warnings about a split that was written."""
    made = manifest["splits"][split]
    counts = Counts(**made["counts"])
    found = []
    if counts.tokens == counts.items:
        found.append("it has no text, only blank lines or nothing")
    elif counts.text_bytes > _BYTES_TO_JUDGE_BY and counts.tokens < _FEWEST_TOKENS * counts.text_bytes:
        found.append(
            f"{counts.text_bytes / 1e6:,.1f} MB of input gave only {counts.tokens:,} tokens; is --json-field right?"
        )
    if unknown_share(counts) > _SUSPICIOUS_UNKNOWN:
        found.append(
            f"{unknown_share(counts):.1%} of its tokens are unknown; is the dict.txt complete, "
            "and does it belong to the tokenizer?"
        )
    if _bad_share(counts) > _SUSPICIOUS_BAD:
        found.append(f"{_bad_share(counts):.1%} of its lines were bad and skipped; is it UTF-8 text?")
    num_texts = sum(record.get("format", "text") == "text" for record in made["inputs"])
    if num_texts > 1 and not counts.blank_lines:
        found.append(
            f"its {num_texts} files have no blank line, so all text counts as one document; if each file "
            "is a document, give --blank-line-after-files"
        )
    return [*found, *_repeated_inputs(manifest["splits"], split)]


def _bad_share(counts: Counts) -> float:
    return counts.bad_lines / max(1, counts.items + counts.bad_lines)


def _repeated_inputs(splits: dict[str, Any], split: str) -> list[str]:
    own = {record["sha256"]: record["path"] for record in splits[split]["inputs"] if record["bytes"]}
    return [
        f"{own[record['sha256']]} has the same content as {record['path']} of the split {other}"
        for other, made in splits.items()
        if other != split
        for record in made["inputs"]
        if record["sha256"] in own
    ]
