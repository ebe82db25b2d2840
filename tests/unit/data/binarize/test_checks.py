import pytest

from roberta_plugin.data.binarize.checks import refuse_nonsense, warnings_about
from roberta_plugin.data.binarize.part_files import Counts

GOOD = {"text_bytes": 10**6, "items": 100, "blank_lines": 10, "tokens": 250_100, "unknown": 0, "bad_lines": 0}


def warnings(*, num_inputs=1, text_format="text", **counts):
    record = {"path": "a", "bytes": 5, "sha256": "x", "format": text_format}
    inputs = [{**record, "sha256": str(number)} for number in range(num_inputs)]
    return warnings_about({"splits": {"train": {"counts": {**GOOD, **counts}, "inputs": inputs}}}, "train")


def test_ordinary_text_gives_no_warning():
    assert warnings() == []
    assert warnings(unknown=2500, bad_lines=5) == []
    assert warnings(num_inputs=9) == []
    assert warnings(num_inputs=9, blank_lines=0, text_format="jsonl") == []


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"unknown": 13_000}, "5.2% of its tokens are unknown"),
        ({"bad_lines": 20}, "16.7% of its lines were bad"),
        ({"tokens": 5000}, "gave only 5,000 tokens"),
        ({"tokens": 100}, "it has no text"),
        ({"num_inputs": 2, "blank_lines": 0}, "2 files have no blank line"),
    ],
)
def test_what_is_suspicious_is_said(counts, message):
    (found,) = warnings(**counts)
    assert message in found


def test_most_of_it_unknown_or_bad_is_refused():
    refuse_nonsense("train", Counts(**{**GOOD, "unknown": 124_000}), max_unknown=0.5)
    with pytest.raises(ValueError, match=r"50\.4% of the tokens of train are unknown"):
        refuse_nonsense("train", Counts(**{**GOOD, "unknown": 126_000}), max_unknown=0.5)
    refuse_nonsense("train", Counts(**{**GOOD, "unknown": 250_000}), max_unknown=1)
    with pytest.raises(ValueError, match=r"50\.2% of the lines of train are not UTF-8"):
        refuse_nonsense("train", Counts(**{**GOOD, "bad_lines": 101}), max_unknown=1)
