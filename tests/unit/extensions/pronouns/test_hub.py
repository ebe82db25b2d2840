"""Answers about pronouns by `RobertaHub`."""

import pytest

from tests.tiny_hub import check_refusals, write_hub


@pytest.fixture(scope="module", name="hub")
def hub_with_a_head(tmp_path_factory):
    hub = write_hub(tmp_path_factory.mktemp("hub"))
    return hub


def test_pronouns_are_answered(hub):
    sentence = "The _good_ trophy would not fit because [it] was bad."
    assert isinstance(hub.disambiguate_pronoun(sentence, ["bad thing"]), bool)
    assert hub.disambiguate_pronoun(sentence.replace("_", ""), ["x"]) == "x"
    with pytest.raises(ValueError, match="Give a list of candidates, got the text 'good'"):
        hub.disambiguate_pronoun("A good [it] was bad", "good")  # whose letters were candidates


CALLS = {
    "pronoun": lambda hub, value: hub.disambiguate_pronoun(value),
    "candidates": lambda hub, value: hub.disambiguate_pronoun("A good [it] was bad", value),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_arguments_of_other_types_are_refused_in_a_sentence(hub, call):
    check_refusals(hub, call)
