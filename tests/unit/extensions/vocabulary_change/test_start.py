"""A pretraining that goes on from a model with other words."""

import re

import pytest

from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.pretraining.start import with_start
from roberta_plugin.registry import START_CHANGES
from tests.pretraining_starts import assets_of_test, new_unlike_recipes, started
from tests.refusals import refused
from tests.tiny_conversions import write_checkpoint
from tests.tiny_tokenizers import train_tokenizer

assets = pytest.fixture(assets_of_test, autouse=True)
ours = pytest.fixture(new_unlike_recipes)


@pytest.fixture
def other(tmp_path):
    """The folder of a tokenizer of other words."""
    (tmp_path / "text.txt").write_text("".join(f"other words than those {number}\n" for number in range(200)))
    train_tokenizer("byte_level_bpe", [tmp_path / "text.txt"], vocab_size=300, folder=tmp_path / "other")
    return tmp_path / "other"


def test_for_text_of_other_words_the_vocabulary_is_changed_once(ours, other, tmp_path, monkeypatch):
    start = started(ours, tmp_path / "run")
    changed = start.in_words_of(other, tmp_path / "run", may_change=True)
    assert changed.checkpoint == tmp_path / "run" / "start" / "model.pt"
    assert changed.vocabulary.symbols == Vocabulary.load(other / "dict.txt").symbols
    assert re.search(r"\(from \S+ours: \d+ of them with their own rows, the others", changed.described())
    assert with_start(["--lr", "1", f"--finetune-from-model={ours}"], changed)[-1] == str(changed.checkpoint)
    monkeypatch.setattr(START_CHANGES, "_entries", {})  # from here on, the extension is not needed
    again = start.in_words_of(other, tmp_path / "run", may_change=True)
    assert again.checkpoint == changed.checkpoint
    start.check_tokenizer(other, tmp_path / "run")
    others = started(write_checkpoint(tmp_path / "others"), tmp_path / "run")
    refused("was made of another model", others.in_words_of, other, tmp_path / "run", may_change=True)
