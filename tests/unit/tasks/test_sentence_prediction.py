"""The task: heads by the kind of the folder, and scores from our models and fairseq's."""

from argparse import Namespace

import pytest
import torch

from roberta_plugin.tasks.finetuning import FineTuningConfig
from roberta_plugin.tasks.finetuning_tasks import RobertaSentencePredictionTask
from tests.tiny_benchmarks import prepared_of, write_prepared
from tests.tiny_glue import write_task

SIZES = {"encoder_layers": 1, "encoder_embed_dim": 8, "encoder_ffn_embed_dim": 8, "encoder_attention_heads": 2}
TASKS = ("SST-2", "STS-B", "QNLI-ranking", "WNLI")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("glue")
    found = {}
    for task in TASKS:
        raw = write_task(folder / task, task.removesuffix("-ranking"), train=16, dev=6, test=4)
        found[task] = prepared_of(task, raw, folder / "sets" / task).folder
    return found


def make_task(data, **options):
    config = FineTuningConfig(data=str(data), **{"seed": 3, "max_positions": 64, **options})
    return RobertaSentencePredictionTask.setup_task(config)


def make_model(task, arch, *, seed=0):
    torch.manual_seed(seed)
    return task.build_model(Namespace(arch=arch, **SIZES)).eval()


def first_batch(task, split="train"):
    task.load_dataset(split)
    dataset = task.dataset(split)
    return dataset.__getitems__(dataset.batches(1, max_sentences=5)[0])


@pytest.mark.parametrize("arch", ["fast_roberta_tiny", "roberta_base"])
@pytest.mark.parametrize("name", TASKS)
def test_every_sequence_gets_the_scores_of_its_kind(folders, name, arch):
    task = make_task(folders[name])
    model = make_model(task, arch)
    heads = {"SST-2": 2, "STS-B": 1, "QNLI-ranking": 1, "WNLI": 0}[name]
    found = {key: head.out_proj.out_features for key, head in model.classification_heads.items()}
    assert found == ({"sentence_classification_head": heads} if heads else {})
    batch = first_batch(task)
    scores = task.outputs(model, batch)
    assert scores.shape == (len(batch["net_input"]["src_lengths"]), max(heads, 1))
    assert scores.std() > 0


@pytest.mark.parametrize("name", TASKS)
def test_packed_rows_have_the_scores_of_padded_ones(folders, name):
    scores = []
    for pack in (False, True):
        task = make_task(folders[name], pack_sequences=pack, pad_to_multiple=8)
        task.load_dataset("train")
        dataset = task.dataset("train")
        batch = dataset.__getitems__([(0, example) for example in range(6)])
        assert ("packing" in batch["net_input"]) == pack
        scores.append(task.outputs(make_model(task, "fast_roberta_tiny"), batch))
    torch.testing.assert_close(scores[0], scores[1], rtol=1e-4, atol=1e-5)


def test_a_folder_of_another_suite_is_refused(tmp_path):
    write_prepared(tmp_path / "race", task="race")
    with pytest.raises(ValueError, match="prepared for race: give --task race, not roberta_sentence_prediction"):
        make_task(tmp_path / "race")
