"""SentencePiece and character-level BPE: ids, places, words; the same bytes again; files that are none are named."""

import pickle

import pytest

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.registry import TOKENIZERS
from tests.needed_extensions import with_kinds_of_extensions
from tests.refusals import refused
from tests.tiny_tokenizers import train_tokenizer

TEXT = "the cat sat on the mat, and the other cats sat there\n\nthen the thin hat fell: 12 hats\n" * 20
OPTIONS = with_kinds_of_extensions({"sentencepiece": {"vocab_size": 60}}, {"vocab_size": 80, "max_characters": 30})


def trained(kind, folder):
    (folder / "text.txt").write_text(TEXT)
    train_tokenizer(kind, [folder / "text.txt"], folder=folder, **OPTIONS[kind])
    return folder


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory):
    return trained("sentencepiece", tmp_path_factory.mktemp("sentencepiece"))


@pytest.mark.parametrize("kind", OPTIONS)
def test_text_comes_back_and_so_does_the_tokenizer(kind, tmp_path_factory, tmp_path):
    folder = trained(kind, tmp_path_factory.mktemp(kind))
    tokenizer = load_tokenizer(folder)
    lines = ["the cat sat", "", "12 hats"]
    ids, lengths = tokenizer.encode_lines(lines)
    assert ids.tolist() == [index for line in lines for index in tokenizer.encode(line)]
    assert lengths.tolist() == [len(tokenizer.encode(line)) for line in lines]
    assert [tokenizer.decode(tokenizer.encode(line)) for line in lines] == lines
    assert tokenizer.encode_lines([])[0].tolist() == []
    refused("Token id 999", tokenizer.decode, [999])
    again = pickle.loads(pickle.dumps(tokenizer))
    again.save(tmp_path)
    assert load_tokenizer(tmp_path).symbols == tokenizer.symbols
    assert load_tokenizer(tmp_path).encode("the cat") == tokenizer.encode("the cat")
    assert again.description() == tokenizer.description()
    for name in (TOKENIZERS[kind].files[0], "dict.txt"):
        assert (trained(kind, tmp_path) / name).read_bytes() == (folder / name).read_bytes(), "trained again"


def test_a_file_of_another_format_and_too_few_ids_are_refused(tmp_path):
    (tmp_path / "sentencepiece.bpe.model").write_bytes(b"nothing of the kind")
    refused(r"sentencepiece\.bpe\.model.*not a SentencePiece model", load_tokenizer, tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    few = {"vocab_size": 5, "folder": tmp_path}
    refused(r"--vocab-size 5", train_tokenizer, "sentencepiece", [tmp_path / "text.txt"], **few)


def test_model_ids_are_one_more_than_sentencepieces(sentencepiece):
    tokenizer, vocabulary = load_tokenizer(sentencepiece), Vocabulary.load(sentencepiece / "dict.txt")
    to_model = vocabulary.tokenizer_to_model(tokenizer)
    assert to_model[:3].tolist() == [3, 0, 2]
    assert to_model[3:].tolist() == list(range(4, len(tokenizer.symbols) + 1))
    assert vocabulary.mask_id == len(tokenizer.symbols) + 1


def test_a_character_that_becomes_several_is_the_place_of_all(sentencepiece):
    located = load_tokenizer(sentencepiece).locate("12 \u00bd hats")  # a half is 1, a slash, 2
    places = list(zip(located.starts.tolist(), located.ends.tolist(), strict=True))
    assert places[:7] == [(0, 0), (0, 1), (1, 2), (2, 3), (3, 4), (3, 4), (3, 4)]


def test_word_starts_are_the_first_pieces_of_words(sentencepiece):
    """For --mask-whole-words: as many starts as there are words, whatever their pieces."""
    tokenizer = load_tokenizer(sentencepiece)
    starts = tokenizer.word_starts()
    for line in ("the cat sat on the mat", "thenceforth others", "hat"):
        ids = tokenizer.encode(line)
        assert starts[ids].sum() == len(line.split()) and starts[ids[0]]
    assert len(tokenizer.encode("thenceforth others")) > 2
