import gzip
import os
import threading

import pytest

from roberta_plugin.data.text_inputs import FAIRSEQ_RULES, BadLineError
from roberta_plugin.data.text_inputs_files import find_inputs
from roberta_plugin.data.text_inputs_sample import TextSample

NUM_LINES = 60_000
TEXT = "".join(f"line {number:06d} of the corpus\n" for number in range(NUM_LINES))  # 1.6 MB


@pytest.fixture(params=["plain", "gz", "several"])
def sources(request, tmp_path):
    if request.param == "gz":
        (tmp_path / "text.txt.gz").write_bytes(gzip.compress(TEXT.encode(), 1))
    elif request.param == "plain":
        (tmp_path / "text.txt").write_text(TEXT)
    else:
        lines = TEXT.splitlines(keepends=True)
        for number in range(40):
            (tmp_path / f"{number:02d}.txt").write_text("".join(lines[number * 1500 : (number + 1) * 1500]))
    return find_inputs([tmp_path / "*"])


def numbers_in(sample):
    return [int(line.split()[1]) for lines in sample.lines() for line in lines]


def test_a_sample_is_of_the_size_asked_for_spread_evenly_and_always_the_same(sources):
    sample = TextSample(sources, max_bytes=len(TEXT) // 4, rules=FAIRSEQ_RULES)
    numbers = numbers_in(sample)
    assert (
        numbers == numbers_in(sample) == numbers_in(TextSample(sources, max_bytes=len(TEXT) // 4, rules=FAIRSEQ_RULES))
    )
    assert numbers == sorted(set(numbers))
    assert len(numbers) == pytest.approx(NUM_LINES / 4, rel=0.2)
    quarters = [
        sum(first <= number < first + NUM_LINES // 4 for number in numbers) for first in range(0, NUM_LINES, 15000)
    ]
    assert min(quarters) > 0.5 * max(quarters)
    assert not sample.is_whole
    assert sample.total_bytes == pytest.approx(len(TEXT), rel=0.05)


@pytest.mark.parametrize("max_bytes", [None, 10 * len(TEXT)])
def test_what_is_less_than_the_sample_is_taken_whole(sources, max_bytes):
    sample = TextSample(sources, max_bytes=max_bytes, rules=FAIRSEQ_RULES)
    assert numbers_in(sample) == list(range(NUM_LINES))
    assert sample.is_whole


def test_of_a_pipe_the_beginning_is_the_sample(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    threading.Thread(target=write_until_closed, args=(tmp_path / "pipe",)).start()
    sample = TextSample(find_inputs([tmp_path / "pipe"]), max_bytes=10**6, rules=FAIRSEQ_RULES)
    numbers = numbers_in(sample)
    assert numbers == numbers_in(sample) == list(range(len(numbers)))
    assert 10**6 <= len(numbers) * 27 <= 2.1 * 10**6


def write_until_closed(path):
    try:
        with open(path, "w") as file:
            file.write(TEXT * 5)
    except BrokenPipeError:
        pass


def test_a_bad_line_of_a_sample_has_the_number_it_has_in_the_file(tmp_path):
    (tmp_path / "bad.txt").write_bytes(TEXT.encode() + b"\xff\n" * 200_000)
    sample = TextSample(find_inputs([tmp_path / "bad.txt"]), max_bytes=10**6, rules=FAIRSEQ_RULES)
    with pytest.raises(BadLineError, match=r"bad\.txt, line (\d+):") as error:
        numbers_in(sample)
    assert NUM_LINES < error.value.line < NUM_LINES + 100_000
