"""Tables of every format give the same rows, and a bad one is named by file and line."""

import bz2
import csv
import gzip
import io
import json
import lzma
import math
import subprocess
import sys
import time
import warnings
from pathlib import Path

import fsspec
import pytest
from backports import zstd

from roberta_plugin import tables
from roberta_plugin.reports import Line, Panel, drawable, markdown_table, plot, write_report
from roberta_plugin.tables import IN_MEMORY, BadLineError, Row, format_of, read_table, scan_table, with_unique_ids
from tests.refusals import refused

ROWS = [{"text": 'Good, "really".\nYes.', "label": "pos"}, {"text": "Sch\u00f6n \u2028 so", "label": "neg"}]
CSV = 'text,label\n"Good, ""really"".\nYes.",pos\n\nSch\u00f6n \u2028 so,neg\n'
COMPRESS = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress, ".zst": zstd.compress}


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


def test_other_separators_are_named_quotation_marks_of_tsv_are_text_and_columns_may_lack_a_name(tmp_path):
    for name, content, text, options in (
        ("a.csv", "text;label\na, b;1\n", "a, b", {"delimiter": ";"}),
        ("a.tsv", 'text\tlabel\n"a\t1\n', '"a', {}),
        ("a.csv", "text,label,,\na,1,,\n", "a", {}),  # as spreadsheets write them
    ):
        (tmp_path / name).write_text(content)
        (row,) = values(tmp_path / name, **options)
        assert {name: value for name, value in row.items() if name} == {"text": text, "label": "1"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"text,label\nfine,1\ncaf\xe9,2\n", r"a\.csv, line 3: byte 0xe9 is not UTF-8.*iconv -f latin1"),
        ("a.csv", b"text,label\na,1\nb\n", r"a\.csv, line 3: it has 1 columns, and the first line names 2"),
        ("a.csv", b'text,label\na,1\n"b,2\nc,3\n', r"a\.csv, line 3: the row cannot be read .* quotation marks around"),
        ("a.csv", b"text;label\na;1\n", r"a\.csv, line 1: found a single column, 'text;label': .* --delimiter ';'"),
        ("a.csv", b"text\tlabel\na\t1\n", r"name the file \.tsv"),
        ("a.csv", b"text,text\na,1\n", r"the column 'text' occurs twice"),
        ("a.tsv", b"text\tlabel\na\tb\t1\n", r"line 2: it has 3 columns.* must hold no tab"),
        ("a.jsonl", b'{"text": "a"}\n{"text"\n', r"a\.jsonl, line 2: it is not valid JSON"),
        ("a.jsonl", b"[1]\n", r"line 1: expected a JSON object, found \[1\]"),
        ("a.csv", "text,label\na,1\n".encode("utf-16"), r"UTF-16 text.*iconv -f UTF-16"),
        ("a.csv", "text,label\na,1\n".encode("utf-16-le"), r"line 1: it holds byte 0x00, .* UTF-16.*iconv"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "a\0b"}\n', r"line 2: it holds byte 0x00"),
        ("a.csv", gzip.compress(b"text\n"), r"rename it to end in \.gz"),
        ("a.csv.gz", gzip.compress(b"text\n" * 99)[:-9], r"cannot be decompressed"),
        ("a.dta", b"", r"the name does not say the format. Let it end in \.csv, \.tsv"),
        ("a.parquet.gz", b"", r"Parquet and Arrow are compressed within"),
        ("a.xlsx", b"PK\3\4", r"a\.xlsx is a spreadsheet.*CSV \(UTF-8\) in its program.*pandas\.read_excel"),
        ("a.csv", b"PK\3\4\x14\0", r"a\.csv is a zip archive or a spreadsheet.*save a spreadsheet as CSV"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line_and_a_remedy(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    refused(f"(?s){message}", values, tmp_path / name)


@pytest.mark.parametrize("name", ["all.csv", "all.tsv"])
@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("text,label", "it repeats the names of the columns"),
        ("\ufefftext,label", "it repeats the names of the columns"),
        ("Text,Label ", "it repeats the names of the columns"),
    ],
)
def test_names_of_columns_within_a_table_are_a_bad_line(tmp_path, name, header, reason):
    """As `cat part-*.csv > all.csv` leaves them."""
    content = f"text,label\na,pos\n{header}\nlabel,text too\n"
    content = content.replace(",", "\t" if name.endswith("tsv") else ",")
    found = scanned(tmp_path, content.encode(), name=name)
    assert [row.line for row in found] == [2, 3, 4]
    assert isinstance(found[1], BadLineError)
    assert reason in str(found[1])
    refused(
        rf"{name}, line 3: {reason} \(text, label\), as where tables were joined. Remove the line",
        values,
        tmp_path / name,
    )


