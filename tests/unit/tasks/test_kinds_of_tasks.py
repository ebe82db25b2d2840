"""The tasks of options, spans and tags: batches through model and criterion, raw outputs, and what is refused."""

from argparse import Namespace

import numpy as np
import pytest
import torch

from roberta_plugin.criterions.finetuning import (
    LabelsConfig,
    RaceCriterion,
    RobertaTaggingCriterion,
    Squad2Criterion,
    Squad2CriterionConfig,
)
from roberta_plugin.experiments.inference import run_model
from roberta_plugin.finetuning.kinds.outputs import read_outputs, write_outputs
from roberta_plugin.tasks.finetuning import (
    FineTuningConfig,
    RaceTask,
    RobertaTaggingConfig,
    RobertaTaggingTask,
    Squad2Config,
    Squad2Task,
)
from tests.tiny_race import write_lines, write_race
from tests.tiny_squad import question, write_json
from tests.tiny_squad import write_prepared as write_squad
from tests.tiny_squad import write_raw as write_squad_raw
from tests.tiny_tagging import write_prepared as write_tagging
from tests.tiny_tagging import write_raw as write_tagging_raw
from tests.unit.finetuning.benchmarks.race.test_prepare import prepared_of

SIZES = {"encoder_layers": 1, "encoder_embed_dim": 8, "encoder_ffn_embed_dim": 8, "encoder_attention_heads": 2}


@pytest.fixture(scope="module")
def race_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("race")
    return prepared_of("race", write_race(folder / "raw", train=16, dev=4), folder / "set").folder


def race_task(data, **options):
    return RaceTask.setup_task(FineTuningConfig(data=str(data), **{"seed": 3, **options}))


@pytest.mark.parametrize("arch", ["fast_roberta_tiny", "roberta_base"])
def test_all_options_of_a_batch_go_through_the_model_at_once(race_folder, arch):
    task = race_task(race_folder, classification_head_name="choice")
    model = task.build_model(Namespace(arch=arch, **SIZES)).eval()
    task.load_dataset("train")
    dataset = task.dataset("train")
    batch = dataset.__getitems__(dataset.batches(1, max_sentences=5)[0])
    assert batch["net_input"]["src_tokens"].size(0) == 20
    scores, _ = model(**batch["net_input"], **task.head_arguments)
    assert scores.shape == (20, 1)
    loss, sample_size, _ = RaceCriterion.build_criterion(Namespace(), task)(model, batch)
    assert sample_size == 5
    expected = torch.nn.functional.cross_entropy(scores.view(5, 4), batch["columns"]["label"], reduction="sum")
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_packed_questions_have_the_same_loss(race_folder):
    losses = []
    for pack in (False, True):
        task = race_task(race_folder, pack_sequences=pack, pad_to_multiple=8)
        torch.manual_seed(0)
        model = task.build_model(Namespace(arch="fast_roberta_tiny", **SIZES)).eval()
        task.load_dataset("train")
        dataset = task.dataset("train")
        batch = dataset.__getitems__([(1, index) for index in (3, 0, 7)])
        loss, _, _ = RaceCriterion.build_criterion(Namespace(), task)(model, batch)
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_question_without_an_answer_is_refused(tmp_path):
    entries = [{"id": str(n), "context": "x", "question": "y", "options": ["a", "b"]} for n in range(3)]
    entries[1]["answer"] = 0
    write_lines(tmp_path / "raw/test.jsonl", entries)
    data = prepared_of("multiple_choice", tmp_path / "raw", tmp_path / "set").folder
    with pytest.raises(ValueError, match=r"the split 'test' has 2 of 3 questions without an answer"):
        race_task(data).load_dataset("test")


@pytest.fixture(scope="module")
def squad_set(tmp_path_factory):
    return write_squad(tmp_path_factory.mktemp("squad2"))


def squad_task(squad_set, **options):
    return Squad2Task.setup_task(Squad2Config(data=str(squad_set.folder), **{"seed": 3, **options}))


def test_a_batch_of_windows_goes_through_model_and_criterion(squad_set):
    task = squad_task(squad_set)
    model = task.build_model(Namespace(arch="fast_roberta_tiny", **SIZES))
    task.load_dataset("train")
    dataset = task.dataset("train")
    batch = dataset.__getitems__(dataset.batches(1, max_sentences=len(dataset))[0])
    assert 0 < batch["columns"]["has_answer"].sum() < len(dataset)
    scores = task.outputs(model, batch)
    assert scores.start.shape == scores.end.shape == batch["net_input"]["src_tokens"].shape
    assert scores.answerable.shape == (len(dataset),)
    loss, sample_size, _ = Squad2Criterion.build_criterion(Squad2CriterionConfig(), task)(model, batch)
    loss.backward()
    assert sample_size == len(dataset)
    assert model.heads["span_head"].span.weight.grad.abs().sum() > 0
    assert model.heads["span_head"].answerable.dense.weight.grad.abs().sum() > 0


