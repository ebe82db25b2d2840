"""Added tokens beside a tokenizer's own files: their symbols in dict.txt, and files that do not fit."""

import json

import pytest

from roberta_plugin.data.tokenizers import FILES, load_tokenizer
from roberta_plugin.data.tokenizers.additions import FILE, AddedToken, base_of, symbol_of, with_additions
from roberta_plugin.data.vocabulary import Row, Vocabulary
from tests.tiny_tokenizers import train_tokenizer

TEXT = "the dog and the fox are good, and so is it"


@pytest.fixture
def tokenizer(tmp_path):
    (tmp_path / "text.txt").write_text(f"{TEXT}\n" * 20)
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
    ids, lengths = added.encode_lines([TEXT, "", "x"])
    plain, plain_lengths = tokenizer.encode_lines([TEXT, "", "x"])
    assert ids.tolist() == plain.tolist() and lengths.tolist() == plain_lengths.tolist()
    assert ids.dtype == plain.dtype and lengths.dtype == plain_lengths.dtype


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not valid JSON"),
        ({"added_tokens": []}, "lacks the key 'add_prefix_space'"),
        ({"add_prefix_space": False, "added_tokens": [{"text": "x"}]}, "does not belong to the tokenizer beside it"),
        (
            {"add_prefix_space": False, "added_tokens": [{"content": "zzz", "is_piece": True}]},
            "the added token 'zzz' is no piece of the tokenizer",
        ),
    ],
)
def test_files_that_do_not_fit_are_named(tokenizer, tmp_path, content, message):
    path = tmp_path / "own" / FILE
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ValueError, match=message) as found:
        load_tokenizer(tmp_path / "own")
    assert str(path) in str(found.value) and "import the model again" in str(found.value)


def test_another_tokenizer_in_its_place_leaves_nothing_of_it(tokenizer, tmp_path):
    with_additions(tokenizer, [AddedToken("[E1]")]).save(tmp_path / "own")
    assert FILE in FILES
    train_tokenizer("sentencepiece", [tmp_path / "text.txt"], vocab_size=30, folder=tmp_path / "own")
    assert load_tokenizer(tmp_path / "own").name == "sentencepiece"
    assert not (tmp_path / "own" / FILE).exists()
