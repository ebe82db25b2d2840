"""Which nodes have no copy yet, by their logs; the whole of it is in test_batch_script.py."""

import sys

import pytest

from tests.conftest import REPOSITORY


@pytest.fixture
def late(monkeypatch):
    """The module, imported as its script imports its neighbours."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(REPOSITORY / "roberta_plugin" / "launch")])
    import late_nodes

    return late_nodes


def test_a_node_is_ready_when_its_log_says_so_of_this_attempt(late, tmp_path):
    (tmp_path / "logs").mkdir()
    for number, text in enumerate(("copied to /d/7-1 in 2.0 s", "copied to /d/7-0 in 2.0 s\n1: training", "")):
        (tmp_path / "logs" / f"7_{number}_log.out").write_text(f"{number}: {text}\n")
    found = late.late_nodes("/d/7-1", ["a", "b", "c", "d"], output_dir=tmp_path, job_id="7")
    assert found == {1: "b", 2: "c", 3: "d"}


def test_what_earlier_attempts_have_written_does_not_hide_the_end(late, tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "7_0_log.out").write_text("x" * 200_000 + "\n0: copied to /d/7-1 in 2.0 s\n")
    assert late.late_nodes("/d/7-1", ["a"], output_dir=tmp_path, job_id="7") == {}
