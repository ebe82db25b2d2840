"""Noun phrases as TextBlob finds them."""

from roberta_plugin.finetuning.kinds.phrase_ranking import noun_phrases


def test_chunks_and_runs_of_nouns_are_found_and_pronouns_are_not():
    found = noun_phrases("The large ball crashed through the table because it was made of styrofoam.")
    assert found == ["The large ball", "ball", "the table", "table", "styrofoam"]


def test_names_and_possessives_stay_apart():
    found = noun_phrases("Mr. Moncrieff visited Chester's luxurious New York apartment.")
    assert {"Mr. Moncrieff", "Chester", "luxurious New York apartment", "New York", "apartment"} <= set(found)
    assert not any("'" in phrase for phrase in found)


def test_phrases_do_not_cross_sentences_and_come_once():
    assert noun_phrases("He saw the dog. The dog saw the dog.") == ["the dog", "dog", "The dog"]


def test_a_text_without_nouns_has_none():
    assert noun_phrases("He is so very good.") == []
    assert noun_phrases("") == []


def test_phrases_are_written_as_in_the_text():
    text = "Sam\u2019s drawing was hung just above a well-known painting (by Tina)."
    found = noun_phrases(text)
    assert len(found) > 3
    assert all(phrase in text for phrase in found)
