"""A look at the text of a pretraining before it begins: what is in it, and what would flatter the model's scores."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from roberta_plugin.data.text_check import MOST_BYTES, Overlap, TextCheck, check_text, find_overlap
from roberta_plugin.data.text_inputs import InputSettings, LineRules
from roberta_plugin.data.text_inputs_files import TextInput
from roberta_plugin.pretraining.settings import PretrainSettings
from roberta_plugin.pretraining.texts import copies_of, documents, is_copied, options_of_reading, split_documents

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

    Pipes and URLs are not read for it, which a note says. Of a text that is copied, the copy is checked:
    `warnings_of_copy`.
    """
    reading = settings.reading
    train, valid = (reading.sources(patterns) if patterns else [] for patterns in (settings.data, settings.valid))
    unread = [source for source in [*train, *valid] if source.is_stream or source.is_remote]
    words = [*settings.data, *options_of_reading(reading), *(["--valid", *settings.valid] if settings.valid else [])]
    if not unread:
        return _warnings(look_at(train, valid, rules=reading.rules), words)
    name = "A pipe" if unread[0].is_stream else f"{unread[0].name}, a URL,"
    if is_copied(settings, train) and not has_unread(valid):
        return [f"note: {name} is read once: the text is checked when it has been copied, before the training."]
    remedy = "Write the text to a file to have it checked."
    if not any(source.is_stream for source in unread):
        remedy = f"`roberta check {shlex.join(words)}` reads it to check it."
    return [f"note: {name} is not checked before the training. {remedy}"]


def warnings_of_copy(settings: PretrainSettings) -> list[str]:
    """The same for the copy of a text that came by a pipe or URL, which is made by now."""
    reading = settings.reading
    valid = reading.sources(settings.valid) if settings.valid else []
    sources = reading.sources(settings.data)
    if not has_unread(sources) or has_unread(valid) or not is_copied(settings, sources):
        return []
    copies = copies_of(settings)
    held_out = [str(path) for path in copies[1:]] or [*settings.valid]
    of_copy = InputSettings(text_format="text")
    look = look_at(of_copy.sources(copies[:1]), valid or of_copy.sources(copies[1:]), rules=reading.rules)
    return _warnings(look, [str(copies[0]), "--valid", *held_out])


def has_unread(sources: Iterable[TextInput]) -> bool:
    """True if some are pipes or URLs, which are not read twice."""
    return any(source.is_stream or source.is_remote for source in sources)


def _warnings(look: Look, words: Sequence[str]) -> list[str]:
    """The findings in lines, the last of which names the command that shows more; empty without any."""
    warnings = [f"WARNING: {warning.splitlines()[0]}" for warning in look.warnings()]
    warnings += [f"note: {NOT_COMPARED}"] if look.is_too_large else []
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
