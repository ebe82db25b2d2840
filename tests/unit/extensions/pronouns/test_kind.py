"""Sentences with a pronoun, and the phrases that compete for it."""

import numpy as np
import pytest

from roberta_plugin.extensions.pronouns.kind import (
    answer,
    masked_positions,
    noun_phrases,
    read_question,
    schema_inputs,
)
from roberta_plugin.finetuning.layouts.texts import Encoder
from tests.tiny_benchmarks import words_tokenizer


def test_marks_and_candidates_are_found():
    sentence = "The _trophy_ would not fit in the brown suitcase because [it] was too big."
    question = read_question(sentence)
    assert question.is_asked and question.phrase == "trophy"
    assert question.before == "The trophy would not fit in the brown suitcase because "
    assert question.after == " was too big."
    assert "the brown suitcase" in question.rivals
    assert not any("trophy" in phrase for phrase in question.rivals)
    open_question = read_question(sentence.replace("_", ""))
    assert not open_question.is_asked
    assert "The trophy" in open_question.phrases
    assert read_question("[It] is good.", ["a dog", "it", "a dog"]).phrases == ("a dog",)


def test_each_phrase_stands_where_the_pronoun_stood_and_the_best_is_the_answer():
    encoder = Encoder(*words_tokenizer())
    question = read_question("A _bad_ dog, and [it] is good.", ["good thing", "x"])
    inputs = schema_inputs(question, encoder, max_length=60)
    texts = []
    for sequence, span in zip(inputs.sequences, masked_positions(inputs), strict=True):
        pieces = [encoder.vocabulary.symbols[token] for token in sequence[span.start : span.stop]]
        texts.append(encoder.tokenizer.decode([encoder.tokenizer.symbols.index(piece) for piece in pieces]))
    assert texts == [" bad", " good thing", " x"]
    assert answer(question, np.array([-1.0, -2.0, -3.0])) is True
    assert answer(question, np.array([-2.5, -2.0, -3.0])) is False
    unmarked = read_question("A bad dog, and [it] is good.", ["good thing", "x"])
    assert answer(unmarked, np.array([-2.0, -1.0])) == "x"


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ("No pronoun here.", "one pronoun in brackets"),
        ("[It] and [it].", "one pronoun in brackets"),
        ("]it[ is good.", "one pronoun in brackets"),
        ("The _dog barks, [it] is good.", "no phrase between underscores, or one"),
        ("The __ dog, [it] is good.", "hold no phrase"),
        ("The dog, [] is good.", "hold no phrase"),
        ("[It] is.", "no noun phrase"),
    ],
)
def test_other_marks_are_refused(sentence, message):
    with pytest.raises(ValueError, match=message):
        read_question(sentence)


def test_chunks_and_runs_of_nouns_are_found_as_they_are_written_and_pronouns_are_not():
    found = noun_phrases("The large ball crashed through the table because it was made of styrofoam.")
    assert found == ["The large ball", "ball", "the table", "table", "styrofoam"]
    found = noun_phrases("Mr. Moncrieff visited Chester's luxurious New York apartment.")
    assert {"Mr. Moncrieff", "Chester", "luxurious New York apartment", "New York", "apartment"} <= set(found)
    assert not any("'" in phrase for phrase in found), "names and possessives stay apart"
    assert noun_phrases("He saw the dog. The dog saw the dog.") == ["the dog", "dog", "The dog"], "of a sentence, once"
    assert noun_phrases("He is so very good.") == noun_phrases("") == []
    text = "Sam\u2019s drawing was hung just above a well-known painting (by Tina)."
    found = noun_phrases(text)
    assert len(found) > 3 and all(phrase in text for phrase in found)
