"""SentencePiece: the ids of sentencepiece itself, of fairseq's encoder and dictionary, and of transformers' XLM-R."""

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from tests.real_data import multilingual_lines
from tests.tiny_tokenizers import train_tokenizer

ADVERSARIAL = [
    "",
    " ",
    "  two  spaces\tand tabs ",
    "\u00a0no-break\u3000wide\u200bzero width",
    "\ufb01 ligature, \u2460 circled, \uff21 wide, e\u0301 combining",  # what normalization changes
    "\U0001f600\U0001f468\u200d\U0001f469 emoji \U0001f1e9\U0001f1ea",
    "\u2581 the mark itself \u2581x",
    "<s> </s> <unk> <mask> <pad>",
    "\x00\x01\ufffd\U0010ffff",
    "x" * 3000,
]


@pytest.fixture(scope="module")
def lines(shared_data):
    """Lines in six languages."""
    return multilingual_lines(shared_data, 60_000)


@pytest.fixture(scope="module")
def folder(lines, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentencepiece")
    # half of the lines, so that the rest has characters that the model does not know
    (folder / "text.txt").write_text("\n".join(lines[::2]))
    train_tokenizer("sentencepiece", [folder / "text.txt"], vocab_size=3000, folder=folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder):
    return load_tokenizer(folder)


@pytest.fixture(scope="module")
def vocabulary(folder):
    return Vocabulary.load(folder / "dict.txt")


@pytest.fixture(scope="module")
def processor(folder):
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))


@pytest.fixture(scope="module")
def encoder(folder):
    """fairseq's."""
    encoders = pytest.importorskip("fairseq.data.encoders.sentencepiece_bpe")
    config = encoders.SentencepieceConfig(sentencepiece_model=str(folder / "sentencepiece.bpe.model"))
    return encoders.SentencepieceBPE(config)


def test_sentencepieces_own_ids(tokenizer, processor, lines):
    texts = [*lines[:2000], *ADVERSARIAL]
    ids, lengths = tokenizer.encode_lines(texts)
    expected = [processor.encode(text, out_type=int) for text in texts]
    assert ids.tolist() == [index for line in expected for index in line]
    assert lengths.tolist() == [len(line) for line in expected]
    assert [tokenizer.encode(text) for text in texts] == expected
    assert 0 in ids  # unknown characters occur
    assert len(ids) > 20_000


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text(tokenizer, processor, text):
    assert tokenizer.encode(text) == processor.encode(text, out_type=int)
    assert tokenizer.decode(tokenizer.encode(text)) == processor.decode(processor.encode(text, out_type=int))


def test_fairseqs_ids(tokenizer, vocabulary, folder, encoder, lines):
    """By its encoder, then its dictionary."""
    texts = [*lines[:1000], *ADVERSARIAL]
    dictionary = pytest.importorskip("fairseq.data").Dictionary.load(str(folder / "dict.txt"))
    options = {"append_eos": False, "add_if_not_exist": False}
    to_model = vocabulary.tokenizer_to_model(tokenizer)
    found = [to_model[tokenizer.encode(text)].tolist() for text in texts]
    assert found == [dictionary.encode_line(encoder.encode(text), **options).tolist() for text in texts]
    assert any(3 in ids for ids in found)


def test_ids_of_transformers_xlmr(tokenizer, vocabulary, folder, lines):
    transformers = pytest.importorskip("transformers")
    pb2 = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
    proto = pb2.ModelProto.FromString((folder / "sentencepiece.bpe.model").read_bytes())
    pieces = [(piece.piece, piece.score) for piece in proto.pieces[3:]]
    specials = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    charsmap = proto.normalizer_spec.precompiled_charsmap
    pieces_of_theirs = [*specials, *pieces, ("<mask>", 0.0)]
    xlmr = transformers.XLMRobertaTokenizer(vocab=pieces_of_theirs, _spm_precompiled_charsmap=charsmap)
    assert len(xlmr) == len(vocabulary)
    assert xlmr.mask_token_id == vocabulary.mask_id
    to_model = vocabulary.tokenizer_to_model(tokenizer)
    texts = [line for line in lines[:1500] if line.strip()]
    found = [to_model[tokenizer.encode(text)].tolist() for text in texts]
    theirs = [xlmr.encode(text, add_special_tokens=False) for text in texts]
    # XLM-R's own search takes another of two equally good ways to cut a word, once in hundreds of lines.
    different = [pair for pair in zip(found, theirs, strict=True) if pair[0] != pair[1]]
    assert len(texts) > 500
    assert len(different) <= len(texts) // 200
    score_of = dict(pieces)
    for pair in different:
        ours, their = (sum(score_of.get(vocabulary.symbols[index], 0.0) for index in ids) for ids in pair)
        assert ours == pytest.approx(their, abs=1e-3)


def test_text_comes_back_as_sentencepiece_normalizes_it(tokenizer, lines):
    known = [line for line in lines[:1000:2] if 0 not in tokenizer.encode(line)]
    assert len(known) > 100
    for line in known:
        assert tokenizer.encode(tokenizer.decode(tokenizer.encode(line))) == tokenizer.encode(line)
    plain = [line for line in known if line.isascii() and line == " ".join(line.split())]
    assert len(plain) > 20
    assert [tokenizer.decode(tokenizer.encode(line)) for line in plain] == plain


def test_whole_word_masks_begin_where_fairseqs_do(tokenizer, vocabulary, encoder):
    starts = vocabulary.word_starts(tokenizer)
    expected = [encoder.is_beginning_of_word(symbol) for symbol in vocabulary.symbols[4:-1]]
    assert starts[4:-1].tolist() == expected
    assert 100 < sum(expected) < len(expected)
