"""The multiple-choice task: its head and what it refuses."""

from argparse import Namespace

import pytest
import torch

from roberta_plugin.criterions.finetuning import RaceCriterion
from roberta_plugin.tasks.finetuning import FineTuningConfig, RaceTask
from tests.tiny_race import write_lines, write_race
from tests.unit.finetuning.race.test_prepare import prepared_of

SIZES = {"encoder_layers": 1, "encoder_embed_dim": 8, "encoder_ffn_embed_dim": 8, "encoder_attention_heads": 2}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("race")
    return prepared_of("race", write_race(folder / "raw", train=16, dev=4), folder / "set").folder


def make_task(data, **options):
    return RaceTask.setup_task(FineTuningConfig(data=str(data), **{"seed": 3, **options}))


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
    loss, sample_size, _ = RaceCriterion.build_criterion(Namespace(), task)(model, batch)
    assert sample_size == 5
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