def test_raw_outputs_of_windows_are_those_of_their_batches(squad_set):
    task = squad_task(squad_set)
    model = task.build_model(Namespace(arch="fast_roberta_tiny", **SIZES)).eval()
    split = squad_set.split("valid")
    found = run_model(model, task, split, max_tokens=100)
    assert len(found.start_logits) == len(found.end_logits) == len(found.answerable_logits) == len(split)
    for window in (0, len(split) - 1):
        tokens = torch.from_numpy(split.sequences[window].astype("int64"))[None]
        with torch.no_grad():
            expected, _ = model(tokens, **task.head_arguments)
        assert torch.allclose(torch.from_numpy(found.start_logits[window]), expected.start[0], atol=1e-5)
        assert torch.allclose(torch.from_numpy(found.end_logits[window]), expected.end[0], atol=1e-5)
        assert found.answerable_logits[window] == pytest.approx(expected.answerable.item(), abs=1e-5)


def test_packed_windows_are_refused(squad_set):
    with pytest.raises(ValueError, match="--pack-sequences does not go with --task squad2"):
        squad_task(squad_set, pack_sequences=True)


def test_a_split_without_answers_is_refused(tmp_path):
    raw = write_squad_raw(tmp_path / "raw")
    write_json(raw / "test-v2.0.json", [{"context": "xx good", "qas": [question("squad2", "q", None)]}])
    task = squad_task(write_squad(tmp_path, raw=raw))
    task.load_dataset("valid")
    with pytest.raises(ValueError, match="split 'test' has questions without `answers`"):
        task.load_dataset("test")


NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}


@pytest.fixture(scope="module")
def tagging_set(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagging")
    raw = write_tagging_raw(folder / "raw")
    (raw / "test.txt").write_text("good\n\nbad\nxyz\n")
    return write_tagging(folder, raw=raw)


def tagging_task(tagging_set, **options):
    return RobertaTaggingTask.setup_task(RobertaTaggingConfig(data=str(tagging_set.folder), **{"seed": 3, **options}))


def test_a_batch_of_tags_goes_through_model_and_criterion_padded_or_packed(tagging_set):
    losses, gradients = [], []
    for pack in (False, True):
        task = tagging_task(tagging_set, pack_sequences=pack)
        torch.manual_seed(0)
        model = task.build_model(Namespace(arch="fast_roberta_tiny", **SIZES, **NO_DROPOUT))
        task.load_dataset("train")
        dataset = task.dataset("train")
        batch = dataset.__getitems__(dataset.batches(1, max_sentences=9)[0])
        logits = task.outputs(model, batch)
        assert logits.shape == (*batch["net_input"]["src_tokens"].shape, 5)
        criterion = RobertaTaggingCriterion.build_criterion(LabelsConfig(), task)
        loss, sample_size, _ = criterion(model, batch)
        loss.backward()
        assert sample_size == (batch["token_labels"] >= 0).sum() > 9
        losses.append(loss.item())
        gradients.append(model.heads["token_head"].out_proj.weight.grad)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-5)


def test_raw_outputs_of_a_split_are_those_of_its_windows_and_survive_on_disk(tagging_set, tmp_path):
    task = tagging_task(tagging_set)
    model = task.build_model(Namespace(arch="fast_roberta_tiny", **SIZES, **NO_DROPOUT)).eval()
    split = tagging_set.split("valid")
    found = run_model(model, task, split, max_tokens=100)
    assert [len(logits) for logits in found.token_logits] == split.sequences.sizes.tolist()
    for window in (0, len(split) - 1):
        tokens = torch.from_numpy(split.sequences[window].astype("int64"))[None]
        with torch.no_grad():
            expected, _ = model(tokens, **task.head_arguments)
        assert torch.allclose(torch.from_numpy(found.token_logits[window]), expected[0], atol=1e-5)
    write_outputs(tmp_path, found, split)
    again = read_outputs(tmp_path, split)
    assert all(np.array_equal(*pair) for pair in zip(again.token_logits, found.token_logits, strict=True))
    assert read_outputs(tmp_path, tagging_set.split("test")) is None


def test_a_split_without_tags_is_refused(tagging_set):
    task = tagging_task(tagging_set)
    task.load_dataset("valid")
    with pytest.raises(ValueError, match="split 'test' has no tags, so there is no loss"):
        task.load_dataset("test")


def test_changed_tags_are_refused(tmp_path):
    tagging_set = write_tagging(tmp_path)
    path = tagging_set.folder / "train.token_labels.npy"
    labels = np.load(path)
    labels[labels == 4] = 5
    np.save(path, labels)
    with pytest.raises(ValueError, match=r"train\.token_labels\.npy was changed since it was made"):
        tagging_task(tagging_set).load_dataset("train")
