import pickle

import pytest

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from tests.tiny_tokenizers import train_tokenizer

TEXT = "the cat sat on the mat, and the other cats sat there\n\nthen the thin hat fell: 12 hats\n" * 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("character_bpe")
    (folder / "text.txt").write_text(TEXT)
    train_tokenizer("character_bpe", [folder / "text.txt"], vocab_size=80, folder=folder, max_characters=30)
    return folder


def pieces(tokenizer, text):
    return [tokenizer.symbols[index] for index in tokenizer.encode(text)]


def test_words_then_pieces_of_words(folder):
    tokenizer = load_tokenizer(folder)
    assert pieces(tokenizer, "the mats, then") == ["\u2581the", "\u2581mat", "s", "\u2581,", "\u2581then"]
    starts = tokenizer.word_starts()
    assert [bool(starts[index]) for index in tokenizer.encode("the mats,")] == [True, True, False, True]


def test_characters_that_the_text_did_not_have_are_unknown(folder):
    tokenizer, vocabulary = load_tokenizer(folder), Vocabulary.load(folder / "dict.txt")
    ids = tokenizer.encode("the \u4f60")
    assert pieces(tokenizer, "the \u4f60") == ["\u2581the", "\u2581", "<unk>"]
    assert vocabulary.tokenizer_to_model(tokenizer)[ids].tolist()[2] == vocabulary.unk_id


def test_the_mark_of_a_word_in_the_text_makes_no_new_word(folder):
    tokenizer = load_tokenizer(folder)
    assert tokenizer.words("a\u2581\u2581b") == tokenizer.words("a__b")


def test_text_comes_back_and_lines_are_encoded_as_texts(folder):
    tokenizer = load_tokenizer(folder)
    lines = ["the cats sat, and the hat fell", "", "12 hats"]
    ids, lengths = tokenizer.encode_lines(lines)
    assert ids.tolist() == [index for line in lines for index in tokenizer.encode(line)]
    assert lengths.tolist() == [len(tokenizer.encode(line)) for line in lines]
    assert [tokenizer.decode(tokenizer.encode(line)) for line in lines] == lines
    assert tokenizer.decode([tokenizer.symbols.index("s")]) == "s"
    with pytest.raises(ValueError, match="Token id 999"):
        tokenizer.decode([999])


def test_pickles_and_saves(folder, tmp_path):
    tokenizer = load_tokenizer(folder)
    again = pickle.loads(pickle.dumps(tokenizer))
    again.save(tmp_path)
    assert load_tokenizer(tmp_path).symbols == tokenizer.symbols
    assert again.description() == tokenizer.description()


def test_training_again_gives_the_same_bytes(folder, tmp_path):
    train_tokenizer("character_bpe", [folder / "text.txt"], vocab_size=80, folder=tmp_path, max_characters=30)
    for name in ("character_bpe.json", "dict.txt"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize("content", [b"{", b"{}", b'{"language": "en", "bpe": {"model": 1}}', b"[]"])
def test_a_file_of_another_format_is_named(tmp_path, content):
    (tmp_path / "character_bpe.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"character_bpe\.json is not a character-level BPE"):
        load_tokenizer(tmp_path)


def test_too_few_ids_are_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="--vocab-size must be at least 20"):
        train_tokenizer("character_bpe", [folder / "text.txt"], vocab_size=10, folder=tmp_path)
