"""Tokenizers that are trained on a text, and the sample of the text."""

import gzip
import os
import threading
from contextlib import suppress

import numpy as np
import pytest

from roberta_plugin.data.text_inputs import FAIRSEQ_RULES, BadLineError, LineRules
from roberta_plugin.data.text_inputs_files import find_inputs
from roberta_plugin.data.tokenizers import load_tokenizer, training
from roberta_plugin.data.tokenizers.training import TextSample
from roberta_plugin.data.vocabulary import Vocabulary
from tests.needed_extensions import with_kinds_of_extensions
from tests.refusals import refused
from tests.tiny_tokenizers import train_tokenizer

TEXT = "the cat sat on the mat, and the other cats sat there\n\nthen the thin hat fell: 12 hats\n" * 20


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def trained(path, folder, vocab_size=290, kind="byte_level_bpe", **options):
    return train_tokenizer(kind, [path], vocab_size=vocab_size, folder=folder, **options)


def test_writes_a_tokenizer_and_its_dictionary_which_counts_the_ids_most_frequent_first(text_file, tmp_path):
    pieces = trained(text_file, tmp_path / "bpe", 300).pieces
    tokenizer, vocabulary = load_tokenizer(tmp_path / "bpe"), Vocabulary.load(tmp_path / "bpe" / "dict.txt")
    assert tokenizer.pieces == pieces
    assert 256 < len(tokenizer.pieces) <= 300
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
    assert len(tokenizer.encode("the cat")) == 2
    assert len(tokenizer.encode("\U0001f600")) == 4  # bytes that the text does not have
    assert len(vocabulary) % 8 == 0, "with <mask>, the size of a model's LM head"
    to_model = vocabulary.tokenizer_to_model(tokenizer)
    assert (to_model >= 4).all()

    ids, _ = tokenizer.encode_lines([line.strip() for line in TEXT.splitlines()])
    counts = vocabulary.counts[to_model]
    assert counts.tolist() == np.bincount(ids, minlength=len(tokenizer.pieces)).tolist()
    assert (np.diff(vocabulary.counts[4:-1]) <= 0).all()
    assert counts.max() > counts.min() == 0


def test_training_again_from_an_archive_or_a_sample_of_all_the_text_gives_the_same_bytes(text_file, tmp_path):
    archive = tmp_path / "text.txt.gz"
    archive.write_bytes(gzip.compress(TEXT.encode()))
    trained(text_file, tmp_path / "first")
    trained(archive, tmp_path / "second")
    trained(text_file, tmp_path / "sample", sample_megabytes=1)
    for name in ("encoder.json", "vocab.bpe", "dict.txt"):
        for other in ("second", "sample"):
            assert (tmp_path / other / name).read_bytes() == (tmp_path / "first" / name).read_bytes()


def test_with_a_space_in_front_words_are_the_same_at_the_beginning(text_file, tmp_path):
    made = trained(text_file, tmp_path / "bpe", 300, add_prefix_space=True)
    opened = load_tokenizer(tmp_path / "bpe")
    for tokenizer in (made, opened):
        lines = ["the cat sat", "", " the cat sat", "cat"]
        ids, lengths = tokenizer.encode_lines(lines)
        assert ids.tolist() == [number for line in lines for number in tokenizer.encode(line)]
        assert lengths.tolist() == [len(tokenizer.encode(line)) for line in lines] and lengths[1] == 0
        assert tokenizer.encode("the cat sat") == tokenizer.encode(" the cat sat")
        assert tokenizer.encode("cat") == tokenizer.encode("the cat")[-len(tokenizer.encode("cat")) :]
    counted = Vocabulary.load(tmp_path / "bpe" / "dict.txt").counts
    (of_the,) = Vocabulary.load(tmp_path / "bpe" / "dict.txt").tokenizer_to_model(made)[made.encode("the")]
    assert counted[of_the] == 20 * 4, "the first word of a line, too"
    plain = trained(text_file, tmp_path / "plain", 300)
    assert plain.encode("the cat sat") != plain.encode(" the cat sat")


def test_refuses_fewer_ids_than_bytes(text_file, tmp_path):
    refused(r"--vocab-size .* 256", trained, text_file, tmp_path / "bpe", 200)


def test_a_vocabulary_over_another_kind_leaves_nothing_of_it(text_file, tmp_path):
    for kind in ("byte_level_bpe", "sentencepiece", "whitespace", "byte_level_bpe"):
        trained(text_file, tmp_path / "one", 300 if kind == "byte_level_bpe" else 35, kind)
        tokenizer = load_tokenizer(tmp_path / "one")
        assert tokenizer.name == kind
        assert (Vocabulary.load(tmp_path / "one" / "dict.txt").tokenizer_to_model(tokenizer) != 3).sum() > 10
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["dict.txt", "encoder.json", "vocab.bpe"]


def test_a_folder_with_two_tokenizers_is_refused(text_file, tmp_path):
    trained(text_file, tmp_path, 300)
    trained(text_file, tmp_path / "other", 35, "sentencepiece").save(tmp_path)
    refused(r"two tokenizers: encoder\.json and vocab\.bpe; and sentencepiece\.bpe\.model", load_tokenizer, tmp_path)


