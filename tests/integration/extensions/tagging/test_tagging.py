"""The real `fairseq-train` on tagged words: it learns, its log has the official metrics, ranks make the same update."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from fairseq.tasks import TASK_REGISTRY

from roberta_plugin.extensions.tagging.training_options import RobertaTaggingConfig
from roberta_plugin.finetuning.benchmarks import kind_of
from roberta_plugin.models.config import sizes
from tests.tiny_benchmarks import official
from tests.tiny_corpus import finetune_command, logged, run, run_ranks
from tests.tiny_models import assert_one_step
from tests.tiny_models import options as options_of_model
from tests.tiny_tagging import write_prepared, write_raw

pytestmark = pytest.mark.integration

LENGTH = 24
METRICS = ("f1", "precision", "recall", "accuracy")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagging")
    raw = write_raw(folder / "raw", sizes={"train": 240, "valid": 60}, is_easy=True)
    return write_prepared(folder, raw=raw, max_length=LENGTH)


def train_command(data: Path, save_dir: Path, *options: str) -> list[str]:
    how = ("--max-positions", str(LENGTH), "--best-checkpoint-metric", "f1", "--maximize-best-checkpoint-metric")
    return finetune_command(data, save_dir, "roberta_tagging", *how, *options)


ADAMW = ("--lr", "3e-3", "--pooler-dropout", "0.1", "--batch-size", "16")


@pytest.fixture(scope="module")
def trained(prepared, tmp_path_factory):
    save_dir = tmp_path_factory.mktemp("trained") / "checkpoints"
    done = run(train_command(prepared.folder, save_dir, *ADAMW, "--max-epoch", "3", "--pack-sequences"))
    assert done.returncode == 0, done.stderr[-3000:]
    return save_dir


def test_it_learns_and_the_log_has_the_official_metrics(prepared, trained, tmp_path):
    found = official(prepared, trained / "checkpoint_last.pt", tmp_path)
    assert found["f1"] > 90, "a third of the words are in entities"
    record = logged(trained, "valid")[-1]
    assert {f"valid_{name}" for name in kind_of(prepared).selectable()} <= record.keys()
    assert {name: float(record[f"valid_{name}"]) for name in METRICS} == pytest.approx(
        {name: found[name] for name in METRICS}, abs=1e-3
    )
    assert official(prepared, trained / "checkpoint_last.pt", valid_sequences=True)["f1"] > 90
    lines = (tmp_path / "valid.predictions.conll").read_text().splitlines()
    assert {len(line.split(" ")) for line in lines if line} == {3}


def test_an_update_of_two_ranks_with_a_dummy_batch_is_that_of_a_plain_reference_in_float64(prepared, trained, tmp_path):
    """Five batches for two ranks that take three each: the mean over the labelled tokens of all of them.

    Two ranks validate an odd number of batches, and have the metrics of the whole split.
    """
    task = TASK_REGISTRY["roberta_tagging"].setup_task(
        RobertaTaggingConfig(data=str(prepared.folder), seed=3, max_positions=LENGTH)
    )
    task.load_dataset("train")
    dataset = task.dataset("train")
    size = -(-len(dataset) // 5)
    batches = [dataset.__getitems__(addresses) for addresses in dataset.batches(1, max_sentences=size)]
    assert len(batches) == 5 and len({batch["num_labels"] for batch in batches}) > 2

    options = ("--optimizer", "sgd", "--dropout", "0", "--attention-dropout", "0", "--max-update", "1")
    options += ("--weight-decay", "0", "--batch-size", str(size))
    windows = len(prepared.split("valid"))
    odd = next(size for size in range(9, windows) if -(-windows // size) % 2)
    start = trained / "checkpoint_last.pt"
    before = torch.load(start, weights_only=False)["model"]
    given = {"arch": "fast_roberta_tiny", "_name": "fast_roberta", "max_positions": LENGTH}
    model = task.build_model(options_of_model(**given, **sizes(2, 32, 64, 2))).double()
    model.load_state_dict(before)
    model.eval()
    total, number = torch.zeros((), dtype=torch.float64), 0
    for batch in batches:
        is_learned = batch["token_labels"] >= 0
        logits = model(**batch["net_input"], head="token_head")[0][is_learned]
        total = total + F.cross_entropy(logits, batch["token_labels"][is_learned], reduction="sum")
        number += int(is_learned.sum())
    (total / number).backward()
    for ranks, update_freq in ((1, 5), (2, 3)):
        end = tmp_path / f"ranks{ranks}"
        on = ("--lr", "1", "--update-freq", str(update_freq), "--batch-size-valid", str(odd))
        arguments = train_command(prepared.folder, end, *options, *on, "--finetune-from-model", str(start))
        if ranks == 1:
            done = run(arguments)
            assert done.returncode == 0, done.stderr[-3000:]
        else:
            run_ranks(arguments, ranks)
        after = torch.load(end / "checkpoint_last.pt", weights_only=False)["model"]
        unlearned = assert_one_step(model, before, after)
        assert unlearned and all(name.startswith("encoder.lm_head.") for name in unlearned)
        found, record = official(prepared, end / "checkpoint_last.pt"), logged(end, "valid")[-1]
        assert {name: float(record[f"valid_{name}"]) for name in METRICS} == pytest.approx(
            {name: found[name] for name in METRICS}, abs=1e-3
        )
        assert found["f1"] > 0
    assert model.heads["token_head"].out_proj.weight.grad.abs().max() > 1e-3
