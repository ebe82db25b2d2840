import gzip

import numpy as np
import pytest

from roberta_plugin.data.text_inputs import BadLineError, LineRules
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from tests.tiny_tokenizers import train_tokenizer

TEXT = "the cat sat on the mat, and the other cats sat there\n\nthen the thin hat fell: 12 hats\n" * 20


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def test_writes_a_tokenizer_and_its_dictionary(text_file, tmp_path):
    trained = train_tokenizer("byte_level_bpe", [text_file], vocab_size=300, folder=tmp_path / "bpe")
    tokenizer = load_tokenizer(tmp_path / "bpe")
    vocabulary = Vocabulary.load(tmp_path / "bpe" / "dict.txt")

    assert tokenizer.pieces == trained.pieces
    assert 256 < len(tokenizer.pieces) <= 300
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
    assert len(tokenizer.encode("the cat")) == 2
    assert len(tokenizer.encode("\U0001f600")) == 4  # bytes that the text does not have
    assert vocabulary.num_binarized % 8 == 0
    assert (vocabulary.tokenizer_to_model(tokenizer) >= 4).all()


def test_dictionary_counts_the_ids_of_the_text_most_frequent_first(text_file, tmp_path):
    tokenizer = train_tokenizer("byte_level_bpe", [text_file], vocab_size=300, folder=tmp_path / "bpe")
    vocabulary = Vocabulary.load(tmp_path / "bpe" / "dict.txt")
    ids, _ = tokenizer.encode_lines([line.strip() for line in TEXT.splitlines()])
    counts = vocabulary.counts[vocabulary.tokenizer_to_model(tokenizer)]

    assert counts.tolist() == np.bincount(ids, minlength=len(tokenizer.pieces)).tolist()
    assert (np.diff(vocabulary.counts[4:-1]) <= 0).all()
    assert counts.max() > counts.min() == 0


def test_training_again_and_from_an_archive_gives_the_same_bytes(text_file, tmp_path):
    archive = tmp_path / "text.txt.gz"
    archive.write_bytes(gzip.compress(TEXT.encode()))
    train_tokenizer("byte_level_bpe", [text_file], vocab_size=290, folder=tmp_path / "first")
    train_tokenizer("byte_level_bpe", [archive], vocab_size=290, folder=tmp_path / "second")
    for name in ("encoder.json", "vocab.bpe", "dict.txt"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_refuses_fewer_ids_than_bytes(text_file, tmp_path):
    with pytest.raises(ValueError, match=r"--vocab-size .* 256"):
        train_tokenizer("byte_level_bpe", [text_file], vocab_size=200, folder=tmp_path / "bpe")


def test_a_vocabulary_over_another_kind_leaves_nothing_of_it(text_file, tmp_path):
    for kind in ("byte_level_bpe", "sentencepiece", "character_bpe", "byte_level_bpe"):
        train_tokenizer(kind, [text_file], vocab_size=300 if kind == "byte_level_bpe" else 35, folder=tmp_path / "one")
        tokenizer = load_tokenizer(tmp_path / "one")
        assert tokenizer.name == kind
        assert (Vocabulary.load(tmp_path / "one" / "dict.txt").tokenizer_to_model(tokenizer) != 3).sum() > 20
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["dict.txt", "encoder.json", "vocab.bpe"]


def test_a_folder_with_two_tokenizers_is_refused(text_file, tmp_path):
    train_tokenizer("byte_level_bpe", [text_file], vocab_size=300, folder=tmp_path)
    train_tokenizer("character_bpe", [text_file], vocab_size=35, folder=tmp_path / "other").save(tmp_path)
    with pytest.raises(ValueError, match=r"two tokenizers: encoder\.json and vocab\.bpe; and character_bpe\.json"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("kind", ["byte_level_bpe", "sentencepiece", "character_bpe"])
def test_there_is_nothing_to_learn_from_no_text(tmp_path, kind):
    (tmp_path / "empty.txt").write_text("\n  \n")
    with pytest.raises(ValueError, match=r"empty\.txt: there is no text to train"):
        train_tokenizer(kind, [tmp_path / "empty.txt"], vocab_size=300, folder=tmp_path / "bpe")
    assert not (tmp_path / "bpe").exists()


def test_a_sample_of_all_the_text_gives_the_same_as_all_the_text(text_file, tmp_path):
    train_tokenizer("byte_level_bpe", [text_file], vocab_size=290, folder=tmp_path / "all")
    train_tokenizer("byte_level_bpe", [text_file], vocab_size=290, folder=tmp_path / "sample", sample_megabytes=1)
    for name in ("encoder.json", "vocab.bpe", "dict.txt"):
        assert (tmp_path / "all" / name).read_bytes() == (tmp_path / "sample" / name).read_bytes()


def test_records_of_another_field_and_bad_lines(tmp_path):
    records = tmp_path / "c4.json"
    records.write_text('{"content": "the cat sat on the mat"}\n' * 9 + "no record\n")
    rules = LineRules(json_field="content")
    with pytest.raises(BadLineError, match=r"c4\.json, line 10: .*--skip-bad-lines"):
        train_tokenizer("byte_level_bpe", [records], vocab_size=260, folder=tmp_path / "bpe", rules=rules)
    rules = LineRules(json_field="content", skip_bad_lines=True)
    tokenizer = train_tokenizer("byte_level_bpe", [records], vocab_size=262, folder=tmp_path / "bpe", rules=rules)
    assert len(tokenizer.encode("the cat")) < len("the cat")
