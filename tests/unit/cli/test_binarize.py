import pytest

from roberta_plugin.cli import build_parser
from roberta_plugin.cli.binarize import splits_of, summary


def parse(*words):
    return build_parser("binarize").parse_args(["binarize", "--tokenizer", "t", "--destination", "d", *words])


def test_splits_come_from_their_options():
    args = parse("--train", "a", "b", "--valid", "c", "--train", "d", "--split", "extra", "e", "f")
    assert splits_of(args) == {"train": ["a", "b", "d"], "valid": ["c"], "extra": ["e", "f"]}


@pytest.mark.parametrize("words", [[], ["--split", "name"], ["--train", "a", "--split", "train", "b"]])
def test_splits_that_make_no_sense(words):
    with pytest.raises(ValueError, match=r"--split|Nothing to binarize"):
        splits_of(parse(*words))


def test_summary_tells_what_was_left_out():
    counts = {"text_bytes": 2_000_000, "items": 10, "blank_lines": 2, "tokens": 1010, "unknown": 5, "bad_lines": 3}
    text = summary("train", counts, 2.0)
    for part in ("1,010 tokens", "10 lines (2 blank)", "0.500% unknown", "3 bad lines left out", "2.0 MB"):
        assert part in text
    assert "bad" not in summary("train", {**counts, "bad_lines": 0}, 2.0)