@pytest.mark.parametrize("kind", with_kinds_of_extensions({"byte_level_bpe": 300, "sentencepiece": 35}, 35))
def test_there_is_nothing_to_learn_from_no_text(tmp_path, kind):
    (tmp_path / "empty.txt").write_text("\n  \n")
    message = r"empty\.txt: there is no text to train"
    refused(message, trained, tmp_path / "empty.txt", tmp_path / "bpe", 300, kind)
    assert not (tmp_path / "bpe").exists()


def test_a_corpus_without_text_is_named(tmp_path):
    for name, text in (("en", TEXT), ("sw", "")):
        (tmp_path / "corpora" / name).mkdir(parents=True)
        (tmp_path / "corpora" / name / "train.txt").write_text(text)
    options = {"vocab_size": 300, "folder": tmp_path / "bpe", "corpora": tmp_path / "corpora"}
    refused(r"sw: there is no text in the files train\.\*", train_tokenizer, "byte_level_bpe", [], **options)


def test_records_of_another_field_and_bad_lines(tmp_path):
    records = tmp_path / "c4.json"
    records.write_text('{"content": "the cat sat on the mat"}\n' * 9 + "no record\n")
    rules, message = LineRules(text_column="content"), r"c4\.json, line 10: .*--skip-bad-lines"
    refused(message, trained, records, tmp_path / "bpe", 260, rules=rules, error=BadLineError)
    rules = LineRules(text_column="content", skip_bad_lines=True)
    tokenizer = trained(records, tmp_path / "bpe", 262, rules=rules)
    assert len(tokenizer.encode("the cat")) < len("the cat")


NUM_LINES = 60_000
SAMPLED = "".join(f"line {number:06d} of the corpus\n" for number in range(NUM_LINES))  # 1.6 MB


@pytest.fixture(params=["plain", "gz", "several", "row groups", "one row group"])
def sources(request, tmp_path, monkeypatch):
    if request.param == "gz":
        (tmp_path / "text.txt.gz").write_bytes(gzip.compress(SAMPLED.encode(), 1))
    elif request.param == "plain":
        (tmp_path / "text.txt").write_text(SAMPLED)
    elif "row group" in request.param:
        parquet = pytest.importorskip("pyarrow.parquet")
        monkeypatch.setattr(training, "_LARGEST_PIECE_BYTES", 2**17)
        table = pytest.importorskip("pyarrow").table({"text": SAMPLED.splitlines()})
        size = 500 if request.param == "row groups" else NUM_LINES
        parquet.write_table(table, tmp_path / "a.parquet", row_group_size=size, use_dictionary=False)
    else:
        lines = SAMPLED.splitlines(keepends=True)
        for number in range(40):
            (tmp_path / f"{number:02d}.txt").write_text("".join(lines[number * 1500 : (number + 1) * 1500]))
    return find_inputs([tmp_path / "*"])


def numbers_in(sample):
    return [int(line.split()[1]) for lines in sample.lines() for line in lines if line]


def test_a_sample_is_of_the_size_asked_for_spread_evenly_and_always_the_same(sources):
    sample = TextSample(sources, max_bytes=len(SAMPLED) // 4, rules=FAIRSEQ_RULES)
    numbers = numbers_in(sample)
    again = TextSample(sources, max_bytes=len(SAMPLED) // 4, rules=FAIRSEQ_RULES)
    assert numbers == numbers_in(sample) == numbers_in(again) == sorted(set(numbers))
    assert len(numbers) == pytest.approx(NUM_LINES / 4, rel=0.2)
    quarters = np.bincount(np.array(numbers) // (NUM_LINES // 4))
    assert min(quarters) > 0.5 * max(quarters)
    assert not sample.is_whole
    # Parquet has four more bytes for each text.
    assert sample.total_bytes == pytest.approx(len(SAMPLED), rel=0.2 if sources[0].is_columnar else 0.05)


@pytest.mark.parametrize("max_bytes", [None, 10 * len(SAMPLED)])
def test_what_is_less_than_the_sample_is_taken_whole(sources, max_bytes):
    sample = TextSample(sources, max_bytes=max_bytes, rules=FAIRSEQ_RULES)
    assert numbers_in(sample) == list(range(NUM_LINES))
    assert sample.is_whole


def test_of_a_pipe_the_beginning_is_the_sample(tmp_path):
    def write_until_closed():
        with suppress(BrokenPipeError), open(tmp_path / "pipe", "w") as file:
            file.write(SAMPLED * 5)

    os.mkfifo(tmp_path / "pipe")
    threading.Thread(target=write_until_closed).start()
    sample = TextSample(find_inputs([tmp_path / "pipe"]), max_bytes=10**6, rules=FAIRSEQ_RULES)
    numbers = numbers_in(sample)
    assert numbers == numbers_in(sample) == list(range(len(numbers)))
    assert 10**6 <= len(numbers) * 27 <= 2.1 * 10**6


def test_a_bad_line_of_a_sample_has_the_number_it_has_in_the_file(tmp_path):
    (tmp_path / "bad.txt").write_bytes(SAMPLED.encode() + b"\xff\n" * 200_000)
    sample = TextSample(find_inputs([tmp_path / "bad.txt"]), max_bytes=10**6, rules=FAIRSEQ_RULES)
    with pytest.raises(BadLineError, match=r"bad\.txt, line (\d+):") as error:
        numbers_in(sample)
    assert NUM_LINES < error.value.line < NUM_LINES + 100_000
