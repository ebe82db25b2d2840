"""Official files in small -> splits, labels, sentences about faults."""

import json

import pytest
from anli.benchmark import FILES, LABELS, ROUNDS, TASKS, find, read

ANLI = TASKS["ANLI"]


@pytest.fixture(name="raw")
def official_files(tmp_path):
    """Three lines of each split: entailment, neutral, contradiction."""
    for number in ROUNDS:
        for name in FILES.values():
            path = tmp_path / "anli_v1.0" / f"R{number}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = [
                {"uid": f"r{number}-{name}-{label}", "context": f"round {number}", "hypothesis": "b", "label": label}
                for label in "enc"
            ]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


@pytest.mark.parametrize("folder", [".", "anli_v1.0"])
def test_all_rounds_are_trained_on_and_each_is_measured_alone(raw, folder):
    files = find(raw / folder, None)
    rounds = [f"{split}_r{number}" for number in ROUNDS for split in ("valid", "test")]
    assert sorted(files) == sorted(["train", "valid", *rounds])
    examples, _ = ANLI.records(files, None, {})
    found = {split: list(of_split) for split, of_split in examples.items()}
    assert [len(found[split]) for split in ("train", "valid", "valid_r2", "test_r3")] == [9, 9, 3, 3]
    assert found["train"][:9:3] == [example for example in found["train"] if example.target == "entailment"]
    assert {example.texts for example in found["test_r3"]} == {("round 3", "b")}


def test_labels_have_the_order_of_mnli(raw):
    examples = read("train", [raw / "anli_v1.0" / "R1" / "train.jsonl"], None)
    assert [LABELS.index(example.target) for example in examples] == [2, 1, 0]


def test_another_label_is_refused_with_its_line_and_a_test_set_may_have_none(raw):
    path = raw / "anli_v1.0" / "R2" / "dev.jsonl"
    path.write_text(path.read_text() + json.dumps({"uid": "4", "context": "a", "hypothesis": "b", "label": "x"}) + "\n")
    with pytest.raises(
        ValueError, match=r"R2/dev\.jsonl, line 4: label is \"?'?x.* must be one of \"c\", \"n\", \"e\""
    ):
        list(read("valid", [path], None))
    path.write_text(json.dumps({"uid": "1", "context": "a", "hypothesis": "b"}) + "\n")
    assert [example.target for example in read("test_r2", [path], None)] == [None]
    with pytest.raises(ValueError, match="there is no column 'label'"):
        list(read("valid_r2", [path], None))


def test_a_missing_or_empty_file_is_named(raw):
    path = raw / "anli_v1.0" / "R3" / "train.jsonl"
    path.write_text("")
    with pytest.raises(ValueError, match=r"R3/train\.jsonl"):
        list(read("train", find(raw, None)["train"], None))
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"has no R3/train\.jsonl or anli_v1\.0/R3/train\.jsonl"):
        find(raw, None)
