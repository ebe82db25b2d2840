"""A sentence with a pronoun in brackets -> the phrase that it means, or true or false for a marked phrase.

Each phrase replaces the pronoun and is masked, and the masked-LM head scores it. The best phrase wins (paper section
5.1). In a new sentence, the candidates are its noun phrases.

Noun phrases are found by TextBlob's tagger and chunker, where fairseq uses spaCy. TextBlob (its English part is from
Pattern, De Smedt & Daelemans 2012) has its lexicon and rules inside the package, so nothing is downloaded. As in
fairseq's examples/roberta/wsc, every chunk and every run of nouns or of proper nouns in a chunk is a phrase, except
pronouns.

Columns: `before` and `after`, the tokens around the phrase in all sequences of the example; `label`, 1 if its first
phrase is right. The other phrases are its rivals.

Example: {"text": "The trophy would not fit in the suitcase because [it] was too big."} -> {"answer": "The trophy",
"scores": {"The trophy": -1.2, ...}}; with "The _trophy_ would ...", the answer is true or false.

Shapes: N examples of a split, S their sequences, one for each of the P phrases of an example; T tokens of a sequence.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from roberta_plugin.data.white_space import rstrip
from roberta_plugin.extras import require
from roberta_plugin.finetuning.kinds.answering import Answer
from roberta_plugin.finetuning.kinds.base import Kind, logits_of
from roberta_plugin.finetuning.kinds.outputs import Decisions, Outcome, RawOutputs, judge_two_labels, mean_probabilities
from roberta_plugin.finetuning.layouts.texts import Encoder, TextLayout, sentence_inputs
from roberta_plugin.finetuning.prepared import PreparedSplit, SplitWriter
from roberta_plugin.finetuning.records import text_of, texts_of
from roberta_plugin.tables import Row

PRONOUNS = frozenset(
    {"he", "she", "it", "they", "him", "her", "them", "his", "hers", "its", "their", "theirs"}
    | {"himself", "herself", "itself", "themselves"}
)
DETERMINERS = frozenset(
    {"the", "a", "an", "this", "that", "these", "those", "some", "any", "every", "each", "no", "another"}
    | {"my", "your", "his", "her", "its", "our", "their"}
)
WORD = re.compile(r"\w+(?:[.,-]\w+)*(?:['\u2019](?!s\b)\w+)?|['\u2019]s\b|['\u2019](?=\s|$)")
POSSESSIVE = ("'s", "'")

_TOKEN = re.compile(r"(?:Mr|Mrs|Ms|Dr|St)\.|\w+(?:[.,'\u2019-](?!s\b)\w+)*|['\u2019]s\b|[^\w\s]")
_END_OF_SENTENCE = (".", "!", "?", ";")
_NOUNS = ("NN", "NNP")


def noun_phrases(text: str) -> list[str]:
    """Noun phrases in the order of their starts, as the text writes them, without duplicates.

    Example: "The drain is clogged with hair." -> ["The drain", "drain", "hair"].
    """
    tokens = list(_TOKEN.finditer(text))
    spans: set[tuple[int, int]] = set()
    tags = list(_tags([token.group() for token in tokens]))
    for start, end in _chunks(tags):
        if all(tag != "PRP" for tag, _ in tags[start:end]):
            spans.add((start, end))
        spans.update(_noun_runs(tags, start, end))
    phrases = (text[tokens[start].start() : tokens[end - 1].end()] for start, end in sorted(spans))
    return list(dict.fromkeys(phrases))


def _tags(tokens: list[str]) -> Iterator[tuple[str, str]]:
    """Part of speech and chunk tag of each token."""
    require("textblob", extra="noun-phrases", purpose="Finding noun phrases (WNLI, WSC, WinoGrande)")
    from textblob.en import parse

    sentences: list[list[str]] = [[]]
    for token in tokens:
        sentences[-1].append(token)
        if token in _END_OF_SENTENCE:
            sentences.append([])
    lines = "\n".join(" ".join(sentence) for sentence in sentences if sentence)
    for sentence in parse(lines, tokenize=False, collapse=False) if lines else ():
        for _, tag, chunk, *_ in sentence:
            yield tag, chunk


def _chunks(tags: list[tuple[str, str]]) -> Iterator[tuple[int, int]]:
    """Spans of the chunks that are noun phrases and have a noun.

    The tags B-NP I-NP O I-NP B-NP have the chunks 0 to 2, 3 to 4 and 4 to 5: a chunk ends before any tag but I-NP, and
    I-NP also begins one if no chunk is open.
    """
    start = None
    for index, (_, chunk) in enumerate([*tags, ("", "O")]):
        if start is not None and chunk != "I-NP":
            if any(tag.startswith(_NOUNS) for tag, _ in tags[start:index]):
                yield start, index
            start = None
        if chunk == "B-NP" or (chunk == "I-NP" and start is None):
            start = index


def _noun_runs(tags: list[tuple[str, str]], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Spans of nouns, or of proper nouns, one after the other."""
    begin, before = start, ""
    for index in range(start, end + 1):
        tag = tags[index][0] if index < end else ""
        kind = "NNP" if tag.startswith("NNP") else "NN" if tag.startswith("NN") else ""
        if kind != before:
            if before:
                yield begin, index
            begin, before = index, kind


