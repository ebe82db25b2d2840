"""What a preparation says of texts that do not fit."""

import pytest

from tests import tiny_glue, tiny_superglue
from tests.shown_preparation import check_shown


@pytest.mark.parametrize(
    ("write_task", "task", "what"),
    [
        (tiny_glue.write_task, "SST-2", "texts"),
        (tiny_glue.write_task, "QNLI", "pairs"),
        (tiny_superglue.write_task, "BoolQ", "pairs"),
    ],
)
def test_how_many_do_not_fit_is_said_and_inspect_repeats_it(tmp_path, capsys, write_task, task, what):
    write_task(tmp_path / "raw", task)
    check_shown(tmp_path, capsys, task, what=what, fate="cut")
