"""Exports of models with heads: what a format cannot say of their answers."""

import json

import pytest

from tests.tiny_conversions import exported, new_classifier, new_export, write_checkpoint
from tests.tiny_predictors import write_finetuning, write_predictor

ours = pytest.fixture(new_classifier, scope="module")
theirs = pytest.fixture(new_export)


@pytest.mark.parametrize(
    ("kind", "to", "said"),
    [
        ("classification", "fairseq", "Texts are read without white space at their ends, but fairseq keeps"),
        ("multiple_choice", "fairseq", "and with one space for any other, but fairseq keeps it"),
        ("question_answering", "huggingface", "Questions are read without white space at their ends, but other"),
        ("classification", "huggingface", ""),
        ("masked_lm", "fairseq", ""),
    ],
)
def test_white_space_that_a_format_cannot_leave_out_is_said(tmp_path, kind, to, said):
    ours = write_checkpoint(tmp_path / "ours", kind)
    notes = exported(ours, tmp_path / "theirs", to).notes
    assert len(notes) == bool(said) and said in "".join(notes)
    assert json.loads((tmp_path / "theirs" / "conversion.json").read_text())["notes"] == list(notes)


def test_a_format_that_cannot_hold_a_threshold_is_named(tmp_path):
    numbers = {"threshold": 0.914, "temperature": 0.831}
    run = write_finetuning(tmp_path / "run", write_predictor(tmp_path / "model", "single"), numbers)
    done = exported(run, tmp_path / "fairseq", "fairseq")
    words = "evaluated with the temperature 0.831 and the threshold 0.914 of 1, which"
    assert done.notes[0] == f"The model was {words} --to fairseq cannot store: README.md says how to apply it."
    card = (done.folder / "README.md").read_text()
    assert f"{words} the weights do not contain. Logits are divided" in card
    assert "No file of this folder does that." in card
    ours = write_checkpoint(tmp_path / "labels", "multi_label")
    notes = exported(ours, tmp_path / "fairseq", to="fairseq").notes
    assert (
        notes[0] == "A text may have several labels, by the sigmoid of each logit, which --to fairseq cannot express."
    )