def content_words(phrase: str) -> list[str]:
    """Words of a phrase in lower case, without leading determiners and possessive ending.

    Example: "The old dog's" -> ["old", "dog"].
    """
    return without_determiners(plain_words(list(WORD.finditer(phrase))))


def rivals_of(phrase: str | None, candidates: Iterable[str]) -> list[str]:
    """The candidates that may compete with a phrase, without duplicates; without a phrase, all candidates.

    A rival does not contain the phrase, is not part of it, and has a word besides pronouns and determiners.

    Example: rivals_of("The old dog", ["dog", "the old dog's tail", "it", "a cat"]) -> ["a cat"].
    """
    asked = content_words(phrase) if phrase else []
    rivals: dict[str, None] = {}
    for candidate in candidates:
        words = content_words(candidate)
        if not words or all(word in PRONOUNS for word in words):
            continue
        if not asked or not (contains(words, asked) or contains(asked, words)):
            rivals[candidate] = None
    return list(rivals)


def contains(words: Sequence[str], part: Sequence[str]) -> bool:
    """True if `part` is a contiguous part of `words`."""
    return any(words[start : start + len(part)] == part for start in range(len(words) - len(part) + 1))


def plain_words(words: list[re.Match[str]]) -> list[str]:
    """Words in lower case, with plain apostrophes."""
    return [word.group().lower().replace("\u2019", "'") for word in words]


def without_determiners(words: list[str]) -> list[str]:
    """Plain words without leading determiners and possessive ending."""
    while words and words[0] in DETERMINERS:
        words = words[1:]
    return words[:-1] if words and words[-1] in POSSESSIVE else words


logger = logging.getLogger(__name__)

_FORM = "Mark the pronoun with [ ], and a phrase to ask about with _ _, as in: The _trophy_ did not fit, [it] was big."


@dataclass(frozen=True, slots=True)
class Schema:
    """A text around a pronoun, and the phrases that compete to replace the pronoun."""

    before: str  # the text before the pronoun
    after: str  # the text after it
    phrase: str  # the phrase that the row is about
    rivals: tuple[str, ...]
    is_asked: bool = True  # True if the question is about this phrase; False if it is about the best of all phrases

    @property
    def phrases(self) -> tuple[str, ...]:
        """All phrases that compete."""
        return (self.phrase, *self.rivals)


@dataclass(frozen=True, slots=True)
class SchemaExample:
    """A text with a gap, the phrase that the row is about, and its rivals."""

    id: Any
    """The id of the row in prediction files."""
    schema: Schema | None
    """None: no pronoun was found."""
    label: int | None
    """1 if the phrase is right; None if that is not public."""
    text: str = ""
    """The text to read if no pronoun was found."""


class SchemaInputs(NamedTuple):
    """Model inputs of a schema that differ in one phrase."""

    sequences: list[NDArray[np.int32]]
    """P inputs (T,), which hold the row's phrase first and then its rivals."""
    before: int
    """Tokens in front of the phrase, the same in all sequences."""
    after: int
    """Tokens behind it."""
    num_tokens: int
    """Tokens of the longest input before it was cut."""


