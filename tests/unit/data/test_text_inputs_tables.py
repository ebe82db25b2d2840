"""Text by column: Parquet, Arrow, the folders of `datasets`, CSV and TSV."""

import csv
import importlib.util
import itertools
import json
import random
import struct

import pytest

from roberta_plugin.cli import main
from roberta_plugin.data import text_inputs_columnar
from roberta_plugin.data.text_inputs import (
    FAIRSEQ_RULES,
    BadLineError,
    InputSettings,
    LineRules,
    count_lines,
    lines_of,
    read_blocks,
)
from roberta_plugin.data.text_inputs_columnar import groups_of
from roberta_plugin.data.text_inputs_files import named_form
from roberta_plugin.data.text_inputs_remote import is_url
from roberta_plugin.tables import Row, files_of, read_table, where
from tests.refusals import refused

pyarrow = pytest.importorskip("pyarrow")
feather, parquet = (pytest.importorskip(f"pyarrow.{name}") for name in ("feather", "parquet"))

TEXTS = ["one\ntwo", "", " \n\nthree \r\n four\rfive", "caf\u00e9 \u4e2d\u6587 \U0001f600", "a\u2028bc", "\n"]
TEXTS += ['say "x", y\t|', "z"]


def write(path, texts=TEXTS, *, kind=None, rows_per_group=3, column="body"):
    """A table with the texts, and another column, in the format that the name of its file says."""
    path.parent.mkdir(exist_ok=True, parents=True)
    if path.suffix in (".csv", ".tsv"):
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writerows([["id", column], *([number, text] for number, text in enumerate(texts))])
        return path
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"id": 1, column: text}) + "\n" for text in texts))
        return path
    table = pyarrow.table({"id": list(range(len(texts))), column: pyarrow.array(texts).cast(kind or pyarrow.string())})
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=rows_per_group)
    elif path.suffix == ".feather":
        feather.write_feather(table, path, chunksize=rows_per_group)
    else:
        new = pyarrow.ipc.new_file if path.suffix == ".ipc" else pyarrow.ipc.new_stream
        with new(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=rows_per_group)
    return path


def settings(**rules):
    return InputSettings(rules=LineRules(text_column="body", **rules))


def lines(source, *, edges=(0, None), block_bytes=2**20, **rules):
    found, bad, number = [], 0, 1
    for start, end in itertools.pairwise(edges):
        for block in read_blocks(source, start=start, end=end, block_bytes=block_bytes):
            more, num_bad = lines_of(block, source=source, first_line=number, rules=settings(**rules).rules)
            found, bad, number = found + more, bad + num_bad, number + count_lines(block, source)
    return found, bad


def refused_row(match, source):
    """A row of a table is refused with this message."""
    refused(match, lines, source, error=BadLineError)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *[("a.parquet", kind) for kind in (None, "large_string", "string_view", "dictionary")],
        *[(name, kind) for name in ("a.ipc", "a.arrow") for kind in (None, "large_string", "dictionary")],
        *[("a.feather", None), ("a.csv", None)],
    ],
)
def test_every_table_gives_the_lines_of_the_equal_json_lines(tmp_path, name, kind):
    kind = pyarrow.dictionary(pyarrow.int32(), pyarrow.string()) if kind == "dictionary" else kind
    for keep in ({"keep_spaces": False}, {"keep_spaces": True}):
        (table,) = settings(**keep).sources([write(tmp_path / name, TEXTS, kind=kind)])
        (records,) = settings(**keep).sources([write(tmp_path / "a.jsonl", TEXTS)])
        expected = lines(records, **keep)
        assert lines(table, **keep) == lines(table, block_bytes=1, **keep) == expected
        if table.is_columnar:
            assert sum(group.num_rows for group in groups_of(table)) == len(TEXTS)
            assert lines(table, edges=range(len(groups_of(table)) + 1), **keep) == expected


def test_tsv_is_read_as_a_table_and_semicolons_are_named(tmp_path):
    (tmp_path / "a.tsv").write_text('body\tid\nhe said "no"\t1\n')
    (tmp_path / "a.csv").write_text("id;body\n1;yes\n")
    (tsv,) = settings().sources([tmp_path / "a.tsv"])
    assert lines(tsv) == (['he said "no"', ""], 0)
    refused(r"seems to be ';', so give --delimiter ';'", settings().sources, [tmp_path / "a.csv"])
    other = InputSettings(rules=settings().rules, delimiter=";")
    assert lines(other.sources([tmp_path / "a.csv"])[0]) == (["yes", ""], 0)


