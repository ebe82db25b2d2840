"""Model inputs: specials in their places, and what is cut when a pair is too long."""

import numpy as np
import pytest

from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.layouts.texts import Encoder, join
from tests.tiny_benchmarks import words_tokenizer

VOCABULARY = Vocabulary([])
A, B = 5, 7


def ids(value, count):
    return np.full(count, value, dtype=np.int32)


def test_one_text_and_two_have_the_specials_of_the_paper():
    assert join(VOCABULARY, ids(A, 2), max_length=9).tolist() == [0, A, A, 2]
    assert join(VOCABULARY, ids(A, 2), ids(B, 1), max_length=9).tolist() == [0, A, A, 2, 2, B, 2]
    assert join(VOCABULARY, ids(A, 9), max_length=5).tolist() == [0, A, A, A, 2]
    assert join(VOCABULARY, ids(A, 0), ids(B, 1), max_length=9).tolist() == [0, 2, 2, B, 2]


@pytest.mark.parametrize("max_length", [6, 7, 9, 12, 30])
def test_the_longer_text_is_cut_first(max_length):
    num_cut = 0
    for num_a in range(12):
        for num_b in range(12):
            keep_a, keep_b = num_a, num_b  # one token at a time, the second text's where both are equal
            while keep_a + keep_b > max_length - 4:
                if keep_a > keep_b:
                    keep_a -= 1
                else:
                    keep_b -= 1
                num_cut += 1
            found = join(VOCABULARY, ids(A, num_a), ids(B, num_b), max_length=max_length)
            expected = [0, *[A] * keep_a, 2, 2, *[B] * keep_b, 2]
            assert found.tolist() == expected
    assert (num_cut > 0) == (max_length < 26)


def test_many_texts_give_the_ids_of_each():
    tokenizer, vocabulary = words_tokenizer()
    encoder = Encoder(tokenizer, vocabulary)
    texts = ["good bad", "", "a line\nand another", "good", "bad \n"]
    for text, found in zip(texts, encoder.ids_of_all(texts), strict=True):
        assert found.tolist() == encoder.ids(text).tolist()
        back = vocabulary.model_to_tokenizer(tokenizer)[found]
        assert tokenizer.decode(back.tolist()) == text
    assert encoder.ids_of_all([]) == []