def test_names_of_columns_in_another_order_or_partly_other_ones_are_refused(tmp_path):
    content = b"text,label\na,pos\nlabel,text\npos,b\n"
    message = "all.csv, line 3: the names of the columns come again, in another order"
    refused(message, scanned, tmp_path, content, name="all.csv")
    (_, bad, _) = scanned(tmp_path, b"id,text,label\n1,a,pos\nnumber,text,label\n2,b,pos\n", name="all.csv")
    assert "it repeats the names" in str(bad)
    assert [row.values for row in scanned(tmp_path, b"word\na\nword \n", name="a.csv")] == [
        {"word": "a"},
        {"word": "word "},
    ]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_empty_rows_of_spreadsheets_are_left_out_and_counted(tmp_path, caplog, name):
    content = "text,label\n,\na,pos\n , \n,,,,\n".replace(",", "\t" if name.endswith("tsv") else ",")
    assert [row.values for row in scanned(tmp_path, content.encode(), name=name)] == [{"text": "a", "label": "pos"}]
    assert f"{name}: 3 empty rows are left out, from line 2 on" in caplog.text


def test_a_tab_is_named_by_two_characters_and_excel_names_its_separator(tmp_path):
    expected = [{"text": "a, b", "label": "pos"}]
    for name, content, delimiter in (
        ("a.csv", "text\tlabel\na, b\tpos\n", "\\t"),
        ("a.tsv", "text;label\na, b;pos\n", ";"),
        ("a.tsv", "text\tlabel\na, b\tpos\n", ";"),  # of the other tables
        ("a.csv", "sep=;\ntext;label\na, b;pos\n", None),
        ("a.csv", '\ufeff"sep=;"\r\ntext;label\r\na, b;pos\r\n', ";"),
        ("a.tsv", 'sep=\t\ntext\tlabel\n"a, b"\tpos\n', None),
    ):
        (tmp_path / name).write_text(content, newline="")
        assert values(tmp_path / name, delimiter=delimiter) == expected
    refused(
        "line 1: the cells are separated by '\\\\t', and --delimiter is ';'", values, tmp_path / "a.tsv", delimiter=";"
    )
    refused(r"--delimiter must be one character such as ';'.*got ';;'", values, tmp_path / "a.csv", delimiter=";;")


RECORDS = [{"text": "a", "label": "pos"}, {"text": "b", "label": "neg"}]


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (json.dumps(RECORDS), "an array"),
        (json.dumps(RECORDS, indent=2), "an array"),
        (json.dumps({"data": RECORDS}), "an object with a list 'data'"),
        (json.dumps({"version": "1", "data": RECORDS}, indent=2), "an object with a list 'data'"),
        (json.dumps(RECORDS[0], indent=2), "an object of several lines"),
    ],
)
def test_other_json_is_refused_with_a_command_that_makes_json_lines(tmp_path, monkeypatch, content, form):
    (tmp_path / "FILE").write_text(content)
    (tmp_path / "a.json").write_text(content)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    if form == "an array":
        refused(rf"standard input is JSON, but not one record per line: it is {form}", scanned, tmp_path, b"")
    sentence = refused(
        rf"a\.json is JSON, but not one record per line: it is {form}.*jq -c", values, tmp_path / "a.json"
    )
    command = sentence.split("` or `")[1].split("`")[0].replace("python", sys.executable, 1)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert values(tmp_path / "FILE.jsonl") == RECORDS[: 1 if "several lines" in form else 2]


