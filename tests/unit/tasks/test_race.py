"""The multiple-choice task: its head, what it refuses, and how it watches for a run that learns nothing."""

import logging
import math
from argparse import Namespace

import numpy as np
import pytest
import torch
from fairseq.logging import metrics

from roberta_plugin.criterions.race import RaceCriterion
from roberta_plugin.finetuning.race.degenerate_run import DEFAULT_PATIENCE
from roberta_plugin.tasks.finetuning_tasks import RaceConfig, RaceTask
from tests.tiny_race import write_lines, write_race
from tests.unit.finetuning.race.test_prepare import prepared_of

SIZES = {"encoder_layers": 1, "encoder_embed_dim": 8, "encoder_ffn_embed_dim": 8, "encoder_attention_heads": 2}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("race")
    return prepared_of("race", write_race(folder / "raw", train=16, dev=4), folder / "set").folder


def make_task(data, **options):
    return RaceTask.setup_task(RaceConfig(data=str(data), **{"seed": 3, **options}))


@pytest.mark.parametrize("arch", ["fast_roberta_tiny", "roberta_base"])
def test_all_options_of_a_batch_go_through_the_model_at_once(prepared, arch):
    task = make_task(prepared, classification_head_name="choice")
    model = task.build_model(Namespace(arch=arch, **SIZES)).eval()
    task.load_dataset("train")
    dataset = task.dataset("train")
    batch = dataset.__getitems__(dataset.batches(1, max_sentences=5)[0])
    assert batch["net_input"]["src_tokens"].size(0) == 20
    scores, _ = model(**batch["net_input"], **task.head_arguments)
    assert scores.shape == (20, 1)
    loss, sample_size, log = RaceCriterion.build_criterion(Namespace(), task)(model, batch)
    assert sample_size == 5 == log["num_counted"]
    expected = torch.nn.functional.cross_entropy(scores.view(5, 4), batch["columns"]["label"], reduction="sum")
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_packed_rows_have_the_same_loss(prepared):
    losses = []
    for pack in (False, True):
        task = make_task(prepared, pack_sequences=pack, pad_to_multiple=8)
        torch.manual_seed(0)
        model = task.build_model(Namespace(arch="fast_roberta_tiny", **SIZES)).eval()
        task.load_dataset("train")
        dataset = task.dataset("train")
        batch = dataset.__getitems__([(1, index) for index in (3, 0, 7)])
        loss, _, _ = RaceCriterion.build_criterion(Namespace(), task)(model, batch)
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_split_without_answers_is_refused(tmp_path):
    entries = [{"id": str(n), "context": "x", "question": "y", "options": ["a", "b"]} for n in range(3)]
    entries[1]["answer"] = 0
    write_lines(tmp_path / "raw/test.jsonl", entries)
    data = prepared_of("multiple_choice", tmp_path / "raw", tmp_path / "set").folder
    with pytest.raises(ValueError, match=r"the split 'test' has 2 of 3 questions without an answer"):
        make_task(data).load_dataset("test")


def test_a_negative_patience_is_refused(prepared):
    with pytest.raises(ValueError, match=r"--degenerate-patience must be a number of updates, or 0 .* got -1"):
        make_task(prepared, degenerate_patience=-1)


def at_chance(training=True):
    sums = {"loss": torch.tensor(16 * math.log(4)), "sample_size": 16, "num_correct": torch.tensor(4)}
    sums |= {"num_counted": 16, "ntokens": 90, "npositions": 100, "nsentences": 16}
    chance = {"chance_loss": 16 * math.log(4), "chance_correct": 4.0, "chance_variance": 3.0}
    return {**sums, **(chance if training else {})}


def log_updates(task, outputs):
    criterion = RaceCriterion(task)
    with metrics.aggregate(new_root=True):
        for output in outputs:
            task.reduce_metrics([output], criterion)


def test_a_run_at_chance_is_warned_about_once_a_window(prepared, caplog):
    with caplog.at_level(logging.WARNING):
        log_updates(make_task(prepared, degenerate_patience=10), [at_chance()] * 25)
    assert caplog.text.count("stuck at chance: over the last 10 updates the mean loss was 1.3863") == 2


def test_a_run_at_chance_can_be_stopped(prepared):
    task = make_task(prepared, degenerate_patience=10, degenerate_action="stop")
    log_updates(task, [at_chance()] * 9)
    with pytest.raises(RuntimeError, match="stuck at chance"):
        log_updates(task, [at_chance()])


def test_validation_is_not_watched_and_zero_switches_the_watch_off(prepared, caplog):
    with caplog.at_level(logging.WARNING):
        log_updates(make_task(prepared, degenerate_patience=10), [at_chance(training=False)] * 50)
        log_updates(make_task(prepared, degenerate_patience=0), [at_chance()] * 50)
    assert "stuck" not in caplog.text


def test_sums_of_several_ranks_count_as_one_update(prepared, caplog):
    task = make_task(prepared, degenerate_patience=10)
    criterion = RaceCriterion(task)
    with caplog.at_level(logging.WARNING), metrics.aggregate(new_root=True):
        for _ in range(9):
            task.reduce_metrics([at_chance(), at_chance()], criterion)
        assert "stuck" not in caplog.text
        assert task.watch.window.questions == 9 * 32
        task.reduce_metrics([at_chance(), at_chance()], criterion)
    assert "stuck" in caplog.text


def test_the_default_patience_is_longer_than_the_papers_warm_up(prepared):
    task = make_task(prepared)
    assert task.watch.patience == DEFAULT_PATIENCE > 1.5 * np.ceil(0.06 * 21968)
