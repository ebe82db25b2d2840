"""Tags as files write them -> tags that `entities` reads, or plain labels. One rule for official tasks and own tables.

    letters     B-PER I-PER O      as in the schemes of `entities`; M and W of BMES stand for I and S
                B_PER, B:PER       with another mark
                PER-B, PER_I       the letter behind the type
                b-per i-per o      in small letters
    io          PER PER O          a type alone: words in a row with the same tag are one entity
    brackets    (PER* *) *         as in CoNLL-2005 and 2012
    plain       NOUN VERB          labels as they are, such as parts of speech

The tags of the training file decide: letters or brackets if all tags can be read so; io if at least 20 % of the words
are O; plain if no word is O. Files between these are refused unless --scheme says what they are. CoNLL-U is plain
unless its tags are letters with types. The log says how the tags were read.

Letters alone, such as B, I and O, are entities of one type without a name if B or I and O are among them.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from roberta_plugin.extensions.tagging.entities import (
    OUTSIDE,
    entities_of,
    invalid_places,
    scheme_of,
    split_tag,
    tags_of,
)
from roberta_plugin.extensions.tagging.files import check_named, is_universal
from roberta_plugin.finetuning.examples import Example

logger = logging.getLogger(__name__)

IO, PLAIN = "io", "plain"
_CHECKED_AS = {"bmes": "iobes"}
_IO_SHARE = 0.2  # smallest share of words that are O in a file of entities without letters
_NUM_NAMED = 5  # faults that a warning names
_LETTERS = "BIESLUMW"
_STANDARD_LETTERS = str.maketrans("MW", "IS")
_MARKS = "[-_:./|\u2010-\u2015\u2212]"  # the last ones are hyphens, dashes and the minus sign
_FORMS = {  # how a tag can have a letter and a type
    "letters": re.compile(f"(?P<letter>[{_LETTERS}])-(?P<type>.*)"),
    "letters with another mark": re.compile(f"(?P<letter>[{_LETTERS}]){_MARKS}(?P<type>.+)"),
    "small letters": re.compile(f"(?P<letter>[{_LETTERS.lower()}]){_MARKS}(?P<type>.+)"),
    "letters behind the types": re.compile(f"(?P<type>.+){_MARKS}(?P<letter>[{_LETTERS}])"),
    "small letters behind the types": re.compile(f"(?P<type>.+){_MARKS}(?P<letter>[{_LETTERS.lower()}])"),
}
_USUAL = "letters"
_BRACKETS = re.compile(r"(?P<open>(?:\([^()*]+)*)\*?(?P<close>\)*)")


class TagError(ValueError):
    """A tag that cannot be read, by its place in a sentence."""

    def __init__(self, word: int, reason: str) -> None:
        super().__init__(reason)
        self.word, self.reason = word, reason


class Notation(NamedTuple):
    """How the tags of a file are written."""

    name: str
    read: Callable[[Sequence[str]], Sequence[str]]
    """The tags of a sentence -> tags that `entities` reads, or plain ones."""


def unify(
    splits: Mapping[str, Sequence[Example]],
    *,
    scheme: str | None,
    option: str,
    strict: bool = False,
    needs_entities: bool = False,
) -> dict[str, list[Example]]:
    """The sentences of each split, with tags that `entities` reads, or with plain ones.

    Args:
        splits: the sentences as the files have them. Splits without tags stay as they are.
        scheme: one of `options.SCHEMES`; None: it is detected.
        option: the option that names the column of the tags.
        strict: refuse tags that are not valid in their scheme, instead of warning of them.
        needs_entities: refuse plain tags.
    """
    tagged = [name for name, sentences in splits.items() if sentences and sentences[0].target is not None]
    if not tagged:
        return {name: list(sentences) for name, sentences in splits.items()}
    first = "train" if "train" in tagged else tagged[0]
    notation = _find_notation(splits[first], scheme, option, needs_entities=needs_entities)
    result = {}
    for name, sentences in splits.items():
        result[name] = [_read(each, notation, option) for each in sentences] if name in tagged else list(sentences)
        if name in tagged and notation.name != PLAIN:
            is_checked = notation.name in _FORMS
            _check_scheme(name, result[name], (scheme if scheme != IO else None) if is_checked else "iob2", strict)
    return result


def are_entity_tags(tags: Iterable[str]) -> bool:
    """True if `entities` can read the tags: O, letters with types, or letters alone.

    Letters alone, without any type, are only read if B is one of them, or I and O are: a file of the tags "S" and "M"
    has other labels.
    """
    found = set(tags)
    typed = [tag for tag in found if _FORMS[_USUAL].fullmatch(tag)]
    alone = found - set(typed) - {OUTSIDE}
    if any(tag not in _LETTERS or len(tag) != 1 for tag in alone):
        return False
    return bool(typed) or not alone or "B" in alone or {"I", OUTSIDE} <= found


def types_among(names: Sequence[str]) -> list[str] | None:
    """The types of entities among the names of tags, in their order; None if they are written in another way.

    Example: O, B-PER, I-PER, B-LOC and O, PER, LOC -> PER, LOC.
    """
    if are_entity_tags(names):
        return [
            *dict.fromkeys(
                split_tag(name[:1].translate(_STANDARD_LETTERS) + name[1:])[1] for name in names if name != OUTSIDE
            )
        ]
    return [name for name in names if name != OUTSIDE] if OUTSIDE in names else None


def _read(sentence: Example, notation: Notation, option: str) -> Example:
    try:
        return sentence._replace(target=tuple(notation.read(sentence.target)))
    except TagError as fault:
        raise ValueError(
            f"{sentence.place_of_word(fault.word)}: the tag {sentence.target[fault.word]!r} {fault.reason}. Correct "
            f"the tag, or name another column by {option}."
        ) from None


def _find_notation(sentences: Sequence[Example], scheme: str | None, option: str, *, needs_entities: bool) -> Notation:
    """How the tags of a file are written: as --scheme says, else as the tags show. The log says what was found.

    Each step has the tags of its example; a tag that fits no step is refused, with its place.
    """
    if scheme == PLAIN:
        return Notation(PLAIN, tuple)
    counts = Counter(tag for each in sentences for tag in each.target)
    if scheme == IO:
        return _io_notation(_find_outside(counts) or OUTSIDE)
    path, universal = sentences[0].path, is_universal(sentences[0].path)
    outside = {OUTSIDE, "_"} if universal else {OUTSIDE}
    if scheme is None and all(tag.isdecimal() for tag in counts):  # 0 1 2: names are missing
        check_named(counts, sentences[0].place_of_word(0), option)
    letters = _find_letters(counts, outside)
    others = [tag for tag in counts if letters is not None and not _fits(tag, letters)]
    if letters is not None and not others:  # B-PER I-PER O, or b:per i:per o
        _log_letters(path, [tag for tag in counts if tag not in outside], letters)
        return letters
    if universal and scheme is None and not needs_entities:  # NOUN VERB in the column UPOS
        return Notation(PLAIN, tuple)
    if letters is not None:  # B-PER I-PER PER O
        typed = next(tag for tag in counts if tag not in others and tag not in outside)
        _refuse(sentences, others[0], f"as {typed!r} is", option)
    if all(_is_bracket(tag) for tag in counts) and any("(" in tag for tag in counts):  # (PER* *) *
        one = next(tag for tag in counts if "(" in tag)
        logger.warning(f"{path}: tags with brackets, such as {one!r}, are read as entities")
        return Notation("brackets", _read_brackets)
    if scheme is not None or needs_entities:  # NOUN VERB, where letters have to be
        _refuse(sentences, next((tag for tag in counts if tag != _find_outside(counts)), OUTSIDE), "", option)
    return _find_types(sentences, counts, option)


def _find_types(sentences: Sequence[Example], counts: Counter[str], option: str) -> Notation:
    """The notation of tags without letters: plain without O, io with many O, refused with few O.

    Examples: NOUN VERB NOUN is plain, PER O O LOC O is io, and a single O among NOUN and VERB is refused: it may be an
    interjection.
    """
    path, nothing = sentences[0].path, _find_outside(counts)
    one = next((tag for tag in counts if tag != nothing), OUTSIDE)
    if nothing is None:
        logger.warning(
            f"{path}: tags such as {one!r} are plain labels, because no tag has a letter before a type, as B-PER, and "
            f"no tag is O: accuracy is the metric. If that is not meant, name another column by {option}."
        )
        return Notation(PLAIN, tuple)
    if counts[nothing] < _IO_SHARE * counts.total():
        raise ValueError(
            f"{_place_of(sentences, one)}: the tag {one!r} has no letter, as B-PER has, and only {counts[nothing]:,} "
            f"of {counts.total():,} words have the tag {nothing!r}. Give --scheme io if words in a row with the same "
            f"tag are an entity, --scheme plain if the tags are not entities, or name another column by {option}."
        )
    logger.warning(
        f"{path}: tags such as {one!r} have no letter, as B-PER has: words in a row with the same tag are read as one "
        f"entity, and {nothing!r} as no entity (--scheme io). Give --scheme plain if the tags are not entities."
    )
    return _io_notation(nothing)


def _log_letters(path: Path, tags: Iterable[str], notation: Notation) -> None:
    """Log an example of tags that are read as others, such as b-per as B-PER."""
    one = next((tag for tag in tags if notation.read([tag])[0] != tag), None)
    if one is not None:
        logger.warning(f"{path}: tags such as {one!r} are read as {notation.read([one])[0]!r}")


def _find_outside(tags: Mapping[str, int]) -> str | None:
    """The tag of words outside of entities, in a file of types without letters; None if the file has no such tag."""
    return next((tag for tag in (OUTSIDE, "o", "0") if tag in tags), None)


def _find_letters(counts: Mapping[str, int], outside: set[str]) -> Notation | None:
    """The notation of letters that the tags have, or seem to have; None if they have no letters.

    Tags seem to have letters if one is as in B-PER. Another form, such as PER-B, has to fit all tags, or half of them
    in a file with O, because NOUN-S may be a label of its own. The tags that do not fit are refused later.
    """
    if are_entity_tags(tag for tag in counts if tag not in outside - {OUTSIDE}):
        return _letter_notation(_USUAL, outside)
    for name, form in _FORMS.items():
        notation = _letter_notation(name, outside)
        num_typed = sum(form.fullmatch(tag) is not None for tag in counts)
        num_others = sum(not _fits(tag, notation) for tag in counts)
        is_likely = OUTSIDE in counts and num_typed >= num_others
        if num_typed and (name == _USUAL or not num_others or is_likely):
            return notation
    return None


def _letter_notation(name: str, outside: set[str]) -> Notation:
    form = _FORMS[name]
    nothing = outside | ({"o"} if name.startswith("small") else set())

    def read(tags: Sequence[str]) -> list[str]:
        result = []
        for word, tag in enumerate(tags):
            found = form.fullmatch(tag)
            if tag in nothing:
                result.append(OUTSIDE)
            elif found:
                result.append(f"{found['letter'].upper().translate(_STANDARD_LETTERS)}-{found['type']}")
            elif name == _USUAL and len(tag) == 1 and tag in _LETTERS:
                result.append(tag.translate(_STANDARD_LETTERS))
            else:
                raise TagError(
                    word, "is neither O nor B-TYPE, I-TYPE, E-TYPE or S-TYPE, as the tags of the training table are"
                )
        return result

    return Notation(name, read)


def _fits(tag: str, notation: Notation) -> bool:
    try:
        notation.read([tag])
    except TagError:
        return False
    return True


def _io_notation(nothing: str) -> Notation:
    """Words in a row with the same tag are one entity; `nothing` is the tag of words outside of entities."""

    def read(tags: Sequence[str]) -> list[str]:
        result, before = [], nothing
        for tag in tags:
            result.append(OUTSIDE if tag == nothing else f"{'I' if tag == before else 'B'}-{tag}")
            before = tag
        return result

    return Notation(IO, read)


def _is_bracket(tag: str) -> bool:
    return bool(tag) and tag not in ("(", ")") and _BRACKETS.fullmatch(tag) is not None


def _read_brackets(tags: Sequence[str]) -> list[str]:
    """Tags such as (PER* *) * -> B-PER I-PER O."""
    result, inside, begun = [], "", 0
    for word, tag in enumerate(tags):
        found = _BRACKETS.fullmatch(tag)
        if found is None:
            raise TagError(word, "has no brackets around a type, as (PER* and *) have")
        opened = found["open"].split("(")[1:]
        if len(opened) > 1 or (opened and inside) or len(found["close"]) > (1 if opened or inside else 0):
            raise TagError(
                word,
                "begins or ends an entity within another one, and a word can have only one tag: keep the outer one",
            )
        if opened:
            begun = word
        type_ = opened[0].strip() if opened else inside
        result.append(f"{'B' if opened else 'I'}-{type_}" if type_ else OUTSIDE)
        inside = "" if found["close"] else type_
    if inside:
        raise TagError(begun, "begins an entity that does not end in its sentence")
    return result


def _place_of(sentences: Sequence[Example], tag: str) -> str:
    return next(each.place_of_word(each.target.index(tag)) for each in sentences if tag in each.target)


def _refuse(sentences: Sequence[Example], tag: str, compared: str, option: str) -> NoReturn:
    raise ValueError(
        f"{_place_of(sentences, tag)}: the tag {tag!r} is neither O nor B-TYPE, I-TYPE, E-TYPE or S-TYPE"
        f"{compared and f', {compared}'}. Correct the tag, or name another column by {option}; for tags without "
        "entities, such as parts of speech, give --scheme plain, and for types without letters --scheme io."
    )


def _check_scheme(split: str, sentences: Sequence[Example], scheme: str | None, strict: bool) -> None:
    """Refuse tags that are not valid in their scheme, or warn of them."""
    name = scheme or scheme_of([each.target for each in sentences])
    checked = _CHECKED_AS.get(name, name)
    faults = []
    for sentence in sentences:
        right = tags_of(entities_of(sentence.target), len(sentence.target), checked)
        for word in invalid_places(sentence.target, checked):
            faults.append(f"{sentence.place_of_word(word)}: {sentence.target[word]}, read as {right[word]}")
    if faults and strict:
        raise ValueError(
            f"{faults[0]}: the tag is invalid in {name.upper()} after the previous tag. The file has {len(faults):,} "
            "such tags. Correct the file, name its --scheme, or leave --strict out: tags are then interpreted as "
            "conlleval would."
        )
    if faults:
        more = f"; and {len(faults) - _NUM_NAMED:,} more" if len(faults) > _NUM_NAMED else ""
        logger.warning(
            f"{split}: {len(faults):,} {'tag is' if len(faults) == 1 else 'tags are'} invalid in {name.upper()} and "
            f"interpreted as conlleval would: "
            f"{'; '.join(faults[:_NUM_NAMED])}{more}"
        )
    logger.info(f"{split}: tags in {name.upper()}")
