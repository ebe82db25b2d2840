"""The folder of a demo run: finished steps, settings, and the lock against a second run."""

import subprocess
import sys

import pytest

from roberta_plugin.demo import steps
from roberta_plugin.demo.steps import STEPS, DemoFolder, DemoSettings

VOCABULARY = next(step for step in STEPS if step.name == "vocabulary")  # depends on the text and its own size


def test_a_step_is_done_after_it_was_marked_and_not_before(tmp_path):
    folder = DemoFolder(DemoSettings(output_dir=tmp_path))
    assert not folder.has_done(VOCABULARY)
    folder.mark_done(VOCABULARY, {"size": 3}, seconds=1.26)
    again = DemoFolder(DemoSettings(output_dir=tmp_path))
    assert again.has_done(VOCABULARY)
    assert again.results() == {"vocabulary": {"size": 3}, "seconds": {"vocabulary": 1.3}}


def test_only_settings_that_the_step_depends_on_undo_it(tmp_path):
    DemoFolder(DemoSettings(output_dir=tmp_path)).mark_done(VOCABULARY, {"size": 3}, seconds=1)
    assert DemoFolder(DemoSettings(output_dir=tmp_path, minutes=1.0)).has_done(VOCABULARY)
    assert not DemoFolder(DemoSettings(output_dir=tmp_path, vocab_size=500)).has_done(VOCABULARY)


def test_forgotten_steps_are_to_be_done_again(tmp_path):
    folder = DemoFolder(DemoSettings(output_dir=tmp_path))
    for step in STEPS[:3]:
        folder.mark_done(step, {}, seconds=1)
    folder.forget(STEPS[1:])
    assert folder.results().keys() == {STEPS[0].name, "seconds"}


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
    monkeypatch.setattr(steps, "LOCK_PATIENCE_S", 0.0)
    first, second = (DemoFolder(DemoSettings(output_dir=tmp_path)) for _ in range(2))
    with first.locked(), pytest.raises(ValueError, match="--output-dir"), second.locked():
        raise AssertionError("both hold the folder")
    with second.locked():
        pass


def test_a_training_that_still_lives_keeps_the_folder(tmp_path, monkeypatch):
    """The child inherits the lock, so it holds the folder even where the demo itself was killed."""
    monkeypatch.setattr(steps, "LOCK_PATIENCE_S", 0.0)
    folder = DemoFolder(DemoSettings(output_dir=tmp_path))
    with folder.locked():
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[folder.lock_descriptor]
        )
    with pytest.raises(ValueError, match="Another"), DemoFolder(DemoSettings(output_dir=tmp_path)).locked():
        pass
    child.communicate(b"\n", timeout=60)
    with DemoFolder(DemoSettings(output_dir=tmp_path)).locked():
        pass
