"""Masks of texts on the command line."""

import pytest

from roberta_plugin.cli import main
from tests.tiny_predictors import write_predictor


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(write_predictor(tmp_path_factory.mktemp("masks") / "model", "fill_mask"))


def test_texts_on_the_command_line_are_answered_also_after_options(model, capfd):
    assert main(["fill-mask", model, "a<mask>", "--top-k", "1", "<mask>b"]) == 0
    shown = capfd.readouterr()
    assert shown.err == "" and [line[:11] for line in shown.out.splitlines()] == ['{"line": 1,', '{"line": 2,']


def test_a_text_without_a_mask_is_refused_by_its_line(model, capsys):
    assert main(["fill-mask", model, "nothing"]) == 2
    shown = capsys.readouterr().err
    assert "the command line, line 1" in shown and "no <mask>" in shown
