"""Exported tokenizers in transformers: the ids of our own, and our own again after the way back."""

import itertools
import json
import lzma
import unicodedata

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import ByteLevelBPETokenizer, Tokenizer, models, pre_tokenizers, trainers

from roberta_plugin.conversion.huggingface_tokenizers import model_type_of, write_tokenizer
from roberta_plugin.conversion.portable import Head, PortableModel
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.tokenizers.huggingface import read_tokenizer
from roberta_plugin.data.vocabulary import MASK, SPECIALS, Row, Vocabulary
from roberta_plugin.hub.texts import TextCodec
from tests.hugging_face import import_transformers
from tests.real_data import multilingual_lines
from tests.refusals import refused
from tests.tiny_conversions import TEXT
from tests.tiny_tokenizers import train_tokenizer

transformers = import_transformers()
ADVERSARIAL = [
    "",
    " ",
    "  two  spaces\tand tabs\r\n and lines\n",
    "\u00a0no-break\u3000wide\u200bzero width\u2028line",
    "\ufb01 ligature, \u2460 circled, \uff21 wide, e\u0301 combining, \u0130 \u1e9e",
    "\U0001f600\U0001f468\u200d\U0001f469 emoji \U0001f1e9\U0001f1ea",
    "\u2581 the mark itself \u2581x",
    "\x00\x01\x1f\x7f\x85\ufffd\U0010ffff",
    "it's we'll I'd they've 'tis 'S ''s",
    "1,234.5 3rd \u0663\u0664 \u2167 \u00bd",
    "x" * 3000,
    "\u0e20\u0e32\u0e29\u0e32 \u0627\u0644\u0639 \u05e2\u05d1 \ud55c\uad6d\uc5b4 \u65e5\u672c\u8a9e",
    "madeupword0000 <|endoftext|> [MASK] </ s>",
]


def exported(folder, out, kind="masked_lm", **options):
    """The portable model around the tokenizer in a folder, and transformers' tokenizer of its export."""
    model = PortableModel(
        state={"model": {"x": torch.zeros(1)}},
        tokenizer=load_tokenizer(folder),
        vocabulary=Vocabulary.load(folder / "dict.txt"),
        head=Head(kind=kind, name="a_head"),
        path=folder,
        source="checkpoint",
    )
    out.mkdir()
    write_tokenizer(model, out, model_type=model_type_of(model), max_length=510)
    return model, transformers.AutoTokenizer.from_pretrained(out, **options)


def our_ids(model, texts):
    to_model = model.vocabulary.tokenizer_to_model(model.tokenizer)
    return [to_model[model.tokenizer.encode(text)].tolist() for text in texts]


def their_ids(tokenizer, texts):
    return [tokenizer.encode(text, add_special_tokens=False) for text in texts]


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bpe")
    (folder / "text.txt").write_text("\n".join([TEXT, *ADVERSARIAL[:-3]] * 20).replace("\0", ""), newline="\n")
    train_tokenizer("byte_level_bpe", [folder / "text.txt"], vocab_size=400, folder=folder)
    return exported(folder, folder / "out")


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=40))
def test_any_text_has_our_ids_of_byte_level_bpe(byte_level, text):
    model, tokenizer = byte_level
    assume(not any(special in text for special in tokenizer.all_special_tokens))  # theirs is one id, ours the letters
    assert their_ids(tokenizer, [text]) == our_ids(model, [text])


@pytest.fixture(scope="module")
def by_tokenizers(tmp_path_factory):
    """Folders of one tokenizer as `tokenizers` writes it, in two files or in one, and as transformers does."""
    folder = tmp_path_factory.mktemp("theirs")
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(
        [TEXT, *ADVERSARIAL] * 9, vocab_size=400, special_tokens=[*SPECIALS, MASK], show_progress=False
    )
    for name in ("two", "one"):
        (folder / name).mkdir()
    trained.save_model(str(folder / "two"))
    trained.save(str(folder / "one" / "tokenizer.json"))
    theirs = transformers.RobertaTokenizerFast.from_pretrained(folder / "two")
    theirs.save_pretrained(folder / "saved")
    ours = [(load_tokenizer(path), Vocabulary.from_tokenizer(path)) for path in sorted(folder.iterdir())]
    assert all(len(vocabulary) == len(theirs) for _, vocabulary in ours)
    return theirs, [(tokenizer, vocabulary.tokenizer_to_model(tokenizer)) for tokenizer, vocabulary in ours]


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=40))
def test_a_folder_of_theirs_has_their_ids_here(by_tokenizers, text):
    theirs, ours = by_tokenizers
    assume(not any(special in text for special in theirs.all_special_tokens))
    for tokenizer, to_model in ours:
        assert [to_model[tokenizer.encode(text)].tolist()] == their_ids(theirs, [text])