@pytest.mark.parametrize("name", ["a.xlsx", "a.ods"])
def test_a_spreadsheet_is_refused_with_what_to_do(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\3\4")
    refused(rf"{name} is a spreadsheet, not text: save .*as CSV \(UTF-8\)", settings().sources, [tmp_path / name])


def test_a_csv_is_text_only_if_that_is_said(tmp_path):
    write(tmp_path / "a.csv")
    message = r"a\.csv: there is no column 'text'; there are 'id', 'body'. Name one of them"
    refused(message, InputSettings().sources, [tmp_path / "a.csv"])
    assert InputSettings(text_format="text").sources([tmp_path / "a.csv"])[0].form == "text"


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.ipc"])
def test_rows_without_text_are_named_or_counted(tmp_path, name):
    write(tmp_path / name, ["one", None, "two", None], rows_per_group=2)
    (source,) = settings().sources([tmp_path / name])
    message = rf"{name}, row 2: it has no text \(null\). Correct or leave out the row, or skip .*--skip-bad-lines"
    refused_row(message, source)
    assert lines(source, skip_bad_lines=True) == (["one", "", "two", ""], 2)


def test_text_that_is_not_utf_8_is_named_and_never_cut_at_its_bytes(tmp_path):
    raw = pyarrow.array([b"fine", b"a\xffb", b"\xfeno", b"caf\xe9"], pyarrow.binary())
    array = pyarrow.Array.from_buffers(pyarrow.string(), 4, raw.buffers())
    parquet.write_table(pyarrow.table({"body": array}), tmp_path / "a.parquet")
    (source,) = settings().sources([tmp_path / "a.parquet"])
    refused_row(r"row 2: its text is not UTF-8 at byte 1", source)
    assert lines(source, skip_bad_lines=True) == (["fine", ""], 3)


def test_a_bad_row_of_csv_is_named_by_its_line(tmp_path):
    (tmp_path / "a.csv").write_text('id,body\n1,"two\nlines"\n2\n3,end\n')
    (source,) = settings().sources([tmp_path / "a.csv"])
    refused_row(r"a\.csv, row 2: at line 4, it has 1 columns, and the first line names 2", source)
    assert lines(source, skip_bad_lines=True) == (["two", "lines", "", "end", ""], 1)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.ipc"])
def test_a_column_that_is_missing_or_no_text_is_refused_with_those_that_there_are(tmp_path, name):
    table = {"id": [1], "nested": [{"body": "x"}], "list": [["x"]], "raw": [b"x"], "none": [None]}
    path = tmp_path / name
    if name == "a.parquet":
        parquet.write_table(pyarrow.table(table), path)
    else:
        table = pyarrow.table(table)
        with (pyarrow.ipc.new_file if name == "a.ipc" else pyarrow.ipc.new_stream)(str(path), table.schema) as writer:
            writer.write_table(table)
    message = rf"{name}: there is no column 'body'; there are 'id', 'nested', 'list', 'raw'"
    refused(message, settings().sources, [path])
    for column in ("id", "nested", "list", "raw", "none"):
        message = rf"{name}: the column '{column}' holds .*, not text. .*'raw' \(binary\)"
        refused(message, InputSettings(rules=LineRules(text_column=column)).sources, [path])


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.ipc"])
def test_a_file_that_was_cut_off_is_named_and_one_without_rows_has_no_text(tmp_path, name):
    whole = write(tmp_path / name, [str(random.Random(1).random()) for _ in range(999)], rows_per_group=99).read_bytes()
    for length in (0, 5, len(whole) // 2, len(whole) - 4, len(whole) - 8):
        (tmp_path / name).write_bytes(whole[:length])
        message = rf"{name} cannot be read as (Parquet|Arrow) .*cut off, damaged or in another"
        refused(message, settings().sources, [tmp_path / name])
    (source,) = settings().sources([write(tmp_path / name, [])])
    assert lines(source) == ([], 0)


def test_damage_within_a_row_group_is_named_when_it_is_read(tmp_path):
    path = write(tmp_path / "a.parquet", [str(random.Random(seed).random()) for seed in range(9999)])
    whole = bytearray(path.read_bytes())
    whole[200:4000] = bytes(3800)
    path.write_bytes(whole)
    (source,) = settings().sources([path])
    refused(r"a\.parquet cannot be read as Parquet .*Copy or download it again", lines, source)


@pytest.mark.parametrize("offset", [-3, 600, 2**20])
@pytest.mark.parametrize("name", ["a.arrow", "a.ipc", "set"])
def test_offsets_outside_the_data_are_refused_by_every_reader(tmp_path, name, offset):
    """Bytes that a damaged disk or copy may leave, for which Arrow has no checksum."""
    texts = [f"{number:09d}" for number in range(50)]
    path = (
        saved(tmp_path / name, texts, num_files=1)
        if name == "set"
        else write(tmp_path / name, texts, rows_per_group=50)
    )
    column, file = ("text", next(path.glob("*.arrow"))) if name == "set" else ("body", path)
    content = bytearray(file.read_bytes())
    last = 10 if name == "set" else 50
    at = content.index(struct.pack("<3i", 0, 9, 18)) + 4 * last
    assert struct.unpack_from("<i", content, at) == (9 * last,)
    struct.pack_into("<i", content, at, 9 * last + offset if offset > 0 else offset)
    file.write_bytes(content)
    refused(rf"{file.name} cannot be read as Arrow.*Copy or download it again", lambda: list(read_table(path)))
    rules = InputSettings(rules=LineRules(text_column=column))
    refused(rf"{file.name} cannot be read as Arrow", lambda: [lines(each) for each in rules.sources([path])])


@pytest.mark.parametrize(
    "content", ["[1]", "[{}]", "{}", '{"_data_files": [{}]}', '{"_data_files": [{"filename": "../x"}]}']
)
def test_a_damaged_list_of_files_of_a_saved_data_set_is_refused(tmp_path, content):
    folder = saved(tmp_path / "set")
    (folder / "state.json").write_text(content)
    refused(r"state.json .*copy the folder again", texts_of, folder)
    (folder / "dataset_dict.json").write_text(content)
    refused(r"dataset_dict.json has no list 'splits'.*copy the folder again", texts_of, folder)


def test_one_column_is_read_and_a_few_rows_at_a_time(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet", [str(number) for number in range(10_000)], rows_per_group=10**6)
    monkeypatch.setattr(text_inputs_columnar, "_ROWS_AT_ONCE", 1000)
    (source,) = settings().sources([path])
    batches = list(text_inputs_columnar.read_batches(source, on_read=lambda _: None, columns=["body"]))
    assert [(len(batch), batch.schema.names) for batch in batches] == [(1000, ["body"])] * 10


def test_the_bytes_that_were_read_add_up(tmp_path):
    for name in ("a.parquet", "a.arrow", "a.ipc", "a.csv"):
        path = write(tmp_path / name, ["some text"] * 1000, rows_per_group=250)
        (source,) = settings().sources([path])
        num_bytes: list[int] = []
        list(read_blocks(source, on_read=num_bytes.append))
        assert path.stat().st_size * 0.99 <= sum(num_bytes) <= path.stat().st_size


def test_names_say_the_format_also_of_urls_with_a_query():
    assert named_form("News.JSONL.gz") == ("jsonl", ".gz")
    assert named_form("https://host/a.parquet?download=true") == ("parquet", "")
    assert named_form("a?.csv") == ("csv", "")
    assert named_form("zip://a.tsv.gz::https://host/b.zip") == ("tsv", ".gz")
    assert [is_url(name) for name in ("s3://a", "simplecache::s3://a", "file:///a", "a::b", "a:/b", "/a://b")] == (
        [True, True, False, False, False, False]
    )


SAVED = [f"text {number}\nof two lines" for number in range(25)]
TYPES = {"text": "string", "label": "int64"}


def saved(folder, texts=SAVED, *, num_files=2):
    """A folder as `Dataset.save_to_disk` of datasets 5.2 writes it: Arrow streams of 10 rows a batch here, state.json."""
    folder.mkdir(parents=True)
    size = -(-len(texts) // num_files)
    names = [f"data-{number:05d}-of-{num_files:05d}.arrow" for number in range(num_files)]
    for number, name in enumerate(names):
        part = texts[number * size :][:size]
        features = {column: {"dtype": dtype, "_type": "Value"} for column, dtype in TYPES.items()}
        metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
        schema = pyarrow.schema([(column, getattr(pyarrow, dtype)()) for column, dtype in TYPES.items()], metadata)
        table = pyarrow.table({"text": part, "label": [len(text) % 2 for text in part]}, schema=schema)
        with pyarrow.ipc.new_stream(str(folder / name), schema) as writer:
            writer.write_table(table, max_chunksize=10)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "0123456789abcdef"}
    state |= {"_split": "train", "_format_columns": None, "_format_kwargs": {}, "_format_type": None}
    (folder / "state.json").write_text(json.dumps({**state, "_output_all_columns": False}, indent=2))
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    return folder


def texts_of(folder):
    return [
        line
        for source in InputSettings().sources([folder])
        for block in read_blocks(source)
        for line in lines_of(block, source=source, first_line=1, rules=FAIRSEQ_RULES)[0]
    ]


def as_lines(texts):
    return [line for text in texts for line in [*text.split("\n"), ""]]


def test_a_saved_data_set_is_its_files_in_order(tmp_path):
    folder = saved(tmp_path / "set")
    (folder / "data-00000-of-00009.arrow").write_bytes(b"left by an earlier save")
    assert texts_of(f"{folder}/") == as_lines(SAVED)
    rows = list(read_table(folder))
    assert [row.values["text"] for row in rows] == SAVED
    assert [row.line for row in rows] == list(range(1, 26))
    assert where(folder, 25) == f"{folder}, row 25"
    assert [path.name for path in files_of(folder)] == ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    assert isinstance(rows[0], Row)


def test_other_folders_are_refused_with_what_to_name(tmp_path, capsys):
    folder = saved(tmp_path / "both" / "train")
    (tmp_path / "both" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    several = r"holds several splits of a data set: name one of them: .*both/train, .*both/test"
    refused(several, texts_of, tmp_path / "both")
    refused("holds several splits", lambda: list(read_table(tmp_path / "both")))
    message = r"is a folder, and not one that `save_to_disk`.*name its files, such as"
    refused(message, texts_of, tmp_path, error=FileNotFoundError)
    state = (folder / "state.json").read_text()
    chosen = json.dumps({**json.loads(state), "_indices_data_files": [{"filename": "indices.arrow"}]})
    for content, message in (
        (chosen, r"rows of this data set are chosen by _indices_data_files.*flatten_indices"),
        (state[:-5], r"state.json is not valid JSON .*: copy the folder again"),
    ):
        (folder / "state.json").write_text(content)
        refused(message, texts_of, folder)
    (folder / "state.json").write_text(state)
    (folder / "data-00001-of-00002.arrow").unlink()
    message = r"data-00001-of-00002.arrow is listed in state.json and missing"
    refused(message, texts_of, folder, error=FileNotFoundError)
    assert main(["tokenizer", "train", "--input", str(folder), "--output-dir", str(tmp_path / "bpe")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="the library datasets is not installed")
def test_the_library_itself_saves_what_is_read(tmp_path, monkeypatch):
    """Also filtered and shuffled ones, whose rows an index chooses; a file by pyarrow is told apart by nothing."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    import datasets

    whole = datasets.Dataset.from_dict({"text": SAVED, "label": [len(text) % 2 for text in SAVED]})
    some = whole.filter(lambda row: row["text"].split("\n")[0].endswith(("1", "3"))).shuffle(seed=1)
    assert some._indices is not None
    datasets.DatasetDict({"train": whole, "test": some}).save_to_disk(
        tmp_path / "both", num_shards={"train": 3, "test": 1}
    )
    assert texts_of(tmp_path / "both" / "train") == as_lines(SAVED)
    assert texts_of(tmp_path / "both" / "test") == as_lines(some["text"])
    refused(r"name one of them: .*both/train, .*both/test", texts_of, tmp_path / "both")
    assert datasets.load_from_disk(str(saved(tmp_path / "ours")))["text"][:] == SAVED
    whole.to_parquet(tmp_path / "a.parquet")
    assert texts_of(tmp_path / "a.parquet") == as_lines(SAVED)
    whole.to_csv(tmp_path / "a.csv", index=False)
    assert texts_of(tmp_path / "a.csv") == as_lines(SAVED)
