"""A head of tags and other data."""

from pathlib import Path

import pytest

from roberta_plugin.finetuning import identity
from tests.tiny_tagging import write_prepared as write_tagging


def check(prepared, **changes):
    found = {"task_state": {identity.KEY: {**identity.describe(prepared), **changes}}}
    identity.check_words(found, prepared, checkpoint=Path("model.pt"))
    identity.check_task(found, prepared, checkpoint=Path("model.pt"))


def test_a_tagging_head_serves_other_files_with_the_same_labels(tmp_path, caplog):
    prepared = write_tagging(tmp_path)
    labels = {"kind": "tagging", "labels": prepared.settings["labels"]}
    check(prepared, task="conll2003", settings={**labels, "context": "document"})
    assert "--context was document and is sentence now" in caplog.text
    with pytest.raises(ValueError, match=r"--labels was O, B-PER, I-PER and is "):
        check(prepared, settings={**labels, "labels": ["O", "B-PER", "I-PER"]})
