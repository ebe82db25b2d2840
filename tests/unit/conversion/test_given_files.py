"""A tokenizer, dict.txt or labels that are given beside the model's own."""

import pytest
import torch

from roberta_plugin.conversion.fairseq_format import read_files
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning import identity
from tests.tiny_conversions import exported, write_checkpoint


@pytest.fixture
def model(tmp_path):
    return write_checkpoint(tmp_path / "model")


def with_record(folder):
    """The checkpoint with the record that a training or an import writes."""
    state = torch.load(folder / "model.pt", weights_only=False)
    words = {
        "tokenizer": load_tokenizer(folder).description(),
        "vocabulary": Vocabulary.load(folder / "dict.txt").sha256,
    }
    state["task_state"] = {identity.KEY: words}
    torch.save(state, folder / "model.pt")


def test_another_tokenizer_than_the_one_of_the_training_is_refused(model, tmp_path):
    """Predictions and exports came from ids of other words, without a word about it."""
    with_record(model)
    assert read_files(model, tokenizer=model, data=model).tokenizer.name == "byte_level_bpe"
    for options in ({"tokenizer": "whitespace"}, {"tokenizer": "whitespace", "data": model}):
        with pytest.raises(
            ValueError, match=r"trained with another tokenizer .* than whitespace: .*leave the option out"
        ):
            read_files(model, **options)
    other = tmp_path / "other"
    other.mkdir()
    for path in model.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    first, *rest = (model / "dict.txt").read_text().splitlines()
    (other / "dict.txt").write_text("\n".join([*rest, first]) + "\n")
    with pytest.raises(ValueError, match=r"than .*other: .*dict\.txt was .*leave the option out"):
        read_files(model, data=other)


def test_a_tokenizer_in_place_of_an_own_one_that_no_record_describes_is_a_warning(model, caplog):
    read_files(model, tokenizer="whitespace")
    assert "whitespace is used in place of its own tokenizer: the tokenizer's kind was byte_level_bpe" in caplog.text
    caplog.clear()
    read_files(model, tokenizer=model, data=model)
    assert not caplog.text


def test_labels_that_replace_the_models_own_are_noted(tmp_path):
    model = write_checkpoint(tmp_path / "model", "classification")
    own = exported(model / "model.pt", tmp_path / "as it is").model.labels
    names = tuple(f"new {name}" for name in own)
    notes = exported(model / "model.pt", tmp_path / "renamed", labels=names).notes
    assert own
    assert any(f"--labels renames the model's classes: {own[0]} is {names[0]} now" in note for note in notes)
    assert not any("renames" in note for note in exported(model / "model.pt", tmp_path / "same", labels=own).notes)
