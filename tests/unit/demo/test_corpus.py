import pytest

from roberta_plugin.demo.corpus import TEST_SHARE, VALID_SHARE, make_splits, split_of, write_corpus
from roberta_plugin.demo.source_documents import Document

NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def sentence(number):
    words = " ".join(NUMBERS[int(digit)] for digit in str(number))
    return f"The sentence that is called {words} stands here alone."


def documents(count, *, common=None):
    for number in range(count):
        own = [sentence(10 * number + k) for k in range(3)]
        yield Document(f"package/{number}.py", [*own, *([common] if common else [])])


def name_in(split):
    return next(f"package/{number}.py" for number in range(1000) if split_of(f"package/{number}.py") == split)


def test_the_shares_of_the_splits_are_as_stated():
    names = [f"package/{number}.py" for number in range(20_000)]
    splits = [split_of(name) for name in names]
    assert splits.count("valid") / len(names) == pytest.approx(VALID_SHARE, abs=0.005)
    assert splits.count("test") / len(names) == pytest.approx(TEST_SHARE, abs=0.005)
    assert splits == [split_of(name) for name in names]


def test_every_paragraph_is_in_one_split_once():
    splits = make_splits(documents(300, common="A paragraph that all of these documents share."))
    paragraphs = [paragraph for texts in splits.values() for text in texts for paragraph in text.paragraphs]
    assert len(paragraphs) == len(set(paragraphs)) == 3 * 300 + 1
    assert all(len(texts) > 2 for texts in splits.values())


def test_paragraphs_that_differ_in_case_digits_and_marks_are_the_same():
    texts = ["It returns the 2 largest values of the list.", "It returns the 3 largest values (of the list)!"]
    splits = make_splits([Document("package/0.py", texts), Document("package/1.py", [sentence(1)])])
    assert sum(len(text.paragraphs) for texts in splits.values() for text in texts) == 2


@pytest.mark.parametrize("held_out_first", [True, False])
@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_held_out_paragraph_that_shares_a_sentence_with_the_training_text_is_dropped(split, held_out_first):
    shared = sentence(1)
    train = Document(name_in("train"), [f"{shared} {sentence(2)}"])
    held_out = Document(name_in(split), [f"{sentence(3)} {shared}", sentence(4)])
    splits = make_splits([held_out, train] if held_out_first else [train, held_out])
    assert splits["train"][0].paragraphs == [f"{shared} {sentence(2)}"]
    assert splits[split][0].paragraphs == [sentence(4)]


def test_the_files_hold_a_paragraph_a_line_and_a_blank_line_between_documents(tmp_path):
    counts = write_corpus(tmp_path, documents(200))
    text = (tmp_path / "train.txt").read_text()
    parts = text.rstrip("\n").split("\n\n")
    assert len(parts) == counts["train_documents"]
    assert all(len(part.splitlines()) == 3 for part in parts)
    assert counts["train_paragraphs"] == 3 * len(parts)
    assert counts["train_bytes"] == len(text.encode())


def test_max_bytes_limits_the_text(tmp_path):
    counts = write_corpus(tmp_path, documents(5000), max_bytes=60_000)
    total = sum(counts[f"{split}_bytes"] for split in ("train", "valid", "test"))
    assert 55_000 < total < 65_000


def test_too_little_text_is_refused_by_the_name_of_the_option(tmp_path):
    with pytest.raises(ValueError, match="--max-megabytes"):
        write_corpus(tmp_path, documents(1))
