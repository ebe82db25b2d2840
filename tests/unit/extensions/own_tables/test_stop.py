"""A cross-validation that is stopped."""

from tests.stopped_commands import check_stop


def test_sigterm_stops_trainings_in_order_as_ctrl_c_does(tmp_path, monkeypatch, capsys):
    words = "finetune custom --train a.csv --output-dir out --model a.pt --folds 2"
    check_stop(words, "experiments.finetune.cross_validate", tmp_path, monkeypatch, capsys)
