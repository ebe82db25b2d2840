"""Preparing from Python, and the comparison of a folder with what is asked for; the command is in unit/cli."""

import dataclasses
import errno
import json
import os
import shutil

import pytest

from roberta_plugin.data.mmap_tokens import MmapTokensWriter
from roberta_plugin.finetuning.options import RaceOptions, SquadOptions
from roberta_plugin.finetuning.preparation import DataSettings, PrepareSettings, check_same, prepare
from tests.tiny_benchmarks import write_tokenizer


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "raw").mkdir()
    line = {"id": "1", "context": "good", "question": "bad", "options": ["a", "b"], "answer": 1}
    (tmp_path / "raw" / "train.jsonl").write_text(json.dumps(line) + "\n")
    return PrepareSettings(
        task="multiple_choice",
        raw=tmp_path / "raw",
        tokenizer=write_tokenizer(tmp_path / "tokenizer"),
        output_dir=tmp_path / "out",
        max_length=40,
        options=RaceOptions(question_length=20),
    )


def test_the_folder_has_the_settings_and_is_returned(settings):
    prepared = prepare(settings)
    assert prepared.folder == settings.output_dir
    assert prepared.settings == {"max_length": 40, "question_length": 20, "order": "passage"}
    assert len(prepared.split("train")) == 1


def test_a_kill_between_two_renames_leaves_nothing_behind(settings):
    """`--overwrite` renames the old folder away, then the new one to its name."""
    prepare(settings)
    before = {path.name: path.read_bytes() for path in settings.output_dir.iterdir()}
    settings.output_dir.rename(settings.output_dir.with_name(".out.0a1b2c3d.old"))
    shutil.copytree(settings.output_dir.with_name(".out.0a1b2c3d.old"), settings.output_dir.with_name(".out.new"))
    prepare(dataclasses.replace(settings, overwrite=True))
    assert {path.name: path.read_bytes() for path in settings.output_dir.iterdir()} == before
    assert sorted(os.listdir(settings.output_dir.parent)) == ["out", "raw", "tokenizer"]


def test_a_full_disk_is_named_and_leaves_nothing_behind(settings, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")  # without a name, as of a write

    monkeypatch.setattr(MmapTokensWriter, "write", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/\.out\.partial/train\.(bin|jsonl)'"):
        prepare(settings)
    assert sorted(os.listdir(settings.output_dir.parent)) == ["raw", "tokenizer"]


def test_only_what_is_given_is_compared_unless_the_official_files_are(settings):
    prepared = prepare(settings)
    task = settings.task
    check_same(prepared, DataSettings(task=task))
    check_same(prepared, DataSettings(task=task, raw=settings.raw, max_length=40, options=settings.options))
    check_same(prepared, DataSettings(task=task, options=RaceOptions(order="passage")))
    with pytest.raises(ValueError, match="--order was passage and is question now"):
        check_same(prepared, DataSettings(task=task, options=RaceOptions(order="question")))
    with pytest.raises(ValueError, match=r"--max-length 40 leaves no token|--question-length was 20 and is 128 now"):
        check_same(prepared, DataSettings(task=task, raw=settings.raw))
    with pytest.raises(ValueError, match="multiple_choice has RaceOptions, got SquadOptions"):
        DataSettings(task=task, options=SquadOptions())
    with pytest.raises(ValueError, match="is prepared for multiple_choice, not for race: give another --data"):
        check_same(prepared, DataSettings(task="race"))