@pytest.mark.parametrize("cuts", [[], ["WhitespaceSplit"]])
def test_spaces_of_unigram_are_theirs_or_refused(tmp_path, caplog, cuts):
    """Metaspace alone makes a piece of each of several spaces, and SentencePiece reads them as one."""
    trained = Tokenizer(models.Unigram())
    steps = [*(getattr(pre_tokenizers, name)() for name in cuts), pre_tokenizers.Metaspace()]
    trained.pre_tokenizer = pre_tokenizers.Sequence(steps)
    trainer = trainers.UnigramTrainer(
        vocab_size=60, special_tokens=[*SPECIALS, MASK], unk_token="<unk>", show_progress=False
    )
    trained.train_from_iterator([TEXT] * 9, trainer)
    transformers.PreTrainedTokenizerFast(tokenizer_object=trained).save_pretrained(tmp_path)
    if not cuts:
        refused(r"tokenizer\.json: each of several spaces is a piece.*WhitespaceSplit", load_tokenizer, tmp_path)
        return
    tokenizer, vocabulary = load_tokenizer(tmp_path), Vocabulary.from_tokenizer(tmp_path)
    assert "a tab or another white space than the space is a symbol" in caplog.text
    texts = [TEXT, f"  {TEXT.replace(' ', '  ')} ", "", " ", "a  b"]
    to_model = vocabulary.tokenizer_to_model(tokenizer)
    ids = [to_model[tokenizer.encode(text)].tolist() for text in texts]
    assert ids == [trained.encode(text, add_special_tokens=False).ids for text in texts]


def test_adversarial_texts_have_our_ids_of_byte_level_bpe(byte_level):
    model, tokenizer = byte_level
    assert their_ids(tokenizer, ADVERSARIAL) == our_ids(model, ADVERSARIAL)
    special = "<s> a </s> <pad> <unk> <mask>"
    split = {"add_special_tokens": False, "split_special_tokens": True}
    assert tokenizer.encode(special, **split) == our_ids(model, [special])[0]
    pair = tokenizer("a", "b")["input_ids"]
    (a,), (b,) = our_ids(model, ["a", "b"])
    assert pair == [0, a, 2, 2, b, 2]
    assert tokenizer.decode(pair, skip_special_tokens=True) == "ab"
    assert tokenizer.convert_tokens_to_ids(["<s>", "<pad>", "</s>", "<unk>"]) == [0, 1, 2, 3]
    assert tokenizer.mask_token_id == model.vocabulary.mask_id == len(model.vocabulary) - 1
    assert tokenizer.model_max_length == 510


def test_pieces_without_a_line_in_dict_are_refused(byte_level, sentence_piece, tmp_path):
    for number, (model, _) in enumerate((byte_level, sentence_piece)):
        folder = tmp_path / str(number)
        folder.mkdir()
        model.tokenizer.save(folder)
        Vocabulary([Row(symbol, 1) for symbol in model.vocabulary.symbols[4:-1:2]]).save(folder / "dict.txt")
        message = r"pieces of the .* are not in dict\.txt and so are <unk> here"
        refused(message, exported, folder, folder / "out")


def check_ids(model, folder):
    """A tokenizer that is read gives the ids of the original."""
    texts = [TEXT, *ADVERSARIAL]
    back = read_tokenizer(folder, num_symbols=len(model.vocabulary))
    vocabulary = Vocabulary.from_symbols(back.symbols)
    to_model = vocabulary.tokenizer_to_model(back.tokenizer)
    assert [to_model[back.tokenizer.encode(text)].tolist() for text in texts] == our_ids(model, texts)
    assert vocabulary.mask_id == model.vocabulary.mask_id


def check_way_back(model, folder):
    """Without tokenizer.json, too."""
    check_ids(model, folder)
    (folder / "tokenizer.json").unlink()
    check_ids(model, folder)


def test_a_byte_level_bpe_comes_back(byte_level, tmp_path):
    model, _ = byte_level
    write_tokenizer(model, tmp_path, model_type="roberta", max_length=510)
    check_way_back(model, tmp_path)


STRIPS = {"content": "<mask>", "lstrip": True, "normalized": False, "rstrip": False, "single_word": False}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (None, None),
        ("tokenizer_config.json", {"model_max_length": 510}),
        ("tokenizer_config.json", {"mask_token": {"__type": "AddedToken", **STRIPS}}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"MASK_ID": STRIPS}, "mask_token": "<mask>"}),
        ("special_tokens_map.json", {"mask_token": STRIPS}),
    ],
)
def test_the_space_before_a_mask_without_tokenizer_json_is_that_of_transformers(byte_level, tmp_path, name, content):
    model, _ = byte_level
    write_tokenizer(model, tmp_path, model_type="roberta", max_length=510)
    for other in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / other).unlink()
    if name is not None:
        text = json.dumps(content).replace("MASK_ID", str(model.vocabulary.mask_id))
        (tmp_path / name).write_text(text)
    back = read_tokenizer(tmp_path, num_symbols=len(model.vocabulary))
    codec = TextCodec(back.tokenizer, Vocabulary.from_symbols(back.symbols), mask_keeps_space=back.mask_keeps_space)
    theirs = transformers.RobertaTokenizer.from_pretrained(tmp_path)
    texts = ["The lazy <mask> dog", "<mask> dog", "dog  <mask>, and"]
    assert [ids.tolist() for ids in codec.sequences(texts)] == theirs(texts)["input_ids"]
    assert back.mask_keeps_space == (content is None or "model_max_length" in content)


