"""What is wrong with a text, each fault beside a text that is sound; the overlap beside plain loops."""

import json
import unicodedata

import numpy as np
import pytest

from roberta_plugin.data import text_check
from roberta_plugin.data.text_check import PASSAGE, check_text, find_overlap
from roberta_plugin.data.text_inputs import LineRules
from roberta_plugin.data.text_inputs_files import find_inputs

SOUND = "Ààrẹ orílẹ̀-èdè Nàìjíríà lọ sí Abuja: R&D, 1 < 2 and 3 > 2, a café, “quoted” — £5, Ã alone, â€"


def check(tmp_path, *lines, **rules):
    path = tmp_path / "text.txt"
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines) + b"\n")
    return check_text(find_inputs([path]), LineRules(**rules))


FAULTS = {
    "NFC": unicodedata.normalize("NFD", "Nàìjíríà"),
    "entities": "fish &amp; chips",
    "entities by number": "&#7865; and &#x1EB9;",
    "tags": "<p>text",
    "tags with attributes": 'see <a href="x">this</a>',
    "U\\+FFFD": "caf\ufffd",
    "wrong encoding": "cafÃ©",
    "wrong encoding of marks": "â€œquotedâ€\x9d".replace("\x9d", ""),
    "wrong encoding of Cyrillic": "Мир".encode().decode("cp1252"),
    "control": "bell\x07",
    "U\\+FEFF": "\ufeffmark",
    "longer than": "x" * 20_001,
    "not UTF-8": b"caf\xe9",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_with_its_line_and_a_remedy(tmp_path, fault):
    found = check(tmp_path, SOUND, "", "one more line", FAULTS[fault])
    (warning,) = found.warnings()
    kind = fault.partition(" by ")[0].partition(" with ")[0].partition(" of ")[0]
    assert kind.replace("\\", "") in warning and "text.txt, line 4: " in warning
    assert "1 of " in warning and ": " in warning.splitlines()[0].partition(kind.replace("\\", ""))[2]


def test_a_sound_text_has_amounts_and_no_warning(tmp_path):
    found = check(tmp_path, SOUND, "two words", "", "", "third line")
    assert not found.warnings()
    assert (found.lines, found.blank, found.documents) == (3, 2, 2)
    assert found.words == len(SOUND.split()) + 4
    assert found.longest_length == len(SOUND) and found.longest.line == 1
    assert "3 lines in 2 documents" in found.describe()[0] and "Latin" in found.describe()[-1]


def test_repeated_lines_are_counted_the_most_frequent_first(tmp_path):
    lines = [f"line {number}" for number in range(20)]
    found = check(tmp_path, *lines, "line 3", *["line 7"] * 5, "", "line 3")
    (warning,) = found.warnings()
    assert warning.startswith("7 of 27 lines (25.9%) repeat an earlier line")
    assert warning.index("line 22: 'line 7'") < warning.index("line 21: 'line 3'")


@pytest.mark.parametrize("name", ["text.csv", "text.jsonl"])
def test_lines_of_tables_have_the_numbers_of_their_rows(tmp_path, name):
    path = tmp_path / name
    texts = ["first\nand more", "same", "same", "fish &amp; chips"]
    if name.endswith("csv"):
        path.write_text("text\n" + "".join(f'"{text}"\n' for text in texts))
    else:
        path.write_text("".join(f"{json.dumps({'text': text})}\n\n" for text in texts))
    found = check_text(find_inputs([path]), LineRules())
    repeated, entities = found.warnings()
    unit, numbers = ("row", (3, 4)) if name.endswith("csv") else ("line", (5, 7))
    assert repeated.startswith("1 of 5 lines (20.0%)") and f"{name}, {unit} {numbers[0]}: 'same'" in repeated
    assert f"{name}, {unit} {numbers[1]}: 'fish" in entities
    assert found.longest.line == numbers[1]


def test_few_faulty_lines_of_many_are_not_rounded_to_none(tmp_path):
    (warning,) = check(tmp_path, *(f"line {number}" for number in range(3000)), "fish &amp; chips").warnings()
    assert warning.startswith("1 of 3,001 lines (<0.1%)")


def test_scripts_are_counted_by_letters(tmp_path):
    found = check(tmp_path, "abc 123", "мир и", "日本")
    assert dict(found.scripts) == {"LATIN": 3, "CYRILLIC": 4, "CJK": 2}


def test_of_a_large_text_evenly_spread_parts_are_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(text_check, "MOST_BYTES", 20_000)
    monkeypatch.setattr(text_check, "_PART_BYTES", 1000)
    found = check(tmp_path, *(f"line {number} &amp;" for number in range(20_000)))
    assert found.is_sample and 15_000 < found.bytes < 25_000
    (warning,) = found.warnings()
    assert "(100.0%)" in warning and "in the sample" in warning
    assert ", a sample of " in found.describe()[0]


def passages_of(line):
    return [line[start : start + PASSAGE] for start in range(0, len(line) - PASSAGE + 1, PASSAGE)]


def test_the_overlap_is_that_of_plain_loops():
    rng = np.random.default_rng(0)
    alphabet = list("abcde fgh ẹọ日本")

    def text(length):
        return "".join(rng.choice(alphabet, length))

    train = [text(length) for length in rng.integers(1, 400, 300)]
    held_out = [text(length) for length in rng.integers(1, 400, 60)]
    held_out += [train[3], train[7], "ab" + train[11][20:], train[12][:60] + text(100), train[5][:49]]
    found = find_overlap(held_out, train)
    all_passages = [passage for line in held_out for passage in passages_of(line)]
    whole = set(train)
    assert found.num_lines == len(held_out) and found.num_seen == sum(line in whole for line in held_out)
    assert found.num_passages == len(all_passages)
    assert found.num_passages_seen == sum(any(passage in line for line in train) for passage in all_passages)
    assert found.num_seen >= 2 and 3 < found.num_passages_seen < len(all_passages) / 2
    assert "held-out lines" in found.describe() and all(line in whole for line in found.examples)


def test_texts_without_passages_or_lines_have_no_overlap():
    assert find_overlap(["short"], ["short", "other"]).num_seen == 1
    assert find_overlap([], ["x" * 60]).share == 0
    assert find_overlap(["x" * 60], []).num_passages_seen == 0
