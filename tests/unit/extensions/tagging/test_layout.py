"""Words as tokens and windows: every word once, at its first token, in the window with the most context."""

import itertools

import numpy as np
import pytest

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.extensions.tagging import entities
from roberta_plugin.extensions.tagging.entities import best_valid, entity_labels, invalid_places, transitions
from roberta_plugin.extensions.tagging.layout import (
    IGNORED,
    TaggingLayout,
    WordEncoder,
    token_labels,
    windows_of,
)
from roberta_plugin.finetuning.layouts.texts import Encoder
from tests.tiny_benchmarks import words_tokenizer
from tests.tiny_tokenizers import train_tokenizer

WORDS = ["good", "bad", "watched\u200bwas", "Dubbz\ufeff", "it's", "don't", "\u6771\u4eac", "\U0001f642!", "a b", "x"]


def tokens(*counts):
    numbers = iter(range(100, 1000))
    return [np.array([next(numbers) for _ in range(count)], dtype=np.int32) for count in counts]


def windows(counts, *, max_length, doc_stride):
    layout = TaggingLayout(max_length=max_length, doc_stride=doc_stride)
    return windows_of(tokens(*counts), layout, bos_id=0, eos_id=2)


@pytest.mark.parametrize("kind", ["byte_level_bpe", "sentencepiece"])
def test_the_tokens_of_the_words_are_those_of_their_sentence(kind, tmp_path):
    tokenizer, vocabulary = words_tokenizer()
    if kind == "sentencepiece":
        (tmp_path / "text.txt").write_text("\n".join(f"{' '.join(WORDS)} ... and more {n}" for n in range(200)))
        train_tokenizer("sentencepiece", [tmp_path / "text.txt"], vocab_size=70, folder=tmp_path)
        tokenizer, vocabulary = load_tokenizer(tmp_path), Vocabulary.load(tmp_path / "dict.txt")
    encoder = Encoder(tokenizer, vocabulary)
    rng = np.random.default_rng(0)
    texts = [list(rng.choice(WORDS, rng.integers(1, 9))) for _ in range(60)]
    found = WordEncoder(encoder).tokens_of_all(texts)
    for text, ids in zip(texts, found, strict=True):
        assert len(ids) == len(text) and all(map(len, ids))
        assert np.concatenate(ids).tolist() == encoder.ids(" ".join(text)).tolist()


def test_blank_words_have_no_tokens_and_leave_no_gap():
    encoder = Encoder(*words_tokenizer())
    (found,) = WordEncoder(encoder).tokens_of_all([["", "good", " ", "\u00a0", "bad", ""]])
    assert [len(ids) for ids in found] == [0, 1, 0, 0, 1, 0]
    assert np.concatenate(found).tolist() == encoder.ids("good bad").tolist()


def test_the_example_of_the_file_and_its_tags_of_first_pieces_or_all():
    first, second = windows([1, 4, 2], max_length=7, doc_stride=2)
    no = IGNORED
    assert (first.words, second.words) == (range(2), range(2, 3))
    assert (first.positions.tolist(), second.positions.tolist()) == ([1, 2], [4])
    assert first.word_of_token.tolist() == [no, 0, 1, 1, 1, no, no]
    assert second.word_of_token.tolist() == [no, no, no, 1, 2, 2, no]
    assert first.tokens.tolist() == [0, 100, 101, 102, 103, 104, 2]
    assert second.is_first.tolist() == [False, False, False, False, True, False, False]
    labels, continuing = [3, 1, 0], np.array([0, 2, 2, 4, 4])
    assert token_labels(first, labels, continuing=None).tolist() == [no, 3, 1, no, no, no, no]
    assert token_labels(second, labels, continuing=None).tolist() == [no, no, no, no, 0, no, no]
    assert token_labels(first, labels, continuing=continuing).tolist() == [no, 3, 1, 2, 2, no, no]
    assert token_labels(second, labels, continuing=continuing).tolist() == [no, no, no, 2, 0, 0, no]


