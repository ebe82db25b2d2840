"""The head that a training starts from."""

import pytest
import torch

from roberta_plugin.finetuning.kinds import kind_class
from roberta_plugin.finetuning.starting_head import starting_head, take_over_head
from tests.starting_heads import PATH, check_rows, state_with
from tests.tiny_conversions import HEAD


@pytest.mark.parametrize(
    ("name", "theirs", "ours", "rows", "said"),
    [
        ("classification", ["a", "b", "c"], ["a", "b", "c"], [0, 1, 2], ""),
        ("classification", ["a", "b", "c"], ["C", "a", "b"], [2, 0, 1], "is kept. It has the labels of model.pt"),
        ("classification", ["a", "b", "c"], ["a", "b", "d"], [], "untrained: model.pt has the labels 'a', 'b', 'c', "),
        ("classification", ["a", "b", "c"], ["a", "b"], [], "begins untrained"),
        ("classification", ["LABEL_0", "LABEL_1"], ["a", "b"], [], "'LABEL_0', 'LABEL_1', and the data have 'a', 'b'."),
        ("classification", [], ["a", "b"], [], "has no names for its 2 labels. `roberta import model.pt"),
        ("multi_label", ["joy", "fear"], ["fear", "joy"], [1, 0], "is kept"),
        ("multi_label", ["joy", "fear"], ["rage", "joy"], [None, 0], "rows of 'joy' are kept, by their names. 'rage' "),
    ],
)
def test_a_head_begins_with_the_rows_of_its_labels(name, theirs, ours, rows, said):
    check_rows(name, theirs, ours, rows, said)


def test_a_head_of_another_name_is_taken_if_it_is_the_only_one():
    kind = kind_class("classification")({"labels": ["entailment", "neutral", "contradiction"]})
    state = state_with(kind, [], name="mnli", num_rows=3)
    take_over_head(state, kind, HEAD, fresh={}, checkpoint=PATH)
    assert state["model"][f"classification_heads.{HEAD}.out_proj.bias"].tolist() == [4, 2, 0]
    two = state_with(kind, [], name="mnli", num_rows=3)
    two["model"]["classification_heads.other.out_proj.weight"] = torch.zeros(2, 2)
    assert starting_head(two, kind, HEAD, checkpoint=PATH) is None
    assert starting_head(state, kind_class("regression")({}), HEAD, checkpoint=PATH) is None
