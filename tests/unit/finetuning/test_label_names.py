"""Numbers of labels: their names in files of the hub, and -1, which is no label."""

import json
from pathlib import Path

import pytest

from roberta_plugin.finetuning.label_names import Numbering, names_in_files, numbering_of

CLASS = {"names": ["neg", "pos"], "_type": "ClassLabel"}
README = """---
dataset_info:
- config_name: one
  features:
  - name: label
    dtype:
      class_label:
        names:
          '0': neg
          '1': pos
          '10': c
          '2': b
  - name: tags
    sequence:
      class_label:
        names:
          '0': O
          '1': B-X
- config_name: two
  features:
  - {name: label, dtype: {class_label: {names: [x, y]}}}
---
# Data
"""


def names(path, column="label"):
    found = names_in_files(path, column)
    return None if found is None else list(found.names)


@pytest.mark.parametrize(
    "feature",
    [
        CLASS,
        {"feature": CLASS, "_type": "Sequence"},
        {"feature": CLASS, "_type": "List"},
        [CLASS],
        {"feature": {"num_classes": 2, "names": ["neg", "pos"], "id": None, "_type": "ClassLabel"}, "length": -1},
    ],
)
def test_names_of_parquet_arrow_and_saved_data_sets(tmp_path, feature):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    metadata = {"huggingface": json.dumps({"info": {"features": {"label": feature}}})}
    table = pyarrow.table({"label": [0, 1]}).replace_schema_metadata(metadata)
    parquet.write_table(table, tmp_path / "t.parquet")
    assert names(tmp_path / "t.parquet") == ["neg", "pos"] and names(tmp_path / "t.parquet", "other") is None
    with pyarrow.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    assert names(tmp_path / "t.arrow") == ["neg", "pos"]
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "dataset_info.json").write_text(json.dumps({"features": {"label": feature}}))
    assert names(tmp_path / "saved" / "t.jsonl") == ["neg", "pos"]
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "dataset_infos.json").write_text(json.dumps({"default": {"features": {"label": feature}}}))
    assert names(tmp_path / "old" / "t.csv") == ["neg", "pos"]


def test_names_in_the_header_of_a_readme(tmp_path):
    (tmp_path / "README.md").write_text(README)
    for name in ("one/train.parquet.jsonl", "one-train.csv"):
        assert names(tmp_path / name) == ["neg", "pos", "b", "c"]
    assert names(tmp_path / "two" / "t.csv") == ["x", "y"]
    assert names(tmp_path / "t.csv", "tags") == ["O", "B-X"]
    with pytest.raises(
        ValueError, match=r"README\.md: the configurations one, two have different names.*--label-names"
    ):
        names(tmp_path / "t.csv")
    for text in ("# no header", "---\n{bad: [\n---\n", "---\ndataset_info: 3\n---\n", "---\nlicense: mit\n---\n"):
        (tmp_path / "README.md").write_text(text)
        assert names(tmp_path / "t.csv") is None


def test_a_number_has_its_name_and_minus_one_is_none():
    numbering = Numbering(("neg", "pos"), "a file")
    assert [numbering.name(each, "here") for each in (0, 1.0, "1", "pos", "?", None, True)] == [
        *("neg", "pos", "pos", "pos", "?", None, True)
    ]
    assert all(map(numbering.is_none, (-1, "-1", -1.0, [-1, -1], "[-1, -1]")))
    assert not any(map(numbering.is_none, (0, "pos", [-1, 0], [], None)))
    with pytest.raises(ValueError, match=r"here: 2 is none of the labels 0 to 1, which are neg, pos \(a file\)"):
        numbering.name(2, "here")
    stars = Numbering(("1", "2", "3"), "a file")
    assert stars.name(0, "here") == "1" and stars.name("3", "here") == "3"
    with pytest.raises(ValueError, match="'0' may be a number or a name of 1, 2, 3"):
        stars.name("0", "here")


def found(values, **options):
    cells = [(f"line {number}", value) for number, value in enumerate(values, start=1)]
    return numbering_of(Path("my.csv"), "label", cells, **{"given": None, **options})


def test_minus_one_beside_labels_from_0_on_is_refused_or_no_label_and_else_a_label():
    for values in ([0, 1, -1], ["0", "1", "-1"], [[0], [1, 2], [-1]], [0, -1]):
        with pytest.raises(
            ValueError, match=r"line .: the column 'label' holds -1 beside 0.*Give --labels 0.* to leave"
        ):
            found(values)
    assert found([0, 1, -1], listed=["0", "1"]).is_none(-1)
    assert not found([0, 1, -1], listed=["-1", "0", "1"]).is_none(-1)
    assert not found([1, -1]).is_none(-1) and not found(["a", "-1"]).is_none(-1)
    assert found([-1, -1]).is_none(-1)
    train = found([0, 1])
    assert found([-1], before=train).is_none(-1)
    assert found([0], given=["a", "b"]).names == ("a", "b") and found(["x"], given=["a"]).names == ()
    assert found([-1], before=Numbering(("a", "b"), "train")).names == ("a", "b")