def test_json_by_column_names_pandas_and_lines_of_records_with_lists_are_read(tmp_path):
    by_column = {"text": {"0": "a", "1": "b"}, "label": {"0": "pos", "1": "neg"}}
    for indent in (None, 2):
        (tmp_path / "a.json").write_text(json.dumps(by_column, indent=indent))
        refused(r"columns one after the other.*pandas\.read_json\('.*a\.json'\)\.to_json", values, tmp_path / "a.json")
    for record in ({"data": [1], "text": "a"}, {"text": "a", "options": [{"text": "b"}]}, {"data": RECORDS}):
        lines = [record] * (2 if "data" in record else 1)
        (tmp_path / "a.json").write_text("".join(json.dumps(each) + "\n" for each in lines))
        assert values(tmp_path / "a.json") == lines


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".json", ".jsonl.gz", ".parquet"])
def test_a_table_in_parts_is_read_by_its_folder_or_a_pattern(tmp_path, ending):
    """As Spark writes it, with _SUCCESS and checksums beside the parts."""
    folder = tmp_path / f"my{ending}"
    folder.mkdir()
    for name in ("_SUCCESS", f".part-00000{ending}.crc"):
        (folder / name).write_bytes(b"")
    for number, row in enumerate(RECORDS):
        path = folder / f"part-{number:05d}-x{ending}"
        if ending == ".parquet":
            pyarrow = pytest.importorskip("pyarrow")
            pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist([row]), path)
        else:
            mark = {".csv": ",", ".tsv": "\t"}.get(ending)
            content = (
                f"{json.dumps(row)}\n"
                if mark is None
                else "".join(f"{mark.join(each)}\n" for each in (row, row.values()))
            )
            path.write_bytes(COMPRESS.get(path.suffix, bytes)(content.encode()))
    for path in (folder, folder / "part-*"):
        rows = list(read_table(path))
        assert [row.values for row in rows] == RECORDS
        assert rows[1].where == f"{path}, row 2"
        assert [file.name[:10] for file in tables.files_of(path)] == ["part-00000", "part-00001"]
    (folder / "other.txt").write_text("")
    refused("is a folder, and not one", values, folder, error=FileNotFoundError)


def test_files_of_a_pattern_of_urls_are_one_table(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    files = fsspec.filesystem("memory")
    for number, row in enumerate(RECORDS):
        files.pipe(f"/parts/train-{number}.jsonl", json.dumps(row).encode())
    files.pipe("/parts/test.jsonl", b"{}")
    for _ in range(2):
        path = tables.find_table(tmp_path, "memory://parts/train-*.jsonl", option="--train")
        assert values(path) == RECORDS
    assert tables.find_table(tmp_path, "memory://parts/te*.jsonl", option="--train").name == "test.jsonl"
    refused("none-", tables.find_table, tmp_path, "memory://parts/none-*", option="--train", error=FileNotFoundError)


def test_a_table_of_many_columns_takes_no_minutes(tmp_path):
    names = [f"c{number}" for number in range(50_000)]
    (tmp_path / "wide.csv").write_text(f"{','.join(names)}\n{','.join('x' * len(names))}\n")
    started = time.process_time()
    (row,) = read_table(tmp_path / "wide.csv")
    assert len(row.values) == len(names)
    assert time.process_time() - started < 5
    (tmp_path / "wide.csv").write_text(f"{','.join([*names, 'c7'])}\n")
    refused("the column 'c7' occurs twice", values, tmp_path / "wide.csv")


def test_parquet_is_read_by_pyarrow(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [{"text": "a\nb", "label": ["x", "y"], "n": 1.5}, {"text": "c", "label": [], "n": None}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "my.parquet")
    assert values(tmp_path / "my.parquet") == rows
    assert [row.where[-5:] for row in read_table(tmp_path / "my.parquet")] == ["row 1", "row 2"]
    (tmp_path / "bad.parquet").write_bytes((tmp_path / "my.parquet").read_bytes()[:-20])
    refused(r"bad\.parquet cannot be read as Parquet", values, tmp_path / "bad.parquet")


def test_without_pyarrow_a_sentence_says_how_to_install_it(tmp_path, monkeypatch):
    (tmp_path / "my.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = r"needs pyarrow, not installed here.*'roberta_plugin\[parquet\]'"
    refused(message, values, tmp_path / "my.parquet")


def test_a_missing_column_is_named_with_those_there_are(tmp_path):
    row = Row(tmp_path / "my.csv", 2, {"review": "a", "stars": "1"})
    assert row.value("stars", option="--label-column") == "1"
    message = r"my\.csv, line 2: there is no column 'text'; there are 'review', 'stars'.*--text-column"
    refused(message, row.value, "text", option="--text-column")
    message = r"my\.jsonl, line 2: there is no column 'text'; there are none"
    refused(message, Row(tmp_path / "my.jsonl", 2, {}).text, "text", option="--text-column")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda row: row.text("b"), "here, line 3: there is no column 'b'; there are 'a', 'n', 'list'. Add it."),
        (lambda row: row.text("n"), "here, line 3: the column 'n' must be a text, found -1"),
        (lambda row: row.number("n"), "here, line 3: n must be a whole number from 0 on, found -1"),
        (lambda row: row.label("a", (False, True)), "here, line 3: a is 'x', and must be one of false, true"),
        (lambda row: row.object_of("a"), "here, line 3, a: expected a JSON object"),
        (lambda row: row.objects_of("list"), "here, line 3, list 2: expected a JSON object with named fields, found 1"),
        (lambda row: row.objects_of("list")[0].text("b"), "here, line 3, list 1: there is no column 'b'"),
        (lambda row: row.objects_of("a"), "here, line 3: a must be a list, found 'x'"),
    ],
)
def test_a_field_of_another_kind_is_named(call, message):
    record = {"a": "x", "n": -1, "list": [{}, 1][: 2 if "list 2" in message else 1]}
    refused(message, call, Row(Path("here"), 3, record))


