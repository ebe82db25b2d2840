"""Characters of byte-level tokens are those that Hugging Face's tokenizers tell, on any text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
from tests.parity.test_bpe_vs_gpt2 import ADVERSARIAL

tokenizers = pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def ours(shared_data):
    return ByteLevelBpe.load(shared_data / "gpt2_bpe")


@pytest.fixture(scope="module")
def theirs(ours):
    ids = {piece: index for index, piece in enumerate(ours.pieces)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=ids, merges=ours.merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def check(ours, theirs, text):
    found, expected = ours.locate(text), theirs.encode(text)
    assert found.ids.tolist() == ours.encode(text)
    if found.ids.tolist() == expected.ids:  # characters younger than their tables of letters are cut otherwise
        assert list(zip(found.starts.tolist(), found.ends.tolist(), strict=True)) == expected.offsets
        return True
    return False


@pytest.mark.parametrize("text", [text for text in ADVERSARIAL if "\u0558" not in text])
def test_offsets_of_hard_texts(ours, theirs, text):
    assert check(ours, theirs, text)


def test_offsets_of_any_text(ours, theirs):
    checked = []

    @settings(deadline=None, max_examples=300)
    @given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
    def run(text):
        checked.append(check(ours, theirs, text))

    run()
    assert sum(checked) > 0.8 * len(checked), "most texts were cut otherwise: the test shows little"
