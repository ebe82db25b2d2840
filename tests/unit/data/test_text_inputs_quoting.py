"""Quotation marks of TSV: around cells, as pandas, R and Excel write them, or ordinary characters, as in GLUE."""

import csv
import io
import subprocess
import sys

import pytest

from roberta_plugin.data.text_inputs import InputSettings, lines_of, read_blocks
from roberta_plugin.data.text_inputs_files import find_inputs
from roberta_plugin.tables import BadLineError, read_table, scan_table
from tests.refusals import refused

HEADER = ("text", "label")
QUOTED = {
    "marks": [('She said "yes".', "pos"), ("no", "neg")],
    "tabs": [("one\ttwo", "pos"), ("no", "neg")],
    "line ends": [("no", "neg"), ("one\n\ntwo\r\nthree", "pos")],
    "lists": [("no", '["joy", "fear"]'), ("yes", '["joy"]')],
    "a mark alone": [('"', "pos"), ("no", "neg")],
    "a row of its own": [('a "b"\tc\nd', "pos"), ("no", "neg")],
}
PLAIN = {
    "no marks": "a\tpos\nb\tneg\n",
    "within": 'say "yes"\tpos\n5" disk\tneg\n',
    "at the start": '"Yes," he said.\tpos\n"No\tneg\nno"\tneg\n',
    "never closed": '"a said\tpos\n"b said\tneg\n',
    "one whole text": '"Yes."\tpos\nno\tneg\n',
    "doubled, but not at the end": '""a"" b\tpos\n"c" ""d""\tneg\n',
    "lists": '["a"]\tpos\n["b", "c"]\tneg\n',
}
UNCLEAR = {
    "doubled and stray": ('"a ""b"""\tpos\nsay "no"\tneg\n', r"enclose cells in line 2.*ordinary characters in line 3"),
    "stray and tab": ('say "no"\tneg\n"a\tb"\tpos\n', r"enclose cells in line 3.*ordinary characters in line 2"),
    "a whole column": ('"a"\tpos\n"b"\tneg\n', r"line 2: .* may enclose it, as in CSV, or belong to the text"),
    "as Excel": ('a\tpos\n"b, c"\tneg\n', r"line 3: .* may enclose it"),
}


def written(path, rows, **how):
    """A file as Python's csv and pandas write it, QUOTE_MINIMAL by default."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", **how).writerows([HEADER, *rows])
    return path


def cells(path, **options):
    return [tuple(row.values.values()) for row in read_table(path, **options)]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("rows", QUOTED.values(), ids=QUOTED)
def test_quoted_tsv_is_read_as_it_was_written(tmp_path, monkeypatch, rows, end, quoting):
    path = written(tmp_path / "a.tsv", rows, quoting=quoting, lineterminator=end)
    assert cells(path) == rows
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    piped = list(scan_table(None, format="tsv"))
    assert [tuple(row.values.values()) for row in piped] == rows
    assert [row.line for row in piped] == [row.line for row in read_table(path)]


@pytest.mark.parametrize("content", PLAIN.values(), ids=PLAIN)
def test_plain_tsv_is_read_as_its_lines_are(tmp_path, monkeypatch, content):
    expected = [tuple(line.split("\t")) for line in content.splitlines()]
    (tmp_path / "a.tsv").write_text(f"text\tlabel\n{content}")
    assert cells(tmp_path / "a.tsv") == expected
    if content != PLAIN["one whole text"]:  # its first row leaves it open
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((tmp_path / "a.tsv").read_bytes())))
        assert [tuple(row.values.values()) for row in scan_table(None, format="tsv")] == expected


@pytest.mark.parametrize(("content", "message"), UNCLEAR.values(), ids=UNCLEAR)
def test_what_is_unclear_is_refused_and_both_remedies_work(tmp_path, content, message):
    path = tmp_path / "FILE.tsv"
    path.write_text(f"text\tlabel\n{content}")
    sentence = refused(rf"(?s){message}.*--delimiter '\\t'", cells, path)
    assert len(cells(path, delimiter="\t")) == 2
    command = sentence.rsplit("`", 2)[1].replace("python", sys.executable, 1)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    plain = [tuple(line.split("\t")) for line in content.splitlines()]
    assert all(len(row) > 2 for row in plain) or (tmp_path / "FILE.csv").exists()


def test_a_pipe_that_contradicts_itself_is_an_error_where_it_does(monkeypatch):
    content = b'text\tlabel\n"a ""b"""\tpos\nc\tneg\nsay "no"\tneg\n'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    rows = scan_table(None, format="tsv")
    assert [next(rows).values["text"] for _ in range(2)] == ['a "b"', "c"]
    refused("enclose cells in line 2, as in CSV, and are ordinary characters in line 4", next, rows)


def test_lines_that_are_not_text_are_still_named_one_by_one(tmp_path, monkeypatch):
    content = b'text\tlabel\n"a ""b"""\tpos\n\xff\tneg\nc\tneg\n'
    (tmp_path / "a.tsv").write_bytes(content)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    for path in (tmp_path / "a.tsv", None):
        found = list(scan_table(path, format="tsv"))
        assert [row.line for row in found] == [2, 3, 4]
        assert isinstance(found[1], BadLineError)
        assert found[0].values["text"] == 'a "b"'


def test_a_hostile_file_of_open_quotation_marks_takes_no_minutes(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tlabel\n" + '"a ""b""\tc\n' * 20_000)
    assert len(cells(tmp_path / "a.tsv")) == 20_000


def test_a_column_of_text_is_found_in_quoted_tsv_too(tmp_path):
    path = written(tmp_path / "a.tsv", [('He said "a".\nThen "b".', "x")])
    (source,) = InputSettings().sources([path])
    (block,) = read_blocks(source)
    assert lines_of(block, source=source, first_line=1, rules=InputSettings().rules)[0] == [
        'He said "a".',
        'Then "b".',
        "",
    ]
    assert find_inputs([path], delimiter="\t")[0].identity()[-1] == "tsv\t"
