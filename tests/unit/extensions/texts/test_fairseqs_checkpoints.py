"""Checkpoints of fairseq's own sentence_prediction are evaluated by their classes."""

import json

import numpy as np
import pytest
import torch

from roberta_plugin.conversion.convert import ImportSettings, import_model
from roberta_plugin.experiments.inference import load_model, run_model
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.hub import RobertaHub
from tests.tiny_benchmarks import write_prepared
from tests.tiny_checkpoints import state_of

HEAD = "sentence_classification_head"


@pytest.fixture
def fairseqs(tmp_path):
    """A checkpoint of fairseq's own sentence_prediction, whose classes are `yes` and `no`, and our data of `no` and `yes`."""
    prepared = write_prepared(tmp_path / "RTE", task="RTE", num_examples=12, num_options=1)
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
        ValueError, match=r"old\.pt has the classes true, false, but .*RTE has the classes no, yes\. If only"
    ):
        load_model(path, prepared)
    labels.unlink()
    with pytest.raises(
        ValueError, match=r"old\.pt does not name its 2 classes: .*roberta import .*old\.pt --labels NAME"
    ):
        load_model(path, prepared)
    settings = ImportSettings(source=path, data=prepared.folder, output_dir=tmp_path / "named", labels=("yes", "no"))
    load_model(import_model(settings).folder / "model.pt", prepared)


def test_a_run_is_evaluated_on_data_with_its_labels_in_another_order(tmp_path, caplog):
    """It was refused, though both name their labels."""
    prepared = write_prepared(tmp_path / "RTE", task="RTE", num_examples=12, num_options=1)
    task = {"_name": "roberta_sentence_prediction", "classification_head_name": HEAD, "num_classes": 2}
    state = state_of(prepared.folder, task=task, heads={HEAD: 2})
    state["task_state"] = {identity.KEY: {**identity.describe(prepared)}}
    torch.save(state, tmp_path / "model.pt")
    split = prepared.split("valid")
    expected = run_model(*load_model(tmp_path / "model.pt", prepared), split).logits
    assert not caplog.text and np.abs(expected[:, 0] - expected[:, 1]).max() > 0.1
    described = json.loads((prepared.folder / "prepared.json").read_text())
    for labels, is_aligned in ((["yes", "no"], True), (["yes", "maybe"], False)):
        described["settings"]["labels"] = labels
        (prepared.folder / "prepared.json").write_text(json.dumps(described))
        again = Prepared.open(prepared.folder)
        if is_aligned:
            found = run_model(*load_model(tmp_path / "model.pt", again), split).logits
            np.testing.assert_allclose(found, expected[:, [1, 0]], atol=1e-6)
            assert "its labels are no, yes, and are put into the order of" in caplog.text
        else:
            with pytest.raises(ValueError, match=r"was fine-tuned on data prepared with other settings.*labels"):
                load_model(tmp_path / "model.pt", again)