@pytest.fixture(scope="module")
def sentence_piece(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spm")
    (folder / "text.txt").write_text("\n".join(f"{TEXT} {number} {number * 7}" for number in range(400)))
    train_tokenizer("sentencepiece", [folder / "text.txt"], vocab_size=90, folder=folder)
    return exported(folder, folder / "out")


def score(model, ids):
    processor = model.tokenizer._processor
    back = model.vocabulary.model_to_tokenizer(model.tokenizer)
    return sum(processor.get_score(int(back[number])) if back[number] >= 0 else -99.0 for number in ids)


def has_several_marks(text):
    marks = [unicodedata.combining(character) > 0 for character in unicodedata.normalize("NFD", text)]
    return any(first and second for first, second in itertools.pairwise(marks))


def assert_same_but_for_ties(model, tokenizer, texts, *, ties_at_most):
    """SentencePiece adds scores in 32 bits, tokenizers in 64: of two equally good ways each may take another.

    And tokenizers' normalization loses marks of a letter that has several.
    """
    triples = zip(texts, our_ids(model, texts), their_ids(tokenizer, texts), strict=True)
    different = [triple for triple in triples if triple[1] != triple[2]]
    for text, ours, theirs in different:
        if has_several_marks(text):
            continue
        assert score(model, ours) == pytest.approx(score(model, theirs), abs=1e-3)
    assert len(different) <= ties_at_most


def test_texts_have_our_ids_of_sentencepiece(sentence_piece):
    model, tokenizer = sentence_piece
    assert_same_but_for_ties(model, tokenizer, [TEXT, *ADVERSARIAL], ties_at_most=0)
    assert tokenizer.mask_token_id == model.vocabulary.mask_id
    assert tokenizer("lazy <mask>")["input_ids"][-2:] == [model.vocabulary.mask_id, 2]


def test_a_sentencepiece_model_comes_back(sentence_piece, tmp_path):
    model, _ = sentence_piece
    write_tokenizer(model, tmp_path, model_type="xlm-roberta", max_length=510)
    check_way_back(model, tmp_path)
    write_tokenizer(model, tmp_path, model_type="xlm-roberta", max_length=510)
    (tmp_path / "sentencepiece.bpe.model").unlink()
    check_ids(model, tmp_path)  # as in folders of today: tokenizer.json alone


def test_gpt2s_own_files_come_back(shared_data, tmp_path):
    model, tokenizer = exported(shared_data / "gpt2_bpe", tmp_path / "out")
    lines = list(ADVERSARIAL)
    for name in ("books", "news", "wikipedia"):
        with lzma.open(shared_data / "text" / f"{name}.valid.txt.xz", "rt") as file:
            lines += [line.rstrip("\n") for line in itertools.islice(file, 4_000)]
    assert len(lines) > 4_000
    found = their_ids(tokenizer, lines)
    assert found == our_ids(model, lines)
    back = read_tokenizer(tmp_path / "out", num_symbols=len(model.vocabulary))
    assert back.tokenizer.description() == model.tokenizer.description()
    assert Vocabulary.from_symbols(back.symbols).symbols == model.vocabulary.symbols


def test_lines_of_many_languages_have_our_ids_of_sentencepiece(shared_data, tmp_path):
    lines = multilingual_lines(shared_data, 400_000)
    (tmp_path / "text.txt").write_text("\n".join(lines[::2]))
    train_tokenizer("sentencepiece", [tmp_path / "text.txt"], vocab_size=3000, folder=tmp_path)
    model, tokenizer = exported(tmp_path, tmp_path / "out")
    lines = [part for line in lines for part in (line[:200], line[200:400]) if part]
    assert len(lines) > 4_000
    assert_same_but_for_ties(model, tokenizer, lines, ties_at_most=len(lines) // 200)


def test_words_for_a_tagger_keep_their_spaces_as_run_ner_asks_for_them(byte_level, sentence_piece, tmp_path):
    """AutoTokenizer ignored add_prefix_space, and words were glued together."""
    words = ["Ann", "lives", "in", "Oslo", ",", "1,234.5", "\u00e9t\u00e9"]
    for folder, space in ((byte_level[0].path, " "), (sentence_piece[0].path, "")):
        model, theirs = exported(folder, tmp_path / folder.name, "tagging", add_prefix_space=True)
        (ours,) = our_ids(model, [space + " ".join(words)])  # theirs has a space before the first word, too
        found = theirs(words, is_split_into_words=True)
        assert found["input_ids"][1:-1] == list(ours)
        assert sorted(set(found.word_ids()) - {None}) == list(range(len(words)))
        plain = transformers.AutoTokenizer.from_pretrained(tmp_path / folder.name)
        (ours,) = our_ids(model, [" ".join(words)])
        assert plain(" ".join(words))["input_ids"][1:-1] == list(ours)
