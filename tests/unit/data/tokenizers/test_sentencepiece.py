import pickle

import pytest

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from tests.tiny_tokenizers import train_tokenizer

TEXT = "the cat sat on the mat, and the other cats sat there\n\nthen the thin hat fell: 12 hats\n" * 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentencepiece")
    (folder / "text.txt").write_text(TEXT)
    train_tokenizer("sentencepiece", [folder / "text.txt"], vocab_size=60, folder=folder)
    return folder


def test_model_ids_are_one_more_than_sentencepieces(folder):
    tokenizer, vocabulary = load_tokenizer(folder), Vocabulary.load(folder / "dict.txt")
    to_model = vocabulary.tokenizer_to_model(tokenizer)
    assert to_model[:3].tolist() == [3, 0, 2]
    assert to_model[3:].tolist() == list(range(4, len(tokenizer.symbols) + 1))
    assert vocabulary.mask_id == len(tokenizer.symbols) + 1


def test_text_comes_back_and_lines_are_encoded_as_texts(folder):
    tokenizer = load_tokenizer(folder)
    lines = ["the cat sat", "", "then the hat"]
    ids, lengths = tokenizer.encode_lines(lines)
    assert ids.tolist() == [index for line in lines for index in tokenizer.encode(line)]
    assert lengths.tolist() == [len(tokenizer.encode(line)) for line in lines]
    assert [tokenizer.decode(tokenizer.encode(line)) for line in lines] == lines
    assert tokenizer.encode_lines([])[0].tolist() == []
    with pytest.raises(ValueError, match="Token id 999"):
        tokenizer.decode([999])


def test_a_character_that_becomes_several_is_the_place_of_all(folder):
    located = load_tokenizer(folder).locate("12 \u00bd hats")  # a half is 1, a slash, 2
    places = list(zip(located.starts.tolist(), located.ends.tolist(), strict=True))
    assert places[:7] == [(0, 0), (0, 1), (1, 2), (2, 3), (3, 4), (3, 4), (3, 4)]


def test_pickles_and_saves(folder, tmp_path):
    tokenizer = load_tokenizer(folder)
    again = pickle.loads(pickle.dumps(tokenizer))
    again.save(tmp_path)
    assert load_tokenizer(tmp_path).encode("the cat") == tokenizer.encode("the cat")
    assert again.description() == tokenizer.description()


def test_training_again_gives_the_same_bytes(folder, tmp_path):
    train_tokenizer("sentencepiece", [folder / "text.txt"], vocab_size=60, folder=tmp_path)
    for name in ("sentencepiece.bpe.model", "dict.txt"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_what_cannot_be_used_is_named(folder, tmp_path):
    (tmp_path / "sentencepiece.bpe.model").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match=r"sentencepiece\.bpe\.model: not a SentencePiece model"):
        load_tokenizer(tmp_path)
    with pytest.raises(ValueError, match="--vocab-size 5"):
        train_tokenizer("sentencepiece", [folder / "text.txt"], vocab_size=5, folder=tmp_path)


def test_word_starts_are_the_first_pieces_of_words(folder):
    """For --mask-whole-words: as many starts as there are words, whatever their pieces."""
    tokenizer = load_tokenizer(folder)
    starts = tokenizer.word_starts()
    for line in ("the cat sat on the mat", "thenceforth others", "hat"):
        ids = tokenizer.encode(line)
        assert starts[ids].sum() == len(line.split()) and starts[ids[0]]
    assert len(tokenizer.encode("thenceforth others")) > 2
