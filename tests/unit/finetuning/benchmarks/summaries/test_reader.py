"""Tables and CNN/DailyMail's stories are read; what cannot be used is named with its line and a remedy."""

import gzip
import hashlib
import json
import lzma
from collections import namedtuple

import pytest

from roberta_plugin.finetuning.benchmarks.summaries import examples, files, parted
from roberta_plugin.finetuning.layouts.sentences import sentences_of
from roberta_plugin.finetuning.options import SummariesOptions

STORY = (
    "First words here. A second sentence.\n\nA new paragraph\n\n@highlight\n\nIt is {}\n\n@highlight\n\nSo it goes\n"
)
OPTIONS = SummariesOptions()


def write_lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


Document = namedtuple("Document", ("id", "texts", "target"))


def read(raw, task="summaries", split="train", options=OPTIONS):
    return [Document(*each[2:5]) for each in examples(task, split, files(task, raw, options)[split], options)]


def test_a_text_is_split_into_sentences_and_a_list_is_kept(tmp_path):
    text = "It rained. We stayed.\n\nThen  it\tstopped."
    write_lines(
        tmp_path / "train.jsonl",
        {"id": "a", "text": text, "summary": "Then it stopped.It rained."},
        {"id": 7, "text": ["It rained. We stayed.", "Why?"], "summary": ["Why?"]},
    )
    first, second = read(tmp_path)
    assert first == ("a", ("It rained.", "We stayed.", "Then it stopped."), ("Then it stopped.", "It rained."))
    assert second == ("7", ("It rained. We stayed.", "Why?"), ("Why?",))


def test_sentences_that_are_run_together_are_parted_and_numbers_and_names_are_not():
    assert sentences_of(parted('It fell to 3.5%.The U.S.A. rose."Why?" he said.')) == [
        "It fell to 3.5%.",
        "The U.S.A. rose.",
        '"Why?" he said.',
    ]
    assert parted("\u0434\u0430.\u041d\u0435\u0442") == "\u0434\u0430.\n\u041d\u0435\u0442"


def test_compressed_files_fields_and_names_of_files(tmp_path):
    line = json.dumps({"doc": "It rained.", "abstract": "Rain.", "name": "x"}) + "\n"
    (tmp_path / "mine.jsonl.xz").write_bytes(lzma.compress(line.encode()))
    (tmp_path / "dev.jsonl.gz").write_bytes(gzip.compress(line.strip().encode()))
    options = SummariesOptions(train="mine.jsonl.xz", text_field="doc", summary_field="abstract", id_field="name")
    found = files("summaries", tmp_path, options)
    assert {split: paths[0].name for split, paths in found.items()} == {
        "train": "mine.jsonl.xz",
        "valid": "dev.jsonl.gz",
    }
    for split in found:
        assert read(tmp_path, split=split, options=options) == [("x", ("It rained.",), ("Rain.",))]


def test_a_test_document_may_have_no_summary_and_an_id_is_the_number_of_the_line(tmp_path):
    lacking = [{}, *({"summary": value} for value in (None, "", " ", []))]
    write_lines(tmp_path / "test.jsonl", *({"text": "It rained.", **summary} for summary in lacking))
    assert read(tmp_path, split="test") == [(str(line), ("It rained.",), None) for line in range(1, 6)]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"id": 1, "summary": "x"},
            r"line 2: there is no column 'text'; there are 'id', 'summary'. Name one of them by --text-field",
        ),
        ({"id": 1, "text": "x"}, r"line 2 lacks 'summary': add the summary, or name its field by --summary-field"),
        ({"id": 1, "text": " ", "summary": "x"}, r"line 2: text is empty"),
        ({"id": 1, "text": [], "summary": "x"}, r"line 2: text has no sentence"),
        ({"id": 1, "text": ["a", 3], "summary": "x"}, r"line 2: text, sentence 2 must be a text, found 3"),
        ({"id": "a", "text": "x", "summary": "x"}, r"line 2: the id 'a' occurs in .*line 1 already"),
        ([1], r"line 2: expected a JSON object, found \[1\]"),
    ],
)
def test_a_bad_line_is_named(tmp_path, record, message):
    write_lines(tmp_path / "train.jsonl", {"id": "a", "text": "x", "summary": "x"}, record)
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


RECORDS = [
    {"id": "a", "text": "It rained, and rained. We stayed.", "summary": "It rained."},
    {"id": "b", "text": "Why?", "summary": "Why?"},
]


def write_parquet(path, records):
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    parquet.write_table(pyarrow.Table.from_pylist(records), path)


def test_a_table_in_any_form_holds_the_same_documents(tmp_path):
    write_lines(tmp_path / "train.jsonl", *RECORDS)
    write_parquet(tmp_path / "valid.parquet", RECORDS)
    (tmp_path / "test.csv").write_text(
        "id,text,summary\n" + "".join('{id},"{text}",{summary}\n'.format(**record) for record in RECORDS)
    )
    expected = [("a", ("It rained, and rained.", "We stayed."), ("It rained.",)), ("b", ("Why?",), ("Why?",))]
    for split in ("train", "valid", "test"):
        assert read(tmp_path, split=split) == expected
    (tmp_path / "test.csv").write_text("id,text,summary\na,Why?,\n")
    assert read(tmp_path, split="test") == [("a", ("Why?",), None)]
    (tmp_path / "mine.csv").write_text("id,text,summary\na,Why?,So.\nb,Why?,\n")
    with pytest.raises(ValueError, match=r"mine.csv, line 3: summary is empty. Fill it in"):
        read(tmp_path, options=SummariesOptions(train="mine.csv"))


