"""Tags of files -> the labels of the model (`kinds/entities.py`).

With the scheme `plain` the tags are labels as they are, in alphabetical order, such as parts of speech.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from roberta_plugin.finetuning.options import TaggingOptions
from roberta_plugin.finetuning.tagging.reader import Sentence
from roberta_plugin.kinds.entities import entities_of, entity_labels, invalid_places, scheme_of, split_tag, tags_of

logger = logging.getLogger(__name__)

PLAIN = "plain"
TYPES: Mapping[str, tuple[str, ...]] = {  # of the official sets
    "conll2003": ("LOC", "MISC", "ORG", "PER"),
    "wnut17": ("corporation", "creative-work", "group", "location", "person", "product"),
}
_NUM_NAMED = 5  # faults that a warning names


def convert(
    task: str, splits: Mapping[str, Sequence[Sentence]], options: TaggingOptions
) -> tuple[list[str], dict[str, list[list[int]] | None]]:
    """The labels of the model, and of each split the labels of the words of each sentence; None if it has no tags."""
    tagged = {name: list(sentences) for name, sentences in splits.items() if sentences[0].tags is not None}
    if options.scheme == PLAIN:
        labels = sorted({tag for sentences in tagged.values() for each in sentences for tag in each.tags or ()})
        read = {name: [list(each.tags or ()) for each in sentences] for name, sentences in tagged.items()}
    else:
        known = TYPES.get(task) or (
            None if options.types is None else tuple(type_.strip() for type_ in options.types.split(","))
        )
        read = {name: _in_iob2(name, sentences, options, known) for name, sentences in tagged.items()}
        used = {name: {split_tag(tag)[1] for tags in read[name] for tag in tags} - {""} for name in read}
        types = known if known is not None else tuple(sorted(set().union(*used.values())))
        labels = entity_labels(types)
        for name, found in used.items():
            if unseen := sorted(found - used.get("train", found)):
                logger.warning(f"{name} has the types {', '.join(unseen)}, which no entity of train has")
    if len(labels) < 2:
        raise ValueError(
            f"{next(iter(splits.values()))[0].path}: every word has the tag {''.join(labels) or 'O'!r}, so there is "
            "nothing to learn. Name the column of the tags by --tags-column."
        )
    ids = {label: number for number, label in enumerate(labels)}
    numbers = {name: [[ids[tag] for tag in tags] for tags in sentences] for name, sentences in read.items()}
    return labels, {name: numbers.get(name) for name in splits}


def _in_iob2(
    split: str, sentences: Sequence[Sentence], options: TaggingOptions, known: tuple[str, ...] | None
) -> list[list[str]]:
    """The tags of each sentence in IOB2."""
    _check_tags(sentences, known)
    tags = [each.tags or () for each in sentences]
    scheme = options.scheme or scheme_of(tags)
    faults = []
    result = []
    for sentence, given in zip(sentences, tags, strict=True):
        entities = entities_of(given)
        right = tags_of(entities, len(given), scheme)
        for place in invalid_places(given, scheme):
            faults.append(f"{sentence.where(place)}: {given[place]}, read as {right[place]}")
        result.append(tags_of(entities, len(given)))
    if faults and options.strict:
        raise ValueError(
            f"{faults[0]}: the tag is not valid in {scheme.upper()} after the one before it, and {len(faults):,} tags "
            "of this file are not. Correct the file, name its --scheme, or leave --strict out: tags are then read as "
            "conlleval reads them."
        )
    if faults:
        more = f"; and {len(faults) - _NUM_NAMED:,} more" if len(faults) > _NUM_NAMED else ""
        logger.warning(
            f"{split}: {len(faults):,} tags are not valid in {scheme.upper()} and are read as conlleval reads them: "
            f"{'; '.join(faults[:_NUM_NAMED])}{more}"
        )
    logger.info(f"{split}: tags in {scheme.upper()}")
    return result


def _check_tags(sentences: Sequence[Sentence], known: tuple[str, ...] | None) -> None:
    checked: set[str] = set()
    for sentence in sentences:
        for place, tag in enumerate(sentence.tags or ()):
            if tag in checked:
                continue
            checked.add(tag)
            try:
                type_ = split_tag(tag)[1]
            except ValueError as error:
                raise ValueError(
                    f"{sentence.where(place)}: {error}. Name the column of the tags by --tags-column; for tags without "
                    "entities, such as parts of speech, give --scheme plain."
                ) from None
            if known is not None and type_ and type_ not in known:
                raise ValueError(
                    f"{sentence.where(place)}: the type of {tag!r} is none of {', '.join(known)}. Correct the tag, or "
                    "use the task tagging, which finds the types in the files."
                )
