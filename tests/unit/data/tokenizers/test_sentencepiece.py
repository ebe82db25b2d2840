"""SentencePiece and character-level BPE: ids, places, words; the same bytes again; files that are none are named."""

import pickle

import pytest

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from tests.needed_extensions import installed_kinds, needs
from tests.refusals import refused
from tests.tiny_tokenizers import train_tokenizer

TEXT = "the cat sat on the mat, and the other cats sat there\n\nthen the thin hat fell: 12 hats\n" * 20
OPTIONS = installed_kinds(
    {"sentencepiece": {"vocab_size": 60}, "character_bpe": {"vocab_size": 80, "max_characters": 30}}
)
FILES = {"sentencepiece": "sentencepiece.bpe.model", "character_bpe": "character_bpe.json"}


def trained(kind, folder):
    (folder / "text.txt").write_text(TEXT)
    train_tokenizer(kind, [folder / "text.txt"], folder=folder, **OPTIONS[kind])
    return folder


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory):
    return trained("sentencepiece", tmp_path_factory.mktemp("sentencepiece"))


@pytest.fixture(scope="module")
def character_bpe(tmp_path_factory):
    return trained("character_bpe", tmp_path_factory.mktemp("character_bpe"))


@pytest.mark.parametrize("kind", OPTIONS)
def test_text_comes_back_and_so_does_the_tokenizer(request, kind, tmp_path):
    folder = request.getfixturevalue(kind)
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
    for name in (FILES[kind], "dict.txt"):
        assert (trained(kind, tmp_path) / name).read_bytes() == (folder / name).read_bytes(), "trained again"


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("sentencepiece", b"nothing of the kind", "not a SentencePiece model"),
        *(
            pytest.param("character_bpe", content, "is not a character-level BPE", marks=needs("character_bpe"))
            for content in (b"{", b"{}", b'{"language": "en", "bpe": {"model": 1}}', b"[]")
        ),
    ],
)
def test_a_file_of_another_format_and_too_few_ids_are_refused(kind, content, message, tmp_path):
    (tmp_path / FILES[kind]).write_bytes(content)
    refused(f"{FILES[kind]}.*{message}", load_tokenizer, tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    few = {"vocab_size": 5, "folder": tmp_path}
    refused(r"--vocab-size 5|--vocab-size must be at least 20", train_tokenizer, kind, [tmp_path / "text.txt"], **few)


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
