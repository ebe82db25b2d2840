"""The golden set itself: how recordings compare, whether the committed one is whole, and what counts as noticed."""

import numpy as np
import pytest

from tests.conftest import REPOSITORY
from tests.golden import __main__ as golden
from tests.golden.break_list import BREAKS, Break
from tests.golden.breaks import MOVED, NOT_NOTICED, NOTICED, broken_text, tried
from tests.golden.entries import (
    DIFFERENT,
    EQUAL,
    MISSING,
    NEW,
    WITHIN,
    compare,
    flatten,
    of_array,
    of_series,
    of_text,
    outcome,
)

ARRAY = np.random.default_rng(3).standard_normal((40, 7)).astype(np.float32)


@pytest.mark.parametrize(
    ("make", "value", "near", "other"),
    [
        (of_array, ARRAY, ARRAY + np.float32(3e-7), ARRAY + np.float32(1e-4)),
        (of_array, ARRAY, np.nextafter(ARRAY, np.float32(9)), np.roll(ARRAY, 1)),
        (of_series, [5.123456789, 2.0], [5.123456789 + 1e-9, 2.0], [5.1235, 2.0]),
        (of_text, "the loss 0.1234567 of x1.5e", "the loss 0.1234568 of x1.5e", "the loss 0.1234567 of x1.6e"),
        (lambda value: value, {"f1": 1 / 3}["f1"], 1 / 3 + 1e-9, 0.3334),
    ],
    ids=["array", "bits", "series", "text", "number"],
)
def test_entries_are_equal_near_or_different(make, value, near, other):
    entry = make(value)
    assert [outcome(entry, make(each)) for each in (value, near, other)] == [EQUAL, WITHIN, DIFFERENT]


def test_integers_shapes_and_names_have_no_tolerance():
    assert outcome(of_array(np.arange(4)), of_array(np.array([0, 1, 2, 4]))) == DIFFERENT
    assert outcome(of_array(ARRAY), of_array(ARRAY.reshape(7, 40))) == DIFFERENT
    assert outcome(["a", "b"], ["b", "a"]) == DIFFERENT
    found = flatten({"x": {"values": of_array(ARRAY), "names": ["a"]}}, "part/subject/")
    assert set(found) == {"part/subject/x/values", "part/subject/x/names"}
    assert compare({"a": 1, "b": 2}, {"b": 2, "c": 3}) == {"a": MISSING, "b": EQUAL, "c": NEW}


def test_the_recording_has_all_subjects_and_some_are_replaced_alone(tmp_path):
    recording = golden.read(golden.REFERENCE)
    assert set(map(golden.subject_of, recording["entries"])) == set(golden.subjects())
    anew = golden.merged(recording, {"files/sentencepiece/x": 1}, only="files/sentence")
    kept = {name for name in recording["entries"] if not name.startswith("files/sentencepiece/")}
    assert set(anew["entries"]) == kept | {"files/sentencepiece/x"}
    assert anew["about"].items() >= recording["about"].items()
    golden.write(tmp_path / "anew.json", anew)
    assert golden.read(tmp_path / "anew.json") == anew


def test_every_deliberate_fault_fits_the_code_and_has_its_tests():
    assert len({each.name for each in BREAKS}) == len(BREAKS) > 80
    for each in BREAKS:
        broken = broken_text(each, REPOSITORY)
        assert broken is not None, f"{each.name}: {each.path} does not have its code once: rewrite it in break_list.py"
        compile(broken, each.name, "exec")
        assert all((REPOSITORY / "tests" / test).exists() for test in each.guard), each


@pytest.mark.slow  # a tool that starts pytest seven times
def test_a_fault_that_no_test_sees_and_one_that_is_not_there_any_more_are_told(tmp_path):
    (tmp_path / "roberta_plugin").mkdir()
    (tmp_path / "tests").mkdir()
    module = tmp_path / "roberta_plugin" / "sums.py"
    module.write_text("def add(a, b):\n    return a + b\n\n\ndef twice(a):\n    return 2 * a\n")
    (tmp_path / "tests" / "test_sums.py").write_text(
        "import runpy\n\ndef test_add():\n    assert runpy.run_path('roberta_plugin/sums.py')['add'](1, 2) == 3\n"
    )
    sound = module.read_text()
    faults = [("a + b", "a - b"), ("2 * a", "3 * a"), ("a * b", "a / b"), ("2 * a", "2 *"), ("def", "class")]
    found = [tried(Break("", "sums.py", *fault, ("test_sums.py",)), tmp_path)[0] for fault in faults]
    assert found == [NOTICED, NOT_NOTICED, MOVED, NOTICED, MOVED]
    assert module.read_text() == sound