@pytest.mark.parametrize("max_length", [3, 5, 8, 40])
@pytest.mark.parametrize("doc_stride", [1, 3, 100])
def test_every_word_belongs_to_one_window_which_gives_it_the_most_context(max_length, doc_stride):
    rng = np.random.default_rng(max_length * 100 + doc_stride)
    cut = 0
    for _ in range(40):
        counts = rng.integers(0, 5, rng.integers(0, 14))
        ids = tokens(*counts)
        found = windows(counts, max_length=max_length, doc_stride=doc_stride)
        flat = [token for word in ids for token in word.tolist()]
        cut += len(found) > 1
        assert [word for window in found for word in window.words] == list(range(len(counts)))
        starts = [flat.index(window.tokens[1]) if len(window.tokens) > 2 else 0 for window in found]
        owned = []
        for window, start in zip(found, starts, strict=True):
            assert window.tokens.tolist() == [0, *flat[start : start + max_length - 2], 2]
            for word, position in zip(window.words, window.positions.tolist(), strict=True):
                assert position == 0 if counts[word] == 0 else window.tokens[position] == ids[word][0]
                if counts[word]:
                    token = start + position - 1
                    contexts = [
                        min(token - begin, begin + len(other.tokens) - 3 - token) + 0.01 * (len(other.tokens) - 2)
                        for other, begin in zip(found, starts, strict=True)
                        if begin <= token < begin + len(other.tokens) - 2
                    ]
                    mine = min(token - start, start + len(window.tokens) - 3 - token) + 0.01 * (len(window.tokens) - 2)
                    assert mine == max(contexts)
            owned += window.tokens[window.word_of_token != IGNORED].tolist()
        assert owned == flat, "each token is learned once"
    assert cut > 10 or max_length == 40


def test_a_text_without_tokens_has_one_empty_window():
    for counts in ([], [0], [0, 0]):
        (window,) = windows(counts, max_length=5, doc_stride=2)
        assert window.tokens.tolist() == [0, 2]
        assert window.words == range(len(counts))
        assert window.positions.tolist() == [0] * len(counts)


def test_a_window_has_room_for_a_token():
    with pytest.raises(ValueError, match="--max-length must be 3 or more"):
        TaggingLayout.with_defaults(2)
    assert TaggingLayout.with_defaults(9, doc_stride=4, label_pieces="all") == TaggingLayout(
        max_length=9, doc_stride=4, label_pieces="all"
    )


def is_valid(tags):
    return not invalid_places(tags, "iob2")


@pytest.mark.parametrize("labels", [entity_labels(["X", "Y"]), ["I-X", "O", "B-Y", "B-X", "I-Y"]])
@pytest.mark.parametrize("memory", [1, 1 << 22])
def test_it_is_the_best_of_all_valid_sequences(labels, memory, monkeypatch):
    monkeypatch.setattr(entities, "_MOST_NUMBERS", memory)
    rng = np.random.default_rng(0)
    offsets = np.cumsum([0, 3, 1, 0, 4, 2, 4, 1])
    differs = 0
    for _ in range(15):
        probabilities = rng.dirichlet(np.full(len(labels), 0.4), offsets[-1])
        found = best_valid(probabilities, offsets, labels)
        differs += not np.array_equal(found, probabilities.argmax(axis=1))
        for first, stop in itertools.pairwise(offsets):
            choices = itertools.product(range(len(labels)), repeat=stop - first)
            rows = probabilities[first:stop]

            def score(choice, rows=rows):
                return np.log(rows[np.arange(len(choice)), list(choice)]).sum()

            best = max((choice for choice in choices if is_valid([labels[label] for label in choice])), key=score)
            assert score(found[first:stop].tolist()) == pytest.approx(score(best), abs=1e-9)
            assert is_valid([labels[label] for label in found[first:stop]])
    assert differs > 10, "the rule never mattered"


def test_impossible_labels_lose_and_the_sequence_stays_valid():
    labels = entity_labels(["X"])
    found = best_valid(np.eye(3)[[2, 2, 0, 2]], np.array([0, 4]), labels)
    assert is_valid([labels[label] for label in found])
    assert best_valid(np.eye(3)[[1, 2, 0, 1]], np.array([0, 4]), labels).tolist() == [1, 2, 0, 1]


def test_a_type_that_never_begins_with_b_has_no_rule():
    begins, follows = transitions(["O", "I-X", "B-Y", "I-Y"])
    assert begins.tolist() == [True, True, True, False]
    assert follows[0].tolist() == [True, True, True, False]
    assert follows[:, 3].tolist() == [False, False, True, True]
