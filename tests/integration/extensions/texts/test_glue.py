"""GLUE from raw files to the metric with the real commands, for every kind of task, and on two ranks."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from roberta_plugin.experiments.evaluation import EvaluateSettings, evaluate
from roberta_plugin.finetuning.benchmarks import kind_of
from roberta_plugin.finetuning.prepared import Prepared
from tests.tiny_benchmarks import prepared_of, write_tokenizer
from tests.tiny_corpus import command, finetune_command, logged, run, run_ranks
from tests.tiny_glue import write_task

pytestmark = pytest.mark.integration

# What is logged, and what it must rise above: the majority, or no correlation.
METRICS = {"SST-2": ("accuracy", 60.0), "STS-B": ("pearson_spearman", 0.0), "QNLI-ranking": ("accuracy", 50.0)}
METRICS["WNLI"] = ("accuracy", 50.0)
EPOCHS = {"SST-2": 8, "STS-B": 8, "QNLI-ranking": 8, "WNLI": 20}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("glue")
    found = {}
    for task in METRICS:
        raw = write_task(folder / "raw" / task, task.removesuffix("-ranking"))
        found[task] = prepared_of(task, raw, folder / task, max_length=128).folder
    return found


@pytest.fixture(scope="module")
def trained(folders, tmp_path_factory) -> Callable[..., Path]:
    """Train on a task, once a module; the checkpoints' folder."""

    @cache
    def train(task: str, arch: str = "fast_roberta_tiny") -> Path:
        save_dir = tmp_path_factory.mktemp(task) / "checkpoints"
        total = str(EPOCHS[task] * -(-len(Prepared.open(folders[task]).split("train")) // 16))
        options = ("--best-checkpoint-metric", METRICS[task][0], "--maximize-best-checkpoint-metric")
        options += ("--total-num-update", total, "--max-update", total)
        done = run(train_command(folders[task], save_dir, *options, arch=arch))
        assert done.returncode == 0, done.stderr[-3000:]
        return save_dir

    return train


def test_roberta_prepare_writes_what_the_suite_writes(folders, tmp_path):
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    raw = folders["WNLI"].parent / "raw" / "WNLI"
    options = ("--raw", str(raw), "--tokenizer", str(tokenizer), "--output-dir", str(tmp_path / "WNLI"))
    done = run([*command("roberta"), "prepare", "WNLI", *options, "--max-length", "128"])
    assert done.returncode == 0, done.stderr[-3000:]
    assert "train: 120 examples" in done.stdout
    names = sorted(path.name for path in folders["WNLI"].iterdir())
    assert names == sorted(path.name for path in (tmp_path / "WNLI").iterdir())
    assert all((folders["WNLI"] / name).read_bytes() == (tmp_path / "WNLI" / name).read_bytes() for name in names)


def train_command(data: Path, save_dir: Path, *options: str, arch: str = "fast_roberta_tiny") -> list[str]:
    """A run of seconds."""
    how = ("--arch", arch, "--encoder-layers", "1", "--max-positions", "128", "--batch-size", "16")
    how += ("--lr-scheduler", "polynomial_decay", "--lr", "3e-3", "--warmup-updates", "5")
    how += ("--dropout", "0", "--attention-dropout", "0", "--pooler-dropout", "0")
    return finetune_command(data, save_dir, "roberta_sentence_prediction", *how, *options)


OF_FAIRSEQ = pytest.param("WNLI", "roberta", marks=pytest.mark.slow)  # by default: test_race
# the loss, its gradient and the validation of every kind: unit/finetuning/benchmarks/test_benchmarks.py
OTHERS = [pytest.param(task, "fast_roberta_tiny", marks=pytest.mark.slow) for task in ("SST-2", "STS-B", "WNLI")]


@pytest.mark.parametrize(("task", "arch"), [("QNLI-ranking", "fast_roberta_tiny"), *OTHERS, OF_FAIRSEQ])
def test_the_metric_rises_above_the_majority_and_evaluation_agrees(folders, trained, tmp_path, task, arch):
    metric, baseline = METRICS[task]
    save_dir = trained(task, arch)
    logs = {name.removeprefix("valid_") for name in logged(save_dir, "valid")[-1]}
    assert logs >= set(kind_of(Prepared.open(folders[task])).selectable())
    values = [float(record[f"valid_{metric}"]) for record in logged(save_dir, "valid")]
    assert len(values) == EPOCHS[task], "an epoch has another number of updates than the recipe counts with"
    assert max(values) > baseline + 25, values

    prepared = Prepared.open(folders[task])
    checkpoints = [save_dir / "checkpoint_best.pt"]
    settings = EvaluateSettings(data=prepared.folder, checkpoints=checkpoints, output_dir=tmp_path, device="cpu")
    valid, test = evaluate(settings)
    assert valid.ensemble[metric] == pytest.approx(max(values), abs=2e-3)
    assert (test.split, test.ensemble) == ("test", {})
    assert len((tmp_path / f"{task.removesuffix('-ranking')}.tsv").read_text().splitlines()) == 21


@pytest.mark.parametrize(
    ("task", "names"),
    [
        pytest.param("SST-2", ("accuracy", "f1", "mcc", "acc_and_f1", "loss"), marks=pytest.mark.slow),
        ("QNLI-ranking", ("accuracy", "f1", "mcc", "loss")),
    ],
)
def test_two_ranks_validate_as_one_does(folders, trained, tmp_path, task, names):
    """Seven batches on two ranks: one rank gets a dummy batch at the end, which must not count.

    QNLI is the harder case: whether a sentence is the best of its question is known only when both ranks are done.
    """
    save_dir = trained(task)
    best = max(float(record[f"valid_{METRICS[task][0]}"]) for record in logged(save_dir, "valid"))
    *_, alone = (record for record in logged(save_dir, "valid") if float(record[f"valid_{METRICS[task][0]}"]) == best)
    assert 60 < best < 100, "where all is right, or nothing, there is little to compare"
    assert -(-len(Prepared.open(folders[task]).split("valid")) // 9) % 2 == 1
    together = tmp_path / "ensemble"
    options = ("--finetune-from-model", str(save_dir / "checkpoint_best.pt"), "--batch-size-valid", "9")
    options += ("--lr", "0", "--max-update", "1", "--total-num-update", "8")
    run_ranks(train_command(folders[task], together, *options), 2)
    found = logged(together, "valid")[-1]
    for name in names:
        assert float(found[f"valid_{name}"]) == pytest.approx(float(alone[f"valid_{name}"]), abs=2e-3), name
