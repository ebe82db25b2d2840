"""An edited prepared.json."""

import json

import pytest

from roberta_plugin.cli import main
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_tables import rows_of, write_csv

EDITS = {
    "another task": ({"task": "RTE"}, "prepared.json: the setting 'labels' is"),
    "no such task": ({"task": "custum"}, "prepared.json: There is no fine-tuning task 'custum'"),
    "labels": ({"settings": {"labels": []}}, "prepared.json has no setting 'labels'"),
    "columns": ({"splits": {"valid": {"columns": []}}}, "split 'valid' do not agree on valid.label.npy"),
    "split": ({"splits": {"valid": None}}, "prepared.json lists valid.bin, but not the split"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_prepared_json_is_not_sound(tmp_path, capsys, edit):
    write_csv(tmp_path / "my.csv", rows_of("classification", 40))
    folder, tokenizer = tmp_path / "out", write_tokenizer(tmp_path / "tokenizer")
    words = ["--train", str(tmp_path / "my.csv"), "--tokenizer", str(tokenizer), "--max-length", "32"]
    assert main(["prepare", "custom", *words, "--output-dir", str(folder)]) == 0
    assert main(["inspect", str(folder)]) == 0
    change, message = EDITS[edit]
    (folder / "prepared.json").write_text(
        json.dumps(edited(json.loads((folder / "prepared.json").read_text()), change))
    )
    capsys.readouterr()
    assert main(["inspect", str(folder)]) == 1
    assert message in capsys.readouterr().out


def edited(content, change):
    """`content` with the values of `change` at their places; None: taken out."""
    if not isinstance(change, dict):
        return change
    new = {name: edited(content.get(name), value) for name, value in change.items()}
    return {name: value for name, value in {**content, **new}.items() if value is not None or name not in change}
