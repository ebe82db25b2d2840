"""Tags <-> entities, in the schemes that files of tagged words are written in.

Example: the words "in New York City Paris" with the entities LOC 1 to 4 and LOC 4 to 5:

    iob1     O I-LOC I-LOC I-LOC B-LOC      B only between two entities of one type (CoNLL-2003 as distributed)
    iob2     O B-LOC I-LOC I-LOC B-LOC      B at every beginning (WNUT-17)
    iobes    O B-LOC I-LOC E-LOC S-LOC      also the last word, and single words; BIOES is the same
    bilou    O B-LOC I-LOC L-LOC U-LOC      the same with other letters

Every sequence of tags is read as conlleval reads it, whichever scheme it is in and whether or not it is valid there: a
word continues an entity if its tag is I, E or L, the tag before is B or I, and both have the same type. So I after O
begins an entity.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

OUTSIDE = "O"
NO_TYPE = "_"  # of tags that are a letter alone, as seqeval names it
# scheme -> letters of the first word of several, of those within, of the last one, and of a single word
_LETTERS = {
    "iob2": ("B", "I", "I", "B"),
    "iob1": ("B", "I", "I", "B"),
    "iobes": ("B", "I", "E", "S"),
    "bilou": ("B", "I", "L", "U"),
}
SCHEMES = tuple(_LETTERS)
_OPEN, _CONTINUES = "BI", "IEL"


class Entity(NamedTuple):
    """An entity of a sentence, in words."""

    type: str
    start: int
    stop: int
    """The word after the last one."""


def split_tag(tag: str) -> tuple[str, str]:
    """A tag -> its letter and its type.

    Example: "B-creative-work" -> ("B", "creative-work"); "O" -> ("O", ""); "B" -> ("B", "_").

    Raises:
        ValueError: if it does not begin with a letter of a scheme.
    """
    letter, _, type_ = tag.partition("-")
    if tag == OUTSIDE:
        return OUTSIDE, ""
    if len(letter) != 1 or letter not in "BIESLU":
        raise ValueError(f"the tag {tag!r} is neither O nor B-TYPE, I-TYPE, E-TYPE, S-TYPE, L-TYPE or U-TYPE")
    return letter, type_ or NO_TYPE


def entities_of(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence, as conlleval reads its tags.

    Example: entities_of(["I-PER", "I-PER", "B-PER", "O", "E-LOC"])  ->  PER 0 to 2, PER 2 to 3, LOC 4 to 5

    Raises:
        ValueError: if a tag is of no scheme.
    """
    found: list[Entity] = []
    before, start = (OUTSIDE, ""), 0
    for place, tag in enumerate([*tags, OUTSIDE]):
        letter, type_ = split_tag(tag)
        if letter in _CONTINUES and before[0] in _OPEN and before[1] == type_:
            before = (letter, type_)
            continue
        if before[0] != OUTSIDE:
            found.append(Entity(before[1], start, place))
        before, start = (letter, type_), place
    return found


def tags_of(entities: Iterable[Entity], num_words: int, scheme: str = "iob2") -> list[str]:
    """The tags of a sentence of `num_words` words with these entities, in their order; see the example of this file."""
    tags = [OUTSIDE] * num_words
    first, inside, last, single = _LETTERS[scheme]
    before: Entity | None = None
    for entity in entities:
        length = entity.stop - entity.start
        letters = single if length == 1 else first + inside * (length - 2) + last
        if scheme == "iob1" and not (before and before.stop == entity.start and before.type == entity.type):
            letters = inside + letters[1:]
        tags[entity.start : entity.stop] = [f"{letter}-{entity.type}" for letter in letters]
        before = entity
    return tags


def invalid_places(tags: Sequence[str], scheme: str) -> list[int]:
    """The words whose tags are not those that the scheme has for the entities of the sentence.

    Example: invalid_places(["O", "I-PER", "I-PER"], "iob2")  ->  [1]
    """
    right = tags_of(entities_of(tags), len(tags), scheme)
    return [place for place, tag in enumerate(tags) if split_tag(tag) != split_tag(right[place])]


def scheme_of(sentences: Sequence[Sequence[str]]) -> str:
    """The scheme that the tags of a file violate least; the first of `SCHEMES` among equals."""
    letters = {split_tag(tag)[0] for tag in {tag for tags in sentences for tag in tags}}
    candidates = SCHEMES if letters & set("ESLU") else ("iob2", "iob1")
    return min(candidates, key=lambda scheme: sum(len(invalid_places(tags, scheme)) for tags in sentences))
