"""The head that a training starts from."""

import pytest

from tests.starting_heads import check_rows

TAGS = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]


@pytest.mark.parametrize(
    ("theirs", "ours", "rows", "said"),
    [
        (TAGS, ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"], [0, 3, 4, 1, 2], "is kept"),
        (TAGS, ["O", "B-PER", "I-PER", "B-ZONE", "I-ZONE"], [0, 3, 4, None, None], "'I-ZONE' begin untrai"),
        (TAGS, ["O", "B-PER", "I-PER"], [0, 3, 4], "rows of 'O', 'B-PER', 'I-PER' are kept, by their names."),
        (TAGS, ["O", "B-ZONE", "I-ZONE"], [], "begins untrained"),
    ],
)
def test_a_head_begins_with_the_rows_of_its_labels(theirs, ours, rows, said):
    check_rows("tagging", theirs, ours, rows, said)