def test_cnn_dailymail_in_hugging_faces_form_is_that_of_the_stories(tmp_path):
    """Columns article, highlights and id; Parquet in parts; a line of the highlights is a sentence of the summary."""
    (tmp_path / "stories" / "train").mkdir(parents=True)
    records = []
    for number in range(3):
        story = STORY.format(number)
        (tmp_path / "stories" / "train" / f"{number}.story").write_text(story)
        article, *highlights = story.split("@highlight")
        lines = "\n".join(each.strip() for each in highlights)
        records.append({"article": article.strip(), "highlights": lines, "id": str(number)})
    expected = read(tmp_path / "stories", "cnn_dailymail")
    assert expected[0].target == ("It is 0", "So it goes")
    write_parquet(tmp_path / "train-00000-of-00002.parquet", records[:2])
    write_parquet(tmp_path / "train-00001-of-00002.parquet", records[2:])
    write_lines(tmp_path / "validation.jsonl", *records)
    for split in ("train", "valid"):
        assert read(tmp_path, "cnn_dailymail", split) == expected
    write_parquet(tmp_path / "train-00001-of-00002.parquet", records[:1])
    with pytest.raises(
        ValueError, match=r"00001-of-00002.parquet, row 1: the id '0' .*00000-of-00002.parquet, row 1 already"
    ):
        read(tmp_path, "cnn_dailymail")
    write_lines(tmp_path / "test.jsonl", {"article": "", "highlights": "x", "id": "1"}, {"text": "a", "id": "2"})
    with pytest.raises(
        ValueError, match=r"test.jsonl, line 2: there is no column 'article'; there are 'text', 'id'. .* of the task"
    ):
        read(tmp_path, "cnn_dailymail", "test")
    write_lines(tmp_path / "validation.jsonl", {"article": "a", "id": "1"})
    with pytest.raises(ValueError, match=r"line 1 lacks 'highlights': add the summary, or take the task summaries and"):
        read(tmp_path, "cnn_dailymail", "valid")
    (tmp_path / "test.jsonl").unlink()
    write_lines(tmp_path / "test.jsonl", {"article": "", "highlights": "x", "id": "1"})
    assert read(tmp_path, "cnn_dailymail", "test") == [("1", (), ("x",))], "prepare leaves it out, and counts it"
    write_lines(tmp_path / "test.jsonl", {"article": "a", "highlights": "", "id": "1"})
    assert read(tmp_path, "cnn_dailymail", "test") == [("1", ("a",), ())], "so that the others are evaluated"


def test_nothing_to_read_is_said(tmp_path):
    for task in ("summaries", "cnn_dailymail"):
        with pytest.raises(FileNotFoundError, match=f"holds no data for {task}: looked for"):
            files(task, tmp_path, OPTIONS)
    with pytest.raises(FileNotFoundError, match=r"--train .*x.jsonl does not exist: check the path"):
        files("summaries", tmp_path, SummariesOptions(train="x.jsonl"))


def test_stories_in_a_folder_for_each_split(tmp_path):
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "0a.story").write_text(STORY.format(split))
    found = files("cnn_dailymail", tmp_path, OPTIONS)
    assert list(found) == ["train", "valid"]
    (story,) = read(tmp_path, "cnn_dailymail", "valid")
    assert story.id == "0a"
    assert story.texts == ("First words here.", "A second sentence.", "A new paragraph")
    assert story.target == ("It is val", "So it goes")


def test_stories_by_lists_of_addresses(tmp_path):
    """As distributed: the stories of both newspapers in a folder each, and lists of addresses beside them."""
    addresses = [f"http://paper{number % 2}/{number}" for number in range(4)]
    for number, address in enumerate(addresses):
        folder = tmp_path / f"paper{number % 2}" / "stories"
        folder.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha1(address.encode()).hexdigest()
        (folder / f"{name}.story").write_text(STORY.format(number))
    lists = tmp_path / "url_lists"
    lists.mkdir()
    (lists / "all_train.txt").write_text("\n".join(addresses[:3]) + "\n")
    (lists / "all_val.txt").write_text(addresses[3])
    (lists / "cnn_wayback_training_urls.txt").write_text(addresses[3])  # all_* counts
    assert [story.target[0] for story in read(tmp_path, "cnn_dailymail")] == ["It is 0", "It is 1", "It is 2"]
    assert [story.target[0] for story in read(tmp_path, "cnn_dailymail", "valid")] == ["It is 3"]
    (lists / "all_val.txt").write_text("http://none")
    with pytest.raises(FileNotFoundError, match=r"all_val.txt, line 1: the story of http://none would be [0-9a-f]{40}"):
        files("cnn_dailymail", tmp_path, OPTIONS)
