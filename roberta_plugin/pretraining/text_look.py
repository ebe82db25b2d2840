"""A look at the text of a pretraining before it begins: what is in it, and what would flatter the model's scores."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from roberta_plugin.data.text_check import MOST_BYTES, Overlap, TextCheck, check_text, find_overlap
from roberta_plugin.data.text_inputs import LineRules
from roberta_plugin.data.text_inputs_files import TextInput
from roberta_plugin.pretraining.settings import PretrainSettings
from roberta_plugin.pretraining.texts import documents, split_documents

MOST_SEEN = 0.02  # share of the held-out text that may be in the training text without a warning


NOT_COMPARED = "The held-out text was not compared with the training text: together they have more than 100 MB."


class Look(NamedTuple):
    """The findings."""

    check: TextCheck
    overlap: Overlap | None
    """None where the text is too large, or has nothing to hold out."""
    is_too_large: bool = False
    """True if the held-out text was not compared for that reason."""

    @property
    def overlap_is_large(self) -> bool:
        """If it makes the scores look better than they are."""
        return self.overlap is not None and self.overlap.share > MOST_SEEN

    def warnings(self) -> list[str]:
        """Problems that should be solved before training."""
        warnings = self.check.warnings()
        if self.overlap is not None and self.overlap_is_large:
            warnings.append(
                f"{self.overlap.describe()}\n    Scores on such text measure memory: remove the duplicates, or "
                "give held-out text from another source by --valid"
            )
        return warnings


def warnings_before(settings: PretrainSettings) -> list[str]:
    """What `roberta check` would warn about, a line for each fault; empty if all is well.

    Pipes and URLs are not read for it.
    """
    reading = settings.reading
    train, valid = (reading.sources(patterns) if patterns else [] for patterns in (settings.data, settings.valid))
    if any(source.is_stream or source.is_remote for source in [*train, *valid]):
        return []
    look = look_at(train, valid, rules=reading.rules)
    warnings = [f"WARNING: {warning.splitlines()[0]}" for warning in look.warnings()]
    warnings += [f"note: {NOT_COMPARED}"] if look.is_too_large else []
    words = [*settings.data, *(["--valid", *settings.valid] if settings.valid else [])]
    return [*warnings, f"`roberta check {shlex.join(words)}` shows the lines."] if warnings else []


def look_at(
    train: Sequence[TextInput],
    valid: Sequence[TextInput],
    *,
    rules: LineRules,
    on_read: Callable[[int], None] = lambda num_bytes: None,
) -> Look:
    """Check training text, and compare it with the held-out text, or with the part that `roberta pretrain` holds out.

    Pipes are read by the training alone.
    """
    check = check_text(train, rules, on_read=on_read)
    rules = replace(rules, skip_bad_lines=True)  # they were counted
    if sum(source.size for source in [*train, *valid]) > MOST_BYTES:
        return Look(check, None, is_too_large=True)
    if valid:
        held_out, trained = _lines(valid, rules), _lines(train, rules)
    else:
        held_out, trained = (_part(train, rules, is_held_out=is_held_out) for is_held_out in (True, False))
    overlap = find_overlap(held_out, trained)
    return Look(check, overlap if overlap.num_lines else None)


def _lines(sources: Sequence[TextInput], rules: LineRules) -> Iterator[str]:
    return (line for document in documents(sources, rules) for line in document)


def _part(sources: Sequence[TextInput], rules: LineRules, *, is_held_out: bool) -> Iterator[str]:
    for is_part, document in split_documents(sources, rules):
        if is_part == is_held_out:
            yield from document
