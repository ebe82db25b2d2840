"""Which sentences of a document are chosen."""

import numpy as np

from roberta_plugin.extensions.summaries.documents import Length, choose, lead

SENTENCES = ["a b c d", "e f", "g h i", "x a b c", "e f g"]  # of 16 words


def test_the_most_probable_sentences_without_a_common_trigram_in_the_order_of_the_text():
    def chosen(**options):
        return choose(np.array([0.6, 0.1, 0.4, 0.9, 0.5]), SENTENCES, Length(**options))

    assert chosen() == [2, 3, 4]
    assert chosen(no_trigram_blocking=True) == [0, 3, 4]
    assert chosen(num_sentences=1) == [3]
    assert chosen(num_sentences=9) == [1, 2, 3, 4]
    assert chosen(length_share=0.5, no_trigram_blocking=True) == [0, 3], "8 of 16 words"
    assert chosen(length_share=0.51, no_trigram_blocking=True) == [0, 3, 4]
    assert chosen(min_probability=0.5) == [3, 4]
    assert chosen(min_probability=0.99) == [3], "one sentence at least"
    assert chosen(length_share=0.0) == [3]
    assert chosen(length_share=1.0, no_trigram_blocking=True) == [0, 1, 2, 3, 4]
    assert choose(np.zeros(4), ["a", "b", "c", "d"], Length(num_sentences=2)) == [0, 1], "ties go to the earlier one"


def test_lead_is_the_beginning_of_the_same_length():
    assert lead(SENTENCES, Length()) == lead(SENTENCES, Length(min_probability=0.5)) == [0, 1, 2]
    assert lead(SENTENCES, Length(num_sentences=9)) == [0, 1, 2, 3, 4]
    assert lead(SENTENCES, Length(length_share=0.5)) == [0, 1, 2], "9 of 16 words"


def plain_choice(probabilities, sentences, number, *, is_blocking):
    """BertSum's loop: each candidate is compared with every chosen sentence."""

    def trigrams(sentence):
        tokens = sentence.split()
        return {tuple(tokens[start : start + 3]) for start in range(len(tokens) - 2)}

    chosen = []
    for candidate in sorted(range(len(sentences)), key=lambda each: -probabilities[each]):
        if is_blocking and any(trigrams(sentences[candidate]) & trigrams(sentences[each]) for each in chosen):
            continue
        chosen.append(candidate)
        if len(chosen) == number:
            break
    return sorted(chosen)


def test_the_choice_is_that_of_the_plain_program():
    rng = np.random.default_rng(0)
    blocked = 0
    for _ in range(100):
        sentences = [" ".join(rng.choice(list("abc"), rng.integers(1, 7))) for _ in range(rng.integers(1, 9))]
        probabilities = rng.random(len(sentences))
        for is_blocking in (True, False):
            found = choose(probabilities, sentences, Length(no_trigram_blocking=not is_blocking))
            assert found == plain_choice(probabilities, sentences, 3, is_blocking=is_blocking)
        blocked += plain_choice(probabilities, sentences, 3, is_blocking=True) != found
    assert blocked > 20
