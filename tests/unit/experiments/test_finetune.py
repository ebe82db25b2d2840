"""The settings of the procedure from Python, and folds; the procedure itself is in unit/cli and integration/test_finetune.py."""

import dataclasses
import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch

from roberta_plugin.conversion.convert import ExportSettings, ImportSettings, export_model, import_model
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.experiments import finetune as procedure
from roberta_plugin.experiments.evaluation import Evaluation
from roberta_plugin.experiments.finetune import (
    FinetuneSettings,
    cross_validate,
    finetune,
    fold_rows,
    fold_settings,
    fold_table,
)
from roberta_plugin.experiments.inference import load_model, run_model
from roberta_plugin.extensions.choices.options import RaceOptions
from roberta_plugin.extensions.spans.head import SpanLogits
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.examples_dataset import ExamplesDataset
from roberta_plugin.finetuning.kinds import kind_class
from roberta_plugin.finetuning.options import CustomOptions
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.hub import RobertaHub
from roberta_plugin.launch.resources import Resources
from tests.tiny_benchmarks import write_prepared
from tests.tiny_checkpoints import state_of
from tests.tiny_conversions import write_checkpoint
from tests.tiny_squad import write_prepared as write_questions

REQUIRED = {"model": Path("model.pt"), "output_dir": Path("out")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "rte"}, "There is no fine-tuning task 'rte'; there are CoLA, "),
        ({"slurm": Resources()}, "--slurm needs a time limit"),
        ({"options": RaceOptions()}, "RTE has GlueOptions, got RaceOptions"),
    ],
)
def test_settings_that_cannot_work_are_refused_when_they_are_made(changes, message):
    with pytest.raises(ValueError, match=message):
        FinetuneSettings(**{"task": "RTE", **REQUIRED, **changes})


@pytest.mark.parametrize(
    ("task", "folder", "name"),
    [
        ("RTE", "runs/large", "RTE-large"),
        ("RTE", "runs/rte-2/", "rte-2"),
        ("custom", "runs/mine/fold-1-of-5", "custom-mine-fold-1-of-5"),
    ],
)
def test_squeue_shows_the_task_and_the_folder(task, folder, name):
    """And not `runs`, the folder below it that the sweep writes to."""
    assert FinetuneSettings(task=task, model=Path("model.pt"), output_dir=Path(folder)).job_name == name


@pytest.fixture
def settings(tmp_path):
    return FinetuneSettings(
        task="custom", model=tmp_path / "model.pt", output_dir=tmp_path / "out", options=CustomOptions(train="my.csv")
    )


def evaluation(split, **median):
    return Evaluation(task="custom", split=split, members=[], median=median, ensemble={})


def test_each_fold_has_its_part_and_its_folder(settings):
    folds = fold_settings(dataclasses.replace(settings, folds=3))
    assert [fold.options.part() for fold in folds] == [(1, 3), (2, 3), (3, 3)]
    assert [fold.output_dir.name for fold in folds] == ["fold-1-of-3", "fold-2-of-3", "fold-3-of-3"]


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"task": "RTE", "options": None}, {}, "--folds goes with custom: RTE has"),
        ({}, {"valid": "dev.csv"}, "leave --valid and --fold out"),
        ({}, {"fold": "1/3"}, "leave --valid and --fold out"),
    ],
)
def test_what_does_not_go_with_folds_is_refused(settings, changes, options, message):
    given = {"folds": 5, "options": CustomOptions(train="my.csv", **options), **changes}
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(settings, **given)


def test_folds_are_not_forgotten_by_finetune(settings):
    with pytest.raises(ValueError, match="folds are for `cross_validate`"):
        finetune(dataclasses.replace(settings, folds=3))


def test_mean_and_spread_are_those_of_the_folds():
    folds = [
        [evaluation("valid", accuracy=80.0), evaluation("test", accuracy=70.0)],
        [evaluation("valid", accuracy=90.0)],
    ]
    (row,) = fold_rows(folds)
    assert (row["split"], row["mean"], row["smallest"], row["largest"], row["folds"]) == ("valid", 85.0, 80.0, 90.0, 2)
    assert row["deviation"] == pytest.approx(7.0711, abs=1e-4)
    assert "| valid | accuracy | 85.0 | 7.1 | 80.0 to 90.0 | 2 |" in fold_table([row])


def test_folds_stand_beside_the_mean_of_their_baselines(tmp_path):
    folds = [
        [
            dataclasses.replace(
                evaluation("valid", accuracy=80.0), baseline={"accuracy": 60.0}, tf_idf={"accuracy": 81.0}
            )
        ],
        [
            dataclasses.replace(
                evaluation("valid", accuracy=90.0), baseline={"accuracy": 70.0}, tf_idf={"accuracy": 84.0}
            )
        ],
    ]
    (row,) = fold_rows(folds)
    assert (row["baseline"], row["tf_idf"]) == (65.0, 82.5)
    head, _, line = fold_table([row]).strip().splitlines()
    assert head.endswith("| folds | baseline | TF-IDF |") and line.endswith("| 2 | 65.0 | 82.5 |")


def test_all_folds_are_prepared_before_one_is_trained(settings, monkeypatch):
    """Else a fold without rows would be found after hours of training the others."""
    planned = []

    def plan_finetuning(each):
        planned.append(each.options.fold)
        if each.options.fold == "3/3":
            raise ValueError("none is left")

    monkeypatch.setattr(procedure, "plan_finetuning", plan_finetuning)
    monkeypatch.setattr(procedure, "carry_out", None)
    with pytest.raises(ValueError, match="none is left"):
        cross_validate(dataclasses.replace(settings, folds=3))
    assert planned == ["1/3", "2/3", "3/3"]


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
    training = Namespace(inputs_class=ExamplesDataset)
    return Namespace(vocabulary=vocabulary, outputs=outputs, training=training, kind=answering)


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


def test_a_run_is_evaluated_on_data_with_its_labels_in_another_order(tmp_path, caplog):
    """It was refused, though both name their labels."""
    prepared = write_prepared(tmp_path / "RTE", num_examples=12, num_options=1)
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
            with pytest.raises(ValueError, match=r"was fine-tuned on data prepared otherwise.*labels"):
                load_model(tmp_path / "model.pt", again)


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
