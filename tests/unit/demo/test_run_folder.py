import subprocess
import sys

import pytest

from roberta_plugin.demo import run_folder
from roberta_plugin.demo.run_folder import DemoFolder, DemoSettings

NEEDS = ("max_megabytes", "vocab_size")


def test_a_step_is_done_after_it_was_marked_and_not_before(tmp_path):
    folder = DemoFolder(tmp_path, DemoSettings())
    assert folder.result_of("corpus", depends_on=NEEDS) is None
    folder.mark_done("corpus", {"documents": 3}, depends_on=NEEDS, seconds=1.26)
    again = DemoFolder(tmp_path, DemoSettings())
    assert again.result_of("corpus", depends_on=NEEDS) == {"documents": 3}
    assert again.results() == {"corpus": {"documents": 3}, "seconds": {"corpus": 1.3}}


def test_only_settings_that_the_step_depends_on_undo_it(tmp_path):
    DemoFolder(tmp_path, DemoSettings()).mark_done("corpus", {"documents": 3}, depends_on=NEEDS, seconds=1)
    assert DemoFolder(tmp_path, DemoSettings(minutes=1.0)).result_of("corpus", depends_on=NEEDS) is not None
    assert DemoFolder(tmp_path, DemoSettings(vocab_size=500)).result_of("corpus", depends_on=NEEDS) is None


def test_forgotten_steps_are_to_be_done_again(tmp_path):
    folder = DemoFolder(tmp_path, DemoSettings())
    for step in ("one", "two", "three"):
        folder.mark_done(step, {}, depends_on=NEEDS, seconds=1)
    folder.forget(["two", "three"])
    assert folder.results().keys() == {"one", "seconds"}


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"minutes": 0.0}, "--minutes"),
        ({"minutes": float("nan")}, "--minutes"),
        ({"max_megabytes": -1.0}, "--max-megabytes"),
        ({"vocab_size": 100}, "--vocab-size"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, option):
    with pytest.raises(ValueError, match=option):
        DemoSettings(**settings)


def test_two_runs_cannot_work_in_one_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "LOCK_PATIENCE_S", 0.0)
    first, second = (DemoFolder(tmp_path, DemoSettings()) for _ in range(2))
    with first.locked(), pytest.raises(ValueError, match="--output-dir"), second.locked():
        raise AssertionError("both hold the folder")
    with second.locked():
        pass


def test_a_training_that_still_lives_keeps_the_folder(tmp_path, monkeypatch):
    """The child inherits the lock, so it holds the folder even where the demo itself was killed."""
    monkeypatch.setattr(run_folder, "LOCK_PATIENCE_S", 0.0)
    folder = DemoFolder(tmp_path, DemoSettings())
    with folder.locked():
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[folder.lock_descriptor]
        )
    with pytest.raises(ValueError, match="Another"), DemoFolder(tmp_path, DemoSettings()).locked():
        pass
    child.communicate(b"\n", timeout=60)
    with DemoFolder(tmp_path, DemoSettings()).locked():
        pass
