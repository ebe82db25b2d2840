"""Character-level BPE: words by Moses' rules, their pieces, and the places of both in a text."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from tests.refusals import refused
from tests.tiny_tokenizers import train_tokenizer

TEXT = "the cat sat on the mat, and the other cats sat there\n\nthen the thin hat fell: 12 hats\n" * 20
PLACED = "the cat sat on the mat, and the other cats sat there\n\nthen the thin hat fell: 12 hats isn't\n" * 20
WORDS = [*"the cat's", "  ", "\n", "\u00a0", "\u3000", "\u00e9", "e\u0301", "\u20ac", "\U0001f468\u200d\U0001f469"]
LIKELY_TEXT = st.lists(st.sampled_from([*WORDS, "\u4f60"]), max_size=30).map("".join)


def trained(folder, text):
    (folder / "text.txt").write_text(text)
    train_tokenizer("character_bpe", [folder / "text.txt"], vocab_size=80, folder=folder, max_characters=30)
    return folder


@pytest.fixture(scope="module")
def character_bpe(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("character_bpe"), TEXT)


@pytest.fixture(scope="module")
def located(tmp_path_factory):
    return load_tokenizer(trained(tmp_path_factory.mktemp("located"), PLACED))


def spans(tokenizer, text):
    found = tokenizer.locate(text)
    assert found.ids.dtype == found.starts.dtype == found.ends.dtype == np.int32
    return list(zip(found.starts.tolist(), found.ends.tolist(), strict=True))


@settings(deadline=None)
@given(text=LIKELY_TEXT)
def test_character_bpe_places_words_by_their_characters(located, text):
    found = located.locate(text)
    assert found.ids.tolist() == located.encode(text)
    assert (np.diff(found.starts) >= 0).all()
    for index, start, end in zip(*(values.tolist() for values in found), strict=True):
        symbol = located.symbols[index]
        if symbol == "<unk>":
            assert end - start == 1
        else:
            assert text[start:end] == symbol.removeprefix("\u2581")
    covered = {place for start, end in spans(located, text) for place in range(start, end)}
    assert all(text[place].isspace() for place in set(range(len(text))) - covered)


def test_characters_that_moses_drops_leave_no_gap_in_the_order_and_what_it_changes_is_refused(located):
    text = "the\u00a0 c\x01at\u2581 sat"
    pieces = [text[start:end] for start, end in spans(located, text)]
    assert pieces[0] == "the" and pieces[-1] == "sat"
    assert "c\x01at" in pieces
    refused(r"change the text at character 4, 'the DOTMULTI", located.locate, "the DOTMULTI .. cat")


def pieces(tokenizer, text):
    return [tokenizer.symbols[index] for index in tokenizer.encode(text)]


def test_words_then_pieces_of_words(character_bpe):
    tokenizer = load_tokenizer(character_bpe)
    assert pieces(tokenizer, "the mats, then") == ["\u2581the", "\u2581mat", "s", "\u2581,", "\u2581then"]
    starts = tokenizer.word_starts()
    assert [bool(starts[index]) for index in tokenizer.encode("the mats,")] == [True, True, False, True]
    assert tokenizer.decode([tokenizer.symbols.index("s")]) == "s"


def test_characters_that_the_text_did_not_have_are_unknown(character_bpe):
    tokenizer, vocabulary = load_tokenizer(character_bpe), Vocabulary.load(character_bpe / "dict.txt")
    ids = tokenizer.encode("the \u4f60")
    assert pieces(tokenizer, "the \u4f60") == ["\u2581the", "\u2581", "<unk>"]
    assert vocabulary.tokenizer_to_model(tokenizer)[ids].tolist()[2] == vocabulary.unk_id


def test_the_mark_of_a_word_in_the_text_makes_no_new_word(character_bpe):
    tokenizer = load_tokenizer(character_bpe)
    assert tokenizer.words("a\u2581\u2581b") == tokenizer.words("a__b")


@pytest.mark.parametrize("content", [b"{", b"{}", b'{"language": "en", "bpe": {"model": 1}}', b"[]"])
def test_a_file_of_another_format_and_too_few_ids_are_refused(content, tmp_path):
    (tmp_path / "character_bpe.json").write_bytes(content)
    refused(r"character_bpe\.json.*is not a character-level BPE", load_tokenizer, tmp_path)
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 20)
    few = {"vocab_size": 5, "folder": tmp_path}
    refused(r"--vocab-size must be at least \d+", train_tokenizer, "character_bpe", [tmp_path / "text.txt"], **few)
