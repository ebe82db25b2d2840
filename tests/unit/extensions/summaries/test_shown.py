"""What a preparation says of texts that do not fit."""

from tests.shown_preparation import check_shown
from tests.tiny_summaries import write_raw


def test_how_many_do_not_fit_is_said_and_inspect_repeats_it(tmp_path, capsys):
    write_raw(tmp_path / "raw")
    check_shown(tmp_path, capsys, "summaries", what="documents", fate="divided into windows")