def test_a_label_is_compared_with_its_type():
    row = Row(IN_MEMORY, 1, {"label": True})
    assert row.label("label", (False, True)) == 1
    refused("the record: label is True, and must be one of 0, 1", row.label, "label", (0, 1))


def test_the_same_id_twice_is_an_error_that_names_both_lines():
    ids = [(f"f, line {number}", id_) for number, id_ in enumerate((7, 8, 7), start=1)]
    message = "f, line 3: the id '7' occurs in f, line 1 already"
    refused(message, lambda: list(with_unique_ids(ids, id_of=str)))
    assert list(with_unique_ids(ids[:2], id_of=str)) == [7, 8]


def test_the_last_ending_but_compression_gives_the_format(tmp_path):
    formats = {"A.CSV": "csv", "a.b.tsv.zst": "tsv", "a.ndjson.xz": "jsonl", "a.pq": "parquet"}
    assert {name: format_of(tmp_path / name) for name in formats} == formats


def scanned(tmp_path, content, *, name=None, **options):
    """The rows and faults of a file, or of standard input."""
    path = None
    if name is not None:
        path = tmp_path / name
        path.write_bytes(content)
    given = {"format": None if path is None else format_of(path) if "." in name else "text", **options}
    return list(scan_table(path, **given))


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_form_gives_the_same_rows(tmp_path, monkeypatch, bom, end):
    texts = ["caf\u00e9 \u2028 one", "two\u0085"]  # characters at which str.splitlines would cut
    as_json = end.join(json.dumps({"text": text}, ensure_ascii=False).encode() for text in texts)
    as_text = end.join(text.encode() for text in texts)
    expected = [{"text": text} for text in texts]
    assert [row.values for row in scanned(tmp_path, bom + as_json + end, name="a.jsonl")] == expected
    assert [row.values for row in scanned(tmp_path, bom + as_text, name="a")] == expected
    assert [row.values for row in scanned(tmp_path, bom + b"text" + end + as_text, name="a.tsv")] == expected
    for content in (as_json, as_text):  # standard input, by its first line
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bom + content)))
        assert [row.values for row in scanned(tmp_path, b"")] == expected


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_csv_has_quotation_marks_and_rows_of_several_lines(tmp_path, end):
    content = b'\xef\xbb\xbfid,text\n1,"a, ""b"""\n\n2,"two\n\nlines"\n3,5" disk\n'.replace(b"\n", end)
    found = scanned(tmp_path, content, name="a.csv")
    assert [(row.line, row.values["id"]) for row in found] == [(2, "1"), (4, "2"), (7, "3")]
    assert [row.values["text"].replace(end.decode(), "\n") for row in found] == ['a, "b"', "two\n\nlines", '5" disk']


def test_values_of_csv_may_be_long_and_hold_carriage_returns_within_quotation_marks(tmp_path):
    csv.field_size_limit(1 << 17)  # as in a new process
    (long, quoted) = scanned(tmp_path, b"text\n" + b"a " * 100_000 + b'\n"b\rc"\n', name="a.csv")
    assert long.values == {"text": "a " * 100_000}
    assert quoted.values == {"text": "b\rc"}


def test_empty_lines_are_ignored_but_in_plain_text(tmp_path):
    content = b'{"text": "a"}\n\n  \n{"text": "b"}\n'
    assert [row.line for row in scanned(tmp_path, content, name="a.jsonl")] == [1, 4]
    assert [row.line for row in scanned(tmp_path, b"text\n\n \na\n", name="a.tsv")] == [4]
    assert [row.values for row in scanned(tmp_path, b'text\n""\n', name="a.csv")] == [{"text": ""}]
    assert [row.values["text"] for row in scanned(tmp_path, b"a\n\nb\n", name="a")] == ["a", "", "b"]
    assert scanned(tmp_path, b"", name="a") == []


