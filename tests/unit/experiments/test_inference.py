"""Outputs of a whole split: in its order, whatever the batches, and each sequence's own."""

from argparse import Namespace

import numpy as np
import pytest
import torch

from roberta_plugin.conversion.convert import ExportSettings, ImportSettings, export_model, import_model
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.experiments.inference import load_model, run_model
from roberta_plugin.finetuning.examples_dataset import ExamplesDataset
from roberta_plugin.finetuning.kinds import kind_class
from roberta_plugin.hub import RobertaHub
from roberta_plugin.models.heads import SpanLogits
from tests.tiny_benchmarks import write_prepared
from tests.tiny_checkpoints import state_of
from tests.tiny_conversions import write_checkpoint
from tests.tiny_squad import write_prepared as write_questions


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("set") / "set", num_examples=30).split("valid")


class Sums(torch.nn.Module):
    """The score of a token is its id; that of a sequence, the sum of its ids."""

    def forward(self, tokens):
        return tokens.masked_fill(tokens.eq(1), 0).float()


def task_of(kind):
    def outputs(model, sample):
        values = model(sample["net_input"]["src_tokens"])
        if kind == "spans":
            return SpanLogits(values, -values, values.sum(dim=1))
        return torch.stack([values.sum(dim=1), -values.sum(dim=1)], dim=1)

    vocabulary = type("Vocabulary", (), {"pad_id": 1, "__len__": lambda self: 300})()
    answering = kind_class("question_answering" if kind == "spans" else "classification")({})
    return Namespace(vocabulary=vocabulary, outputs=outputs, inputs_class=ExamplesDataset, kind=answering)


@pytest.mark.parametrize("max_tokens", [1, 200, 100_000])
@pytest.mark.parametrize("kind", ["scores", "spans"])
def test_every_sequence_has_its_own_outputs(split, kind, max_tokens):
    task = task_of(kind)
    found = run_model(Sums(), task, split, max_tokens=max_tokens)
    expected = [split.sequences[number] for number in range(len(split.sequences))]
    assert len(expected) > 40
    if kind == "scores":
        sums = np.array([int(ids.sum()) for ids in expected])
        assert found.logits.tolist() == np.stack([sums, -sums], axis=1).tolist()
        return
    assert found.logits is None
    assert found.answerable_logits.tolist() == [ids.sum() for ids in expected]
    for ids, starts, ends in zip(expected, found.start_logits, found.end_logits, strict=True):
        assert starts.tolist() == ids.tolist()
        assert ends.tolist() == (-ids.astype(int)).tolist()


HEAD = "sentence_classification_head"


@pytest.fixture
def fairseqs(tmp_path):
    """A checkpoint of fairseq's own sentence_prediction, whose classes are `yes` and `no`, and our data of `no` and `yes`."""
    prepared = write_prepared(tmp_path / "RTE", num_examples=12, num_options=1)
    for part in ("input0", "label"):
        (tmp_path / "RTE-bin" / part).mkdir(parents=True)
    (tmp_path / "RTE-bin" / "label" / "dict.txt").write_text("Yes 9\nNo 8\nmadeupword0000 0\n")
    task = {"_name": "sentence_prediction", "data": str(tmp_path / "RTE-bin"), "num_classes": 2, "max_positions": 40}
    state = state_of(prepared.folder, form="args", arch="roberta_base", task=task, heads={HEAD: 2})
    torch.save(state, tmp_path / "old.pt")
    return tmp_path / "old.pt", prepared


def test_fairseqs_own_checkpoints_are_evaluated_in_the_order_of_the_datas_classes(fairseqs, tmp_path):
    path, prepared = fairseqs
    split = prepared.split("valid")
    hub = RobertaHub.from_pretrained(path, data=prepared.folder)
    sequences = [split.sequences[number].astype(np.int64) for number in range(len(split.sequences))]
    expected = hub.class_logits(sequences, HEAD)[:, [1, 0]]
    assert (expected[:, 0] - expected[:, 1]).abs().max() > 0.1
    imported = import_model(ImportSettings(source=path, data=prepared.folder, output_dir=tmp_path / "imported"))
    for checkpoint in (path, imported.folder / "model.pt"):
        found = run_model(*load_model(checkpoint, prepared), split)
        np.testing.assert_allclose(found.logits, expected.numpy(), atol=1e-5)


def test_classes_that_have_no_names_or_others_than_the_data_are_refused(fairseqs, tmp_path):
    path, prepared = fairseqs
    labels = tmp_path / "RTE-bin" / "label" / "dict.txt"
    labels.write_text("true 9\nfalse 8\n")
    with pytest.raises(
        ValueError, match=r"old\.pt has the classes true, false, and .*RTE the classes no, yes\. If only"
    ):
        load_model(path, prepared)
    labels.unlink()
    with pytest.raises(
        ValueError, match=r"old\.pt does not name its 2 classes: .*roberta import .*old\.pt --labels NAME"
    ):
        load_model(path, prepared)
    settings = ImportSettings(source=path, data=prepared.folder, output_dir=tmp_path / "named", labels=("yes", "no"))
    load_model(import_model(settings).folder / "model.pt", prepared)


def test_a_model_of_hugging_face_that_answers_questions_is_evaluated_once_it_is_imported(tmp_path):
    """It says nothing of its training but its class."""
    ours = write_checkpoint(tmp_path / "ours", "question_answering")
    theirs = export_model(ExportSettings(checkpoint=ours, to="huggingface", output_dir=tmp_path / "theirs")).folder
    assert "fine_tuned_on" not in (theirs / "config.json").read_text()
    back = import_model(ImportSettings(source=theirs, output_dir=tmp_path / "back")).folder
    outputs = []
    for folder in (ours, back):
        words = {"tokenizer": load_tokenizer(folder), "vocabulary": Vocabulary.load(folder / "dict.txt")}
        prepared = write_questions(tmp_path / f"for-{folder.name}", **words)
        outputs.append(run_model(*load_model(folder / "model.pt", prepared), prepared.split("valid")))
    expected, found = outputs
    assert len(expected.answerable_logits) > 12
    assert np.array_equal(found.answerable_logits, expected.answerable_logits)
    assert all(np.array_equal(*pair) for pair in zip(found.start_logits, expected.start_logits, strict=True))
