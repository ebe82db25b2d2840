"""Character-level BPE: the ids of sacremoses followed by Hugging Face's tokenizers, used plainly."""

import json
import lzma

import pytest
import sacremoses
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from tests.tiny_tokenizers import train_tokenizer

ADVERSARIAL = [
    "",
    "   ",
    "It's a dog's life, isn't it? \"Yes\" -- said Mr. Smith (aged 3.5) of the U.S.A...",
    "## #tag C# a##b &amp; <b> [x] {y} | ~ ^ \\ / _ = + * % $ @ !",
    "\u00a0no-break\u3000wide\u200bzero\u2028line\x85next\x00\x1fcontrol",
    "na\u00efve \u4f60\u597d \U0001f600 \u0645\u0631\u062d\u0628\u0627 \ufb01",
    "<s> </s> <unk> <mask>",
    "x" * 500,
]


@pytest.fixture(scope="module")
def lines(shared_data):
    with lzma.open(shared_data / "text" / "wikipedia.valid.txt.xz", "rt", encoding="utf-8") as file:
        return file.read(250_000).split("\n")


@pytest.fixture(scope="module")
def folder(lines, tmp_path_factory):
    folder = tmp_path_factory.mktemp("character_bpe")
    (folder / "text.txt").write_text("\n".join(lines[: len(lines) // 2]))
    train_tokenizer("character_bpe", [folder / "text.txt"], vocab_size=3000, folder=folder, max_characters=100)
    return folder


@pytest.fixture(scope="module")
def reference(folder):
    content = json.loads((folder / "character_bpe.json").read_text(encoding="utf-8"))
    bpe = tokenizers.Tokenizer.from_str(json.dumps(content["bpe"]))
    moses = sacremoses.MosesTokenizer("en")

    def encode(text):
        words = moses.tokenize(text.replace("\u2581", "_"), escape=False)
        return bpe.encode(["\u2581" + word for word in words], is_pretokenized=True)

    return encode


@pytest.fixture(scope="module")
def tokenizer(folder):
    return load_tokenizer(folder)


def test_real_and_adversarial_text(tokenizer, reference, lines):
    texts = [*lines, *ADVERSARIAL]
    ids, lengths = tokenizer.encode_lines(texts)
    expected = [reference(text) for text in texts]
    pieces = [piece for line in expected for piece in line.tokens]
    assert ids.tolist() == [index for line in expected for index in line.ids]
    assert lengths.tolist() == [len(line.ids) for line in expected]
    assert [tokenizer.symbols[index] for index in ids[:100]] == pieces[:100]
    assert tokenizer.symbols.index("<unk>") in ids
    assert len(ids) > 20_000


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text(tokenizer, reference, text):
    assert tokenizer.encode(text) == reference(text).ids


def test_dictionary_has_all_pieces(tokenizer, folder):
    vocabulary = Vocabulary.load(folder / "dict.txt")
    to_model = vocabulary.tokenizer_to_model(tokenizer)
    assert [vocabulary.symbols[index] for index in to_model] == tokenizer.symbols
    assert (to_model == vocabulary.unk_id).sum() == 1
    assert len(vocabulary) % 8 == 0


def test_words_come_back(tokenizer, lines):
    unknown = tokenizer.symbols.index("<unk>")
    checked = 0
    for line in lines:
        ids = tokenizer.encode(line)
        if line and unknown not in ids:
            text_of_pieces = "".join(tokenizer.symbols[index] for index in ids)
            assert ["\u2581" + word for word in text_of_pieces[1:].split("\u2581")] == tokenizer.words(line)
            checked += 1
    assert checked > 100


def test_plain_sentences_come_back_exactly(tokenizer):
    for text in ("The city is old, and the people of it are many.", "It was (in the end) a game: he won 3 of 10."):
        assert tokenizer.decode(tokenizer.encode(text)) == text
