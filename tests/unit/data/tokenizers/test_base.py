"""The common interface, and where tokens stand, for all three tokenizers, on any text."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roberta_plugin.data.tokenizers import file_names, load_tokenizer
from roberta_plugin.data.tokenizers.additions import FILE, AddedToken, base_of, symbol_of, with_additions
from roberta_plugin.data.tokenizers.base import join_ids, locate_words
from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS
from roberta_plugin.data.vocabulary import Row, Vocabulary
from tests.refusals import refused
from tests.tiny_tokenizers import byte_level_bpe, train_tokenizer


def test_ids_are_joined_and_lengths_kept():
    ids, lengths = join_ids([[1, 2], [], np.array([3], dtype=np.int32)])
    assert ids.tolist() == [1, 2, 3]
    assert lengths.tolist() == [2, 0, 1]
    assert (ids.dtype, lengths.dtype) == (np.int32, np.int32)
    assert [array.tolist() for array in join_ids([])] == [[], []]


TEXT = "the cat sat on the mat, and the other cats sat there\n\nthen the thin hat fell: 12 hats isn't\n" * 20
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
# Texts as they are: words, white space of many kinds, accents, emoji of several characters.
WORDS = [*"the cat's", "  ", "\n", "\u00a0", "\u3000", "\u00e9", "e\u0301", "\u20ac", "\U0001f468\u200d\U0001f469"]
LIKELY_TEXT = st.lists(st.sampled_from([*WORDS, "\u4f60"]), max_size=30).map("".join)
TEXTS = st.one_of(ANY_TEXT, LIKELY_TEXT)


def byte_level(use_fast_engine=True):
    """Merges within characters, across their borders, and of a space with part of a character."""
    euro = [BYTE_CHARACTERS[byte] for byte in "\u20ac".encode()]
    space = BYTE_CHARACTERS[32]
    e_acute = [BYTE_CHARACTERS[byte] for byte in "\u00e9".encode()]
    merges = [("t", "h"), (space, "th"), (e_acute[1], "x"), (euro[0], euro[1]), (space, euro[0] + euro[1])]
    return byte_level_bpe(merges, use_fast_engine=use_fast_engine)


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentencepiece")
    (folder / "text.txt").write_text(TEXT)
    return train_tokenizer("sentencepiece", [folder / "text.txt"], vocab_size=60, folder=folder)


def spans(tokenizer, text):
    found = tokenizer.locate(text)
    assert found.ids.dtype == found.starts.dtype == found.ends.dtype == np.int32
    return list(zip(found.starts.tolist(), found.ends.tolist(), strict=True))


def test_a_token_of_a_part_of_a_character_covers_the_character():
    # space and 2 bytes of the euro sign, its third byte
    assert spans(byte_level(), "ath \u20ac") == [(0, 1), (1, 3), (3, 5), (4, 5)]
    # first byte of an accented e, its second byte and x, y
    assert spans(byte_level(), "\u00e9xy") == [(0, 1), (0, 2), (2, 3)]
    assert spans(byte_level(), "\U0001f600") == [(0, 1)] * 4
    assert spans(byte_level(), "") == []


@pytest.mark.parametrize("fast", [True, False], ids=["gigatoken", "plain"])
@settings(deadline=None)
@given(text=TEXTS)
def test_pieces_of_byte_level_bpe_are_the_bytes_of_their_characters(fast, text):
    tokenizer = byte_level(fast)
    found = tokenizer.locate(text)
    assert found.ids.tolist() == tokenizer.encode(text)
    before = 0
    for index, start, end in zip(*(values.tolist() for values in found), strict=True):
        piece = bytes(BYTE_CHARACTERS.index(character) for character in tokenizer.pieces[index])
        assert piece in text[start:end].encode()
        assert len(text[:start].encode()) <= before < len(text[: start + 1].encode())
        before += len(piece)
        assert len(text[: end - 1].encode()) < before <= len(text[:end].encode())
    assert before == len(text.encode())


@settings(deadline=None)
@given(text=TEXTS)
def test_sentencepiece_covers_the_text_in_order(sentencepiece, text):
    found = sentencepiece.locate(text)
    assert found.ids.tolist() == sentencepiece.encode(text)
    assert (found.starts >= 0).all() and (found.starts <= found.ends).all() and (found.ends <= len(text)).all()
    assert (np.diff(found.starts) >= 0).all()
    for index, start, end in zip(*(values.tolist() for values in found), strict=True):
        word = sentencepiece.symbols[index].removeprefix("\u2581")
        if index > 2 and word and text[start:end].isascii():  # normalization leaves ASCII as it is
            assert "".join(filter(str.isprintable, text[start:end].strip())) == word


def test_sentencepiece_places_the_parts_of_a_normalized_character(sentencepiece):
    text = "the  \u00bd cat"
    covered = [text[start:end] for start, end in spans(sentencepiece, text)]
    assert covered[-1].strip() and text.endswith(covered[-1])
    assert covered.count("\u00bd") >= 2, "the three parts of 1/2 are parts of one character"


def test_words_are_found_in_order():
    assert locate_words(" a  bc\x02d", ["a", "bcd"]).tolist() == [1, 4, 5, 7]
    for words in (["ab"], ["a", "c"], ["a", "bcde"]):
        refused("byte-level BPE or SentencePiece", locate_words, "a x bcd", words)


LINES = "the dog and the fox are good, and so is it"


@pytest.fixture
def tokenizer(tmp_path):
    (tmp_path / "text.txt").write_text(f"{LINES}\n" * 20)
    return train_tokenizer("byte_level_bpe", [tmp_path / "text.txt"], vocab_size=270, folder=tmp_path / "own")


def test_no_symbol_in_dict_is_misread(tmp_path):
    contents = ["[E1]", "12", "\u0663", "a b", "\n", "\u2028x", "madeupword0001", "#fairseq:overwrite", "\u3000", "\\"]
    symbols = [symbol_of(content) for content in contents]
    assert symbols[0] == "[E1]" and not any(symbol.isdigit() or len(symbol.split()) != 1 for symbol in symbols)
    Vocabulary([Row("12", 1), *(Row(symbol, 1) for symbol in symbols)]).save(tmp_path / "dict.txt")
    vocabulary = Vocabulary.load(tmp_path / "dict.txt")
    assert vocabulary.symbols[5:-1] == symbols
    assert not vocabulary.never_masked()[5:-1].any()


def test_without_additions_a_tokenizer_is_itself(tokenizer, tmp_path):
    assert with_additions(tokenizer, []) is tokenizer
    assert type(load_tokenizer(tmp_path / "own")) is type(tokenizer)
    assert not (tmp_path / "own" / FILE).exists()
    added = with_additions(tokenizer, [AddedToken("[E1]")])
    assert base_of(added) is tokenizer
    assert added.description()["sha256"].items() > tokenizer.description()["sha256"].items()
    ids, lengths = added.encode_lines([LINES, "", "x"])
    plain, plain_lengths = tokenizer.encode_lines([LINES, "", "x"])
    assert ids.tolist() == plain.tolist() and lengths.tolist() == plain_lengths.tolist()
    assert ids.dtype == plain.dtype and lengths.dtype == plain_lengths.dtype


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not valid JSON"),
        ({"added_tokens": []}, "does not have the key 'add_prefix_space'"),
        ({"add_prefix_space": False, "added_tokens": [{"text": "x"}]}, "does not belong to the tokenizer beside it"),
        (
            {"add_prefix_space": False, "added_tokens": [{"content": "zzz", "is_piece": True}]},
            "the added token 'zzz' is not a piece of the tokenizer",
        ),
    ],
)
def test_files_that_do_not_fit_are_named(tokenizer, tmp_path, content, message):
    path = tmp_path / "own" / FILE
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    said = refused(message, load_tokenizer, tmp_path / "own")
    assert str(path) in said and "import the model again" in said


def test_another_tokenizer_in_its_place_leaves_nothing_of_it(tokenizer, tmp_path):
    with_additions(tokenizer, [AddedToken("[E1]")]).save(tmp_path / "own")
    assert FILE in file_names()
    train_tokenizer("sentencepiece", [tmp_path / "text.txt"], vocab_size=30, folder=tmp_path / "own")
    assert load_tokenizer(tmp_path / "own").name == "sentencepiece"
    assert not (tmp_path / "own" / FILE).exists()
