"""The folders that the library `datasets` writes, by itself if it is installed, else by pyarrow in the same form."""

import importlib.util
import json

import pytest

from roberta_plugin.cli import main
from roberta_plugin.data.text_inputs import FAIRSEQ_RULES, InputSettings, lines_of, read_blocks
from roberta_plugin.tables import Row, files_of, read_table, where

pyarrow = pytest.importorskip("pyarrow")
TEXTS = [f"text {number}\nof two lines" for number in range(25)]


def saved(folder, texts=TEXTS, *, num_files=2):
    """A folder as `Dataset.save_to_disk` of datasets 5.2 writes it: Arrow streams of 10 rows a batch here, state.json."""
    folder.mkdir(parents=True)
    size = -(-len(texts) // num_files)
    names = [f"data-{number:05d}-of-{num_files:05d}.arrow" for number in range(num_files)]
    for number, name in enumerate(names):
        part = texts[number * size :][:size]
        features = {
            name: {"dtype": dtype, "_type": "Value"} for name, dtype in (("text", "string"), ("label", "int64"))
        }
        metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
        schema = pyarrow.schema([("text", pyarrow.string()), ("label", pyarrow.int64())], metadata=metadata)
        table = pyarrow.table({"text": part, "label": [len(text) % 2 for text in part]}, schema=schema)
        with pyarrow.ipc.new_stream(str(folder / name), schema) as writer:
            writer.write_table(table, max_chunksize=10)
    state = {
        **{
            "_data_files": [{"filename": name} for name in names],
            "_fingerprint": "0123456789abcdef",
            "_split": "train",
        },
        **{"_format_columns": None, "_format_kwargs": {}, "_format_type": None, "_output_all_columns": False},
    }
    (folder / "state.json").write_text(json.dumps(state, indent=2))
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
    assert texts_of(f"{folder}/") == as_lines(TEXTS)
    rows = list(read_table(folder))
    assert [row.values["text"] for row in rows] == TEXTS
    assert [row.line for row in rows] == list(range(1, 26))
    assert where(folder, 25) == f"{folder}, row 25"
    assert [path.name for path in files_of(folder)] == ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    assert isinstance(rows[0], Row)


def test_other_folders_are_refused_with_what_to_name(tmp_path, capsys):
    folder = saved(tmp_path / "both" / "train")
    (tmp_path / "both" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(
        ValueError, match=r"holds several splits of a data set: name one of them: .*both/train, .*both/test"
    ):
        texts_of(tmp_path / "both")
    with pytest.raises(ValueError, match="holds several splits"):
        list(read_table(tmp_path / "both"))
    with pytest.raises(
        FileNotFoundError, match=r"is a folder, and not one that `save_to_disk`.*name its files, such as"
    ):
        texts_of(tmp_path)
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**state, "_indices_data_files": [{"filename": "indices.arrow"}]}))
    with pytest.raises(ValueError, match=r"rows of this data set are chosen by _indices_data_files.*flatten_indices"):
        texts_of(folder)
    (folder / "state.json").write_text(json.dumps(state)[:-5])
    with pytest.raises(ValueError, match=r"state.json is not valid JSON .*: copy the folder again"):
        texts_of(folder)
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(FileNotFoundError, match=r"data-00001-of-00002.arrow is listed in state.json and missing"):
        texts_of(folder)
    assert main(["tokenizer", "train", "--input", str(folder), "--output-dir", str(tmp_path / "bpe")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="the library datasets is not installed")
def test_the_library_itself_saves_what_is_read(tmp_path, monkeypatch):
    """Also filtered and shuffled ones, whose rows an index chooses; a file by pyarrow is told apart by nothing."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    import datasets

    whole = datasets.Dataset.from_dict({"text": TEXTS, "label": [len(text) % 2 for text in TEXTS]})
    some = whole.filter(lambda row: row["text"].split("\n")[0].endswith(("1", "3"))).shuffle(seed=1)
    assert some._indices is not None
    datasets.DatasetDict({"train": whole, "test": some}).save_to_disk(
        tmp_path / "both", num_shards={"train": 3, "test": 1}
    )
    assert texts_of(tmp_path / "both" / "train") == as_lines(TEXTS)
    assert texts_of(tmp_path / "both" / "test") == as_lines(some["text"])
    with pytest.raises(ValueError, match=r"name one of them: .*both/train, .*both/test"):
        texts_of(tmp_path / "both")
    assert datasets.load_from_disk(str(saved(tmp_path / "ours")))["text"][:] == TEXTS
    whole.to_parquet(tmp_path / "a.parquet")
    assert texts_of(tmp_path / "a.parquet") == as_lines(TEXTS)
    whole.to_csv(tmp_path / "a.csv", index=False)
    assert texts_of(tmp_path / "a.csv") == as_lines(TEXTS)
