"""A training keeps the head of the model that it starts from by the names of its labels, not by its shape."""

from pathlib import Path

import pytest

from roberta_plugin.finetuning.identity import rows_by_name
from roberta_plugin.finetuning.starting_head import named_labels
from tests.starting_heads import check_rows

PATH = Path("model.pt")


@pytest.mark.parametrize(
    ("theirs", "ours", "rows"),
    [
        (["no", "yes"], ["yes", "no"], [1, 0]),
        (["YES", "no"], ["no", "perhaps", "yes"], [1, None, 0]),
        (["a", "A"], ["A", "a"], [1, 0]),
        (["a", "A"], ["a", "\u00e4"], [0, None]),
        (["A", "a\u0308"], ["a", "A"], [None, 0]),  # the row of A is that of A
        (["stra\u00dfe"], ["STRASSE"], [0]),
        (["LABEL_0"], ["no"], [None]),
        ([], ["no"], [None]),
    ],
)
def test_rows_are_found_by_names(theirs, ours, rows):
    assert rows_by_name(theirs, ours) == rows


@pytest.mark.parametrize(
    ("theirs", "ours", "rows", "said"),
    [
        (["a", "b", "c"], ["a", "b", "c"], [0, 1, 2], ""),
        (["a", "b", "c"], ["C", "a", "b"], [2, 0, 1], "is kept. It has the labels of model.pt"),
        (["a", "b", "c"], ["a", "b", "d"], [], "untrained: model.pt has the labels 'a', 'b', 'c', "),
        (["a", "b", "c"], ["a", "b"], [], "begins untrained"),
        (["LABEL_0", "LABEL_1"], ["a", "b"], [], "'LABEL_0', 'LABEL_1', and the data have 'a', 'b'."),
        ([], ["a", "b"], [], "has no names for its 2 labels. `roberta import model.pt"),
    ],
)
def test_a_head_begins_with_the_rows_of_its_labels(theirs, ours, rows, said):
    check_rows("made", theirs, ours, rows, said)


def test_labels_of_fairseqs_checkpoints_are_in_the_folder_of_their_data_also_from_another_current_folder(tmp_path):
    (tmp_path / "RTE-bin" / "label").mkdir(parents=True)
    (tmp_path / "RTE-bin" / "label" / "dict.txt").write_text("not_entailment 9\nentailment 7\nmadeupword0000 0\n")
    state = {"cfg": {"task": {"_name": "sentence_prediction", "data": "RTE-bin"}, "model": {}}}
    found = named_labels(state, "any", num_labels=2, checkpoint=tmp_path / "checkpoints" / "checkpoint_best.pt")
    assert found == ("not_entailment", "entailment")
    assert named_labels(state, "any", num_labels=2) == ()
