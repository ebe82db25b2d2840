"""Tables of every format give the same rows, and a bad one is named by file and line."""

import bz2
import gzip
import json
import lzma
import sys

import pytest
import zstandard

from roberta_plugin.finetuning.custom.reader import Row, format_of, read_table, value_of

ROWS = [{"text": 'Good, "really".\nYes.', "label": "pos"}, {"text": "Sch\u00f6n \u2028 so", "label": "neg"}]
CSV = 'text,label\n"Good, ""really"".\nYes.",pos\n\nSch\u00f6n \u2028 so,neg\n'
COMPRESS = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
COMPRESS[".zst"] = lambda data: zstandard.ZstdCompressor().compress(data)


def values(path, **options):
    return [dict(row.values) for row in read_table(path, **options)]


@pytest.mark.parametrize("suffix", ["", *COMPRESS])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_table_is_read_from_any_compression_with_a_byte_order_mark_or_without(tmp_path, form, suffix):
    text = CSV if form == "csv" else "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS)
    for mark in ("", "\ufeff"):
        path = tmp_path / f"my.{form}{suffix}"
        path.write_bytes(COMPRESS.get(suffix, bytes)((mark + text).encode()))
        assert values(path) == ROWS


def test_lines_are_counted_where_a_row_begins(tmp_path):
    (tmp_path / "my.csv").write_text(CSV, newline="\r\n")
    assert [row.line for row in read_table(tmp_path / "my.csv")] == [2, 5]
    assert next(read_table(tmp_path / "my.csv")).where == f"{tmp_path / 'my.csv'}, line 2"


def test_other_separators_are_named_and_quotation_marks_of_tsv_are_text(tmp_path):
    (tmp_path / "my.csv").write_text("text;label\na, b;1\n")
    assert values(tmp_path / "my.csv", delimiter=";") == [{"text": "a, b", "label": "1"}]
    (tmp_path / "my.tsv").write_text('text\tlabel\n"a\t1\n')
    assert values(tmp_path / "my.tsv") == [{"text": '"a', "label": "1"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"text,label\nfine,1\ncaf\xe9,2\n", r"a\.csv, line 3: byte 0xe9 is not UTF-8.*iconv -f latin1"),
        ("a.csv", b"text,label\na,1\nb\n", r"a\.csv, line 3: it has 1 columns, and the first line names 2"),
        ("a.csv", b'text,label\na,1\n"b,2\nc,3\n', r"a\.csv, line 3: the row cannot be read .* quotation marks around"),
        ("a.csv", b"text;label\na;1\n", r"a\.csv, line 1: one column only, 'text;label', .* --delimiter ';'"),
        ("a.csv", b"text\tlabel\na\t1\n", r"name the file \.tsv"),
        ("a.csv", b"text,text\na,1\n", r"the column 'text' occurs twice"),
        ("a.tsv", b"text\tlabel\na\tb\t1\n", r"line 2: it has 3 columns.* must hold no tab"),
        ("a.jsonl", b'{"text": "a"}\n{"text"\n', r"a\.jsonl, line 2 is not valid JSON"),
        ("a.jsonl", b"[1]\n", r"line 1: expected a JSON object, found \[1\]"),
        ("a.csv", "text,label\na,1\n".encode("utf-16"), r"UTF-16 text.*iconv -f UTF-16"),
        ("a.csv", "text,label\na,1\n".encode("utf-16-le"), r"line 1: it holds byte 0x00, .* UTF-16.*iconv"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "a\0b"}\n', r"line 2: it holds byte 0x00"),
        ("a.csv", gzip.compress(b"text\n"), r"rename it to end in \.gz"),
        ("a.csv.gz", gzip.compress(b"text\n" * 99)[:-9], r"cannot be decompressed"),
        ("a.xls", b"", r"the name does not say the format. Let it end in \.csv, \.tsv"),
        ("a.parquet.gz", b"", r"Parquet is compressed within"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line_and_a_remedy(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        values(tmp_path / name)


def test_columns_without_a_name_do_not_matter(tmp_path):
    (tmp_path / "my.csv").write_text("text,label,,\na,1,,\n")  # as spreadsheets write them
    assert [(row["text"], row["label"]) for row in values(tmp_path / "my.csv")] == [("a", "1")]


def test_parquet_is_read_by_pyarrow(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [{"text": "a\nb", "label": ["x", "y"], "n": 1.5}, {"text": "c", "label": [], "n": None}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "my.parquet")
    assert values(tmp_path / "my.parquet") == rows
    assert [row.where[-5:] for row in read_table(tmp_path / "my.parquet")] == ["row 1", "row 2"]
    (tmp_path / "bad.parquet").write_bytes((tmp_path / "my.parquet").read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"bad\.parquet cannot be read as Parquet"):
        values(tmp_path / "bad.parquet")


def test_without_pyarrow_a_sentence_says_how_to_install_it(tmp_path, monkeypatch):
    (tmp_path / "my.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"needs pyarrow, not installed here.*'roberta_plugin\[parquet\]'"):
        values(tmp_path / "my.parquet")


def test_a_missing_column_is_named_with_those_there_are(tmp_path):
    row = Row(tmp_path / "my.csv", 2, {"review": "a", "stars": "1"})
    assert value_of(row, "stars", option="--label-column") == "1"
    with pytest.raises(
        ValueError, match=r"my\.csv: there is no column 'text'; there are 'review', 'stars'.*--text-column"
    ):
        value_of(row, "text", option="--text-column")
    row = Row(tmp_path / "my.jsonl", 2, {})
    with pytest.raises(ValueError, match=r"my\.jsonl, line 2: there is no column 'text'; there are none"):
        value_of(row, "text", option="--text-column")


def test_the_last_ending_but_compression_gives_the_format(tmp_path):
    assert [format_of(tmp_path / name) for name in ("A.CSV", "a.b.tsv.zst", "a.ndjson.xz", "a.pq")] == [
        "csv",
        "tsv",
        "jsonl",
        "parquet",
    ]
