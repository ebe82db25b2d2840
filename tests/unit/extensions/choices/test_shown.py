"""What a preparation says of texts that do not fit."""

import pytest

from tests import tiny_race, tiny_superglue
from tests.shown_preparation import check_shown


@pytest.mark.parametrize(
    ("write", "task", "what", "options"),
    [
        (tiny_superglue.write_task, "COPA", "texts with an option", ()),
        (tiny_race.write_race, "race", "passages with question and option", ("--question-length", 6)),
    ],
)
def test_how_many_do_not_fit_is_said_and_inspect_repeats_it(tmp_path, capsys, write, task, what, options):
    write(tmp_path / "raw", task) if task == "COPA" else write(tmp_path / "raw")
    check_shown(tmp_path, capsys, task, *options, what=what, fate="cut")