def schema_inputs(schema: Schema, encoder: Encoder, *, max_length: int) -> SchemaInputs:
    """The text with each phrase in place of the pronoun. A text that is too long loses tokens at both ends.

    Example: "The drain is clogged with hair. It has to be cleaned." with the phrase "The hair" and the rival "The
    drain" -> `<s> The drain is clogged with hair. The hair has to be cleaned. </s>` and `<s> The drain is clogged with
    hair. The drain has to be cleaned. </s>`, with the same tokens before and after the phrase.
    """
    text = rstrip(schema.before)
    space = schema.before[len(text) :]  # byte-level BPE: a space belongs to the word that follows
    before, after = encoder.ids(text), encoder.ids(schema.after)
    phrases = [encoder.ids(space + phrase) for phrase in schema.phrases]
    num_tokens = len(before) + max(map(len, phrases)) + len(after) + 2
    room = max_length - 2 - max(map(len, phrases))
    after = after[: max(room - len(before), room // 2)]
    before = before[max(0, len(before) + len(after) - room) :]
    sequences = [encoder.join(np.concatenate([before, ids, after]), max_length=max_length) for ids in phrases]
    return SchemaInputs(sequences, len(before) + 1, len(after) + 1, num_tokens)


def read_question(sentence: str, candidates: Sequence[str] | None = None) -> Schema:
    """Find the marks of a sentence, and the phrases that compete.

    Example: "The _trophy_ would not fit in the brown suitcase because [it] was too big." -> the phrase "trophy", rivals
    "the brown suitcase" and "suitcase", before "The trophy would not fit in the brown suitcase because ".

    Raises:
        ValueError: if the marks are not as in `_FORM`, or there is no phrase to choose.
    """
    if sentence.count("[") != 1 or sentence.count("]") != 1 or sentence.index("[") > sentence.index("]"):
        raise ValueError(f"There must be one pronoun in brackets, got {sentence!r}. {_FORM}")
    if sentence.count("_") not in (0, 2):
        raise ValueError(f"There must be no phrase between underscores, or one, got {sentence!r}. {_FORM}")
    query = sentence.split("_")[1].strip() if "_" in sentence else None
    before, rest = sentence.replace("_", "").split("[")
    pronoun, after = rest.split("]")
    if query == "" or not pronoun.strip() or (query is not None and ("[" in query or "]" in query)):
        raise ValueError(f"The marks of {sentence!r} hold no phrase. {_FORM}")
    rivals = rivals_of(query, noun_phrases(before + pronoun + after) if candidates is None else candidates)
    phrases = [*([] if query is None else [query]), *rivals]
    if not phrases:
        raise ValueError(f"{sentence!r} has no noun phrase that the pronoun could mean. Give candidates.")
    return Schema(before, after, phrases[0], tuple(phrases[1:]), is_asked=query is not None)


def masked_positions(inputs: SchemaInputs) -> list[range]:
    """Positions of the phrase in each sequence."""
    return [range(inputs.before, len(sequence) - inputs.after) for sequence in inputs.sequences]


def answer(question: Schema, scores: NDArray[np.float64]) -> bool | str:
    """Scores of the phrases -> True if the marked phrase is the best or, without a marked phrase, the best phrase."""
    return bool((scores[0] >= scores[1:]).all()) if question.is_asked else question.phrases[int(scores.argmax())]


class PhraseRanking(Kind):
    """Each right phrase against its rivals, by a margin or by cross-entropy."""

    name = "phrase_ranking"
    description = "finds the phrase that a pronoun means"
    head = "masked_lm"
    white_space = "kept"
    free_settings = ("size",)  # the size of WinoGrande's training set

    @override
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy", "macro_f1", "mcc", "f1", "acc_and_f1")

    @override
    def write(
        self, split: SplitWriter, examples: Iterable[SchemaExample], encoder: Encoder, *, max_length: int
    ) -> Sequence[Mapping[str, Any]]:
        """Write a split. A text in which no pronoun was found has one sequence, with an empty phrase at its end.

        The training split has no records.
        """
        counts = Counter[bool]()
        for example in examples:
            columns = {} if example.label is None else {"label": example.label}
            counts[example.schema is None] += 1
            if example.schema is None:
                ((ids,),) = sentence_inputs([(example.text,)], encoder, split, TextLayout(max_length=max_length))
                split.add([ids], before=len(ids), after=0, **columns)
            else:
                inputs = schema_inputs(example.schema, encoder, max_length=max_length)
                split.measure("texts", inputs.num_tokens, limit=max_length)
                split.add(inputs.sequences, before=inputs.before, after=inputs.after, **columns)
            if split.name != "train":
                split.record({"id": example.id})
        if not counts:
            raise ValueError(f"{self.task_name}: no row of the training file has a right phrase with rivals.")
        if num_bare := counts[True]:
            logger.warning(
                f"{self.task_name}: in {num_bare} of {counts.total()} rows no pronoun was found; their answer will be 0"
            )
        return ()

    @override
    def judged(self, split: PreparedSplit, members: Sequence[RawOutputs], decisions: Decisions) -> Outcome:
        """Predict the second label if the first phrase of an example beats all its rivals, else the first label."""
        offsets = np.asarray(split.offsets)
        probabilities = mean_probabilities([each[:, 0] for each in logits_of(members)], offsets)  # (S,)
        wins = probabilities[offsets[:-1]] >= np.maximum.reduceat(probabilities, offsets[:-1])
        predictions = (wins & (np.diff(offsets) > 1)).astype(np.int64)
        return judge_two_labels(split, self.labels, predictions, split.columns.get("label"))

    @override
    def read_question(self, row: Row) -> Schema:
        is_open = row.values.get("candidates") is None
        candidates = None if is_open else texts_of(row, "candidates", what="candidate", may_be_empty=True)
        return read_question(text_of(row, self.names_of(0), option="--text-column", white_space="kept"), candidates)

    @override
    def answer(self, questions: Sequence[Schema]) -> list[Answer]:
        """The phrases that pronouns mean. A sentence that is too long loses tokens at both ends."""
        encoder = self.hub.codec.encoder
        inputs = [schema_inputs(each, encoder, max_length=self.max_length) for each in questions]
        sequences = [sequence for each in inputs for sequence in each.sequences]
        spans = [span for each in inputs for span in masked_positions(each)]
        scores = iter(self.hub.score_spans(sequences, spans, max_tokens=self.options.batch_tokens))
        answers: list[Answer] = []
        for question in questions:
            values = [next(scores) for _ in question.phrases]
            by_phrase = {phrase: round(score, 6) for phrase, score in zip(question.phrases, values, strict=True)}
            answers.append({"answer": answer(question, np.array(values)), "scores": by_phrase})
        return answers