@pytest.mark.parametrize(
    ("content", "name", "number", "message"),
    [
        (b'{"text": "a"}\n{"text": \n', "a.jsonl", 2, "is not valid JSON"),
        (b"[1, 2]\n", "a.jsonl", 1, "found [1, 2]"),
        (b"[" * 100_000, "a.jsonl", 1, "is not valid JSON"),
        (b"a\tb\n1\t2\t3\n", "a.tsv", 2, "has 3 columns, and the first line names 2 (a, b)"),
        (b'a,b\n1,2\n1,"2",3\n', "a.csv", 3, "has 3 columns, and the first line names 2 (a, b)"),
        (b'a,b\n1,"2" or 3\n', "a.csv", 2, "those inside are doubled"),
        (b'text\na\n"b\nc\n', "a.csv", 3, "unexpected end of data"),
        (b"good\n\xff\xfe\n", "a", 2, "byte 0xff is not UTF-8. Save the file as UTF-8"),
        ("good".encode("utf-16-le"), "a", 1, "it holds byte 0x00, so the file is a binary one, or UTF-16"),
        (b"text\ngood\nb\0d\n", "a.csv", 3, "it holds byte 0x00"),
        (b"text\ngood\nb\0d\n", "a.tsv", 3, "it holds byte 0x00"),
        (b'{"text": "b\0d"}\n', "a.jsonl", 1, "it holds byte 0x00"),
    ],
)
def test_bad_lines_are_explained_and_the_others_read(tmp_path, content, name, number, message):
    more = {"a": b"more", "a.csv": b"3,4", "a.tsv": b"3\t4", "a.jsonl": b'{"text": ""}'}[name] if number < 4 else b""
    more = b"more" if content.startswith(b"text\n") else more
    end = b"" if content.endswith((b"c\n", b"\0")) else b"\n" * (not content.endswith(b"\n")) + more
    found = scanned(tmp_path, content + end, name=name)
    bad = [row for row in found if isinstance(row, BadLineError)]
    assert [row.line for row in bad] == [number]
    assert message in str(bad[0])
    assert not end or isinstance(found[-1], Row)


def test_a_line_without_end_does_not_fill_the_memory(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "LONGEST_LINE", 8)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"good\n" + b"x" * 50)))
    rows = scan_table(None, format="text")
    assert next(rows).values == {"text": "good"}
    message = r"Standard input: a line has more than .* Split it into lines"
    refused(message, next, rows)


def test_a_table_holds_any_cell():
    table = markdown_table(["a|b", "c"], [["x\n y", "1"], ["back\\slash", ""]])
    assert table == "| a\\|b | c |\n| --- | --- |\n| x y | 1 |\n| back\\\\slash |  |"


def test_a_report_is_a_text_and_its_facts(tmp_path):
    write_report(tmp_path / "fold.1", "# A\n", {"loss": math.nan})
    assert (tmp_path / "fold.1.md").read_text() == "# A\n"
    assert (tmp_path / "fold.1.json").read_text() == '{\n  "loss": null\n}\n'


def test_labels_of_any_script_are_drawn_without_a_warning_of_the_font(tmp_path):
    assert drawable("\u65e5 for $5") == r"U+65E5 for \$5"
    assert drawable("caf\u00e9") == "caf\u00e9"
    line = Line([1, 2, 3], [2.0, math.nan, 1.0], {"label": "\U0001f926\u200d\u2642 $5", "marker": "o"})
    panels = [Panel(y_label="loss", lines=[line], levels={"\u65e5": 1.5}), Panel(y_label="tokens/s", lines=[])]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("first.png", "again.png"):
            plot(tmp_path / name, panels, x_label="updates", width=3, height=3)
    first, again = ((tmp_path / name).read_bytes() for name in ("first.png", "again.png"))
    assert first.startswith(b"\x89PNG") and first == again


def test_a_plot_that_fails_leaves_the_earlier_one(tmp_path):
    (tmp_path / "a.png").write_bytes(b"earlier")
    panel = Panel(y_label="", lines=[Line([1, 2], [1])])
    refused("shape", plot, tmp_path / "a.png", [panel], x_label="", width=2, height=2)
    assert (tmp_path / "a.png").read_bytes() == b"earlier"
