"""Lines of any form -> records, and sentences about lines that cannot be used."""

import csv
import io
import json
from pathlib import Path

import pytest

from roberta_plugin.prediction import records
from roberta_plugin.prediction.records import read_lines


def lines_of(content, *, name=None, format=None, **options):
    path = None if name is None else Path(name)
    return [line for line, _ in read_lines(io.BytesIO(content), path=path, format=format, **options)]


def test_columns_of_csv_may_be_separated_as_in_training():
    (line,) = lines_of(b'id;text\n7;"a;b, c"\n', name="a.csv", delimiter=";")
    assert line.record == {"id": "7", "text": "a;b, c"}


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_every_form_gives_the_same_records(bom, end):
    texts = ["caf\u00e9 \u2028 one", "two\u0085"]  # characters at which str.splitlines would cut
    as_json = end.join(json.dumps({"text": text}, ensure_ascii=False).encode() for text in texts)
    as_text = end.join(text.encode() for text in texts)
    expected = [{"text": text} for text in texts]
    assert [line.record for line in lines_of(bom + as_json + end, name="a.jsonl")] == expected
    assert [line.record for line in lines_of(bom + as_json)] == expected  # standard input, by its first line
    assert [line.record for line in lines_of(bom + as_text, name="a.txt")] == expected
    assert [line.record for line in lines_of(bom + as_text)] == expected
    assert [line.record for line in lines_of(bom + b"text" + end + as_text, name="a.tsv")] == expected


def test_columns_are_named_by_the_first_line():
    (line, other) = lines_of(b'id\ttext\n7\t"quoted"\n8\t\n', format="tsv")
    assert (line.number, line.record) == (2, {"id": "7", "text": '"quoted"'})
    assert other.record == {"id": "8", "text": ""}


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_csv_has_quotation_marks_and_records_of_several_lines(end):
    content = b'\xef\xbb\xbfid,text\n1,"a, ""b"""\n\n2,"two\n\nlines"\n3,5" disk\n'.replace(b"\n", end)
    found = lines_of(content, name="a.csv")
    assert [(line.number, line.record["id"]) for line in found] == [(2, "1"), (4, "2"), (7, "3")]
    assert [line.record["text"] for line in found] == ['a, "b"', "two\n\nlines", '5" disk']
    (good, bad) = lines_of(b'text\na\n"b\nc\n', format="csv")
    assert good.record == {"text": "a"}
    assert (bad.number, bad.record) == (3, None) and "a quotation mark is not closed" in bad.error


def test_values_of_csv_may_be_long_and_hold_carriage_returns_within_quotation_marks():
    csv.field_size_limit(1 << 17)  # as in a new process
    (long, quoted) = lines_of(b"text\n" + b"a " * 100_000 + b'\n"b\rc"\r\r\n', name="a.csv")
    assert long.record == {"text": "a " * 100_000}
    assert quoted.record == {"text": "b\rc"}


def test_empty_lines_are_ignored_but_in_plain_text():
    assert [line.number for line in lines_of(b'{"text": "a"}\n\n  \n{"text": "b"}\n', name="a.jsonl")] == [1, 4]
    assert [line.number for line in lines_of(b"text\n\na\n", name="a.tsv")] == [3]
    assert [line.record for line in lines_of(b"a\n\nb\n", name="a.txt")] == [{"text": "a"}, {"text": ""}, {"text": "b"}]
    assert lines_of(b"") == []


@pytest.mark.parametrize(
    ("content", "name", "number", "message"),
    [
        (b'{"text": "a"}\n{"text": \n', "a.jsonl", 2, "is not valid JSON"),
        (b"[1, 2]\n", "a.jsonl", 1, "holds '[1, 2]' and not a JSON object"),
        (b"[" * 100_000, "a.jsonl", 1, "is not valid JSON"),
        (b"a\tb\n1\t2\t3\n", "a.tsv", 2, "has 3 columns, and the first line names 2 (a, b)"),
        (b'a,b\n1,2\n1,"2",3\n', "a.csv", 3, "has 3 columns, and the first line names 2 (a, b)"),
        (b"id,text\r1,a\r2,b\r", "a.csv", 1, "a carriage return stands within it. Save the file with LF or CRLF"),
        (b"id,text\n1,a\rb\n", "a.csv", 2, "a carriage return stands within it"),
        (b"id\ttext\r1\ta\r", "a.tsv", 1, "a carriage return stands within it"),
        (b"good\n\xff\xfe\n", "a.txt", 2, "byte 0xff is not UTF-8. Save the file as UTF-8."),
        ("good".encode("utf-16-le"), "a.txt", 1, "it holds byte 0x00, so the file is a binary one, or UTF-16"),
        (b"text\ngood\nb\0d\n", "a.csv", 3, "it holds byte 0x00"),
        (b"text\ngood\nb\0d\n", "a.tsv", 3, "it holds byte 0x00"),
        (b'{"text": "b\0d"}\n', "a.jsonl", 1, "it holds byte 0x00"),
    ],
)
def test_bad_lines_are_explained(content, name, number, message):
    bad = [line for line in lines_of(content, name=name) if line.record is None]
    assert [line.number for line in bad] == [number]
    assert message in bad[0].error


def test_a_line_without_end_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(records, "LONGEST_LINE", 8)
    found = lines_of(b"good\n" + b"x" * 50 + b"\nbad\n", format="text")
    assert [(line.number, line.record) for line in found] == [(1, {"text": "good"}), (2, None), (3, {"text": "bad"})]
    assert "Split the text into lines" in found[1].error
