"""Features of words: the characters that tokens cover, and vectors that add up to the features of all tokens."""

import numpy as np
import pytest
import torch

from roberta_plugin.data.tokenizers.base import LocatedTokens
from roberta_plugin.finetuning.layouts.words import split_words, word_spans
from roberta_plugin.hub.texts import align, features_of_words


def located(starts, ends):
    return LocatedTokens(np.arange(len(starts)), np.array(starts), np.array(ends))


def test_words_and_marks_are_apart():
    assert split_words('I said, "hello RoBERTa."') == ["I", "said", ",", '"', "hello", "RoBERTa", ".", '"']
    assert split_words("don't pay 3.14 for caf\u00e9s!") == ["don't", "pay", "3.14", "for", "caf\u00e9s", "!"]


def test_tokens_belong_to_the_words_whose_characters_they_cover():
    text = "don't  go"  # tokens: don | 't | blank | " go"
    found = align(text, located([0, 3, 5, 6], [3, 5, 6, 9]), word_spans(text, ["don't", "go"]))
    assert found == [[0, 1], [3]]
    halves = align("ab", located([0], [2]), word_spans("ab", ["a", "b"]))  # a token over two words
    assert halves == [[0], [0]]


def test_vectors_add_up_to_the_features():
    features = torch.arange(12.0).view(6, 2)
    words = features_of_words(features, [[0, 1], [1], [3]])
    assert torch.equal(words[0], features[0])
    assert torch.equal(words[-1], features[5])
    assert torch.equal(words[1], features[1] + features[2] / 2)
    without_blank = features.sum(dim=0) - features[3]  # token 2, position 3, belongs to no word
    torch.testing.assert_close(words.sum(dim=0), without_blank)


def test_words_of_another_text_are_refused():
    with pytest.raises(ValueError, match="'cat' does not come next in the text, which continues with ' dog sat'"):
        word_spans("The dog sat", ["The", "cat", "sat"])
    with pytest.raises(ValueError, match="'sat' does not come next"):
        word_spans("The dog sat", ["The", "sat"])
    with pytest.raises(ValueError, match="'' does not come next"):
        word_spans("The dog", [""])
