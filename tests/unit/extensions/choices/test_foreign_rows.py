"""Options with names, as other programs write them."""

import json
from pathlib import Path

import pytest

from roberta_plugin.extensions.choices.kind import MultipleChoice
from roberta_plugin.tables import Row
from tests.tiny_tables import read_own_rows

NAMES = {"ARC": ["A", "B", "C"], "its numbers": ["1", "2", "3"]}


TEXTS = ["sun", "moon", "star"]


LAYOUTS = {
    "object of lists": lambda names: {"text": TEXTS, "label": names},
    "as a text": lambda names: json.dumps({"text": TEXTS, "label": names}),
    "list of objects": lambda names: [{"label": name, "text": text} for name, text in zip(names, TEXTS, strict=True)],
}


OPTIONS = {"text_column": "question", "choices_columns": ("choices",), "label_column": ("answerKey",)}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("named", NAMES)
def test_options_with_names_are_read_and_the_name_is_the_label(tmp_path, layout, named):
    names = NAMES[named]
    rows = [
        {"id": n, "question": f"what {n}?", "choices": LAYOUTS[layout](names), "answerKey": names[n % 3]}
        for n in range(20)
    ]
    examples, _ = read_own_rows(tmp_path, rows, kind="multiple-choice", **OPTIONS)
    assert [(each.choices, each.target) for each in examples[:3]] == [(tuple(TEXTS), n) for n in range(3)]
    rows[4]["answerKey"] = "E"
    with pytest.raises(
        ValueError, match=f"line 5: the label 'E' is none of {', '.join(names)}, the names of the options"
    ):
        read_own_rows(tmp_path, rows, kind="multiple-choice", **OPTIONS)


def test_a_record_is_asked_with_options_in_that_layout():
    kind = MultipleChoice({"text_column": "question", "text_pair_column": None, "choices_columns": ["choices"]})
    row = Row(Path("r"), 1, {"question": "what?", "choices": LAYOUTS["object of lists"](NAMES["ARC"])})
    assert kind.read_question(row).options == tuple(TEXTS)
