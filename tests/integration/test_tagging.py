"""The real `fairseq-train` on tagged words: it learns, its log has the official metrics, ranks make the same update."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from roberta_plugin.experiments.inference import load_model, run_model
from roberta_plugin.finetuning.options import TaggingOptions
from roberta_plugin.finetuning.tagging import benchmark
from roberta_plugin.tasks.tagging import RobertaTaggingConfig, RobertaTaggingTask
from tests.conftest import REPOSITORY
from tests.tiny_corpus import command, logged, run, run_ranks
from tests.tiny_models import options as options_of_model
from tests.tiny_tagging import write_prepared, write_raw

pytestmark = pytest.mark.integration

LENGTH = 24
METRICS = ("f1", "precision", "recall", "accuracy")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagging")
    raw = write_raw(folder / "raw", sizes={"train": 240, "valid": 60})
    return write_prepared(folder, raw=raw, max_length=LENGTH)


def train_command(data: Path, save_dir: Path, *options: str) -> list[str]:
    return [
        *command("fairseq-train"),
        str(data),
        *("--user-dir", str(REPOSITORY / "roberta_plugin"), "--cpu", "--seed", "3"),
        *("--task", "roberta_tagging", "--criterion", "roberta_tagging", "--arch", "fast_roberta_tiny"),
        *("--encoder-layers", "2", "--encoder-embed-dim", "32"),
        *("--encoder-ffn-embed-dim", "64", "--encoder-attention-heads", "2", "--max-positions", str(LENGTH)),
        *("--required-batch-size-multiple", "1", "--clip-norm", "0.0", "--lr-scheduler", "fixed"),
        *("--best-checkpoint-metric", "f1", "--maximize-best-checkpoint-metric", "--no-epoch-checkpoints"),
        *("--save-dir", str(save_dir), "--log-format", "json", "--log-interval", "10"),
        *("--log-file", str(save_dir) + ".log"),
        *options,
    ]


ADAMW = ("--optimizer", "roberta_adamw", "--lr", "3e-3", "--pooler-dropout", "0.1", "--batch-size", "16")


def official(prepared, save_dir, folder=None, **options):
    """Metrics of the last checkpoint."""
    model, task = load_model(save_dir / "checkpoint_last.pt", prepared)
    outputs = run_model(model, task, prepared.split("valid"))
    chosen = TaggingOptions(**options)
    return benchmark.score("tagging", prepared, "valid", [outputs], folder=folder, options=chosen)


def test_it_learns_and_the_log_has_the_official_metrics(prepared, tmp_path):
    save_dir = tmp_path / "checkpoints"
    done = run(train_command(prepared.folder, save_dir, *ADAMW, "--max-epoch", "6", "--pack-sequences"))
    assert done.returncode == 0, done.stderr[-3000:]
    found = official(prepared, save_dir, tmp_path)
    assert found["f1"] > 90, "a run of good words is an entity, and a third of the words are in one"
    record = logged(save_dir, "valid")[-1]
    assert {name: float(record[f"valid_{name}"]) for name in METRICS} == pytest.approx(
        {name: found[name] for name in METRICS}, abs=1e-3
    )
    assert official(prepared, save_dir, valid_sequences=True)["f1"] > 90
    lines = (tmp_path / "valid.predictions.conll").read_text().splitlines()
    assert {len(line.split(" ")) for line in lines if line} == {3}


def test_two_ranks_see_the_same_metrics(prepared, tmp_path):
    """An odd number of batches for 2 ranks: one of them gets a batch that must not count."""
    save_dir = tmp_path / "checkpoints"
    windows = len(prepared.split("valid"))
    size = next(size for size in range(9, windows) if -(-windows // size) % 2)
    options = (*ADAMW, "--max-update", "20", "--batch-size-valid", str(size))
    run_ranks(train_command(prepared.folder, save_dir, *options), 2)
    found, record = official(prepared, save_dir), logged(save_dir, "valid")[-1]
    assert {name: float(record[f"valid_{name}"]) for name in METRICS} == pytest.approx(
        {name: found[name] for name in METRICS}, abs=1e-3
    )


def test_an_update_of_two_ranks_with_a_dummy_batch_is_that_of_a_plain_reference_in_float64(prepared, tmp_path):
    """Five batches for two ranks that take three each: the mean over the labelled tokens of all of them."""
    task = RobertaTaggingTask.setup_task(RobertaTaggingConfig(data=str(prepared.folder), seed=3, max_positions=LENGTH))
    task.load_dataset("train")
    dataset = task.dataset("train")
    size = -(-len(dataset) // 5)
    batches = [dataset.__getitems__(addresses) for addresses in dataset.batches(1, max_sentences=size)]
    assert len(batches) == 5 and len({batch["num_labels"] for batch in batches}) > 2

    options = ("--optimizer", "sgd", "--dropout", "0", "--attention-dropout", "0", "--max-update", "1")
    options += ("--weight-decay", "0", "--batch-size", str(size), "--disable-validation")
    start = tmp_path / "start"
    done = run(train_command(prepared.folder, start, *options, "--lr", "0"))
    assert done.returncode == 0, done.stderr[-3000:]
    before = torch.load(start / "checkpoint_last.pt", weights_only=False)["model"]
    model = task.build_model(
        options_of_model(
            arch="fast_roberta_tiny",
            _name="fast_roberta",
            encoder_layers=2,
            encoder_embed_dim=32,
            encoder_ffn_embed_dim=64,
            encoder_attention_heads=2,
            max_positions=LENGTH,
        )
    ).double()
    model.load_state_dict(before)
    model.eval()
    total, number = torch.zeros((), dtype=torch.float64), 0
    for batch in batches:
        is_learned = batch["token_labels"] >= 0
        logits = model(**batch["net_input"], token_head_name="token_head")[0][is_learned]
        total = total + F.cross_entropy(logits, batch["token_labels"][is_learned], reduction="sum")
        number += int(is_learned.sum())
    (total / number).backward()
    for ranks, update_freq in ((1, 5), (2, 3)):
        end = tmp_path / f"ranks{ranks}"
        on = (
            "--lr",
            "1",
            "--update-freq",
            str(update_freq),
            "--finetune-from-model",
            str(start / "checkpoint_last.pt"),
        )
        arguments = train_command(prepared.folder, end, *options, *on)
        if ranks == 1:
            done = run(arguments)
            assert done.returncode == 0, done.stderr[-3000:]
        else:
            run_ranks(arguments, ranks)
        after = torch.load(end / "checkpoint_last.pt", weights_only=False)["model"]
        for name, parameter in model.named_parameters():
            if name.startswith("encoder.lm_head.") and parameter.grad is None:
                continue
            change = (before[name] - after[name]).double()
            torch.testing.assert_close(
                change, parameter.grad, atol=2e-6, rtol=1e-4, msg=lambda text, n=name: f"{n}: {text}"
            )
    assert model.token_heads["token_head"].out_proj.weight.grad.abs().max() > 1e-3


def test_the_commands_from_files_to_results(tmp_path):
    """`roberta finetune` on JSON Lines with tags of IOBES, then `roberta predict`, `export` and `import`."""
    raw = write_raw(tmp_path / "columns", sizes={"train": 60, "valid": 20}, scheme="iobes")
    (tmp_path / "raw").mkdir()
    for split in ("train", "valid"):
        blocks = (raw / f"{split}.txt").read_text().split("\n\n")
        rows = [[line.split(" ") for line in block.strip().split("\n")] for block in blocks]
        records = [{"words": [row[0] for row in block], "ner": [row[2] for row in block]} for block in rows]
        (tmp_path / "raw" / f"{split}.jsonl").write_text("\n".join(map(json.dumps, records)))
    data = write_prepared(tmp_path, raw=raw)
    start = tmp_path / "start"
    done = run(train_command(data.folder, start, *ADAMW, "--max-update", "1", "--disable-validation"))
    assert done.returncode == 0, done.stderr[-3000:]
    words = ["finetune", "tagging", "--raw", tmp_path / "raw", "--tokenizer", data.folder, "--tags-column", "ner"]
    words += [
        "--model",
        start / "checkpoint_last.pt",
        "--output-dir",
        tmp_path / "runs",
        "--seeds",
        "1",
        "--epochs",
        "4",
    ]
    words += ["--only", "lr=2e-3", "--only", "batch=16", "--doc-stride", "8"]
    done = run([*command("roberta"), *map(str, words)])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "| tagging | valid | f1 |" in done.stdout
    assert (tmp_path / "runs" / "results" / "valid.report.txt").read_text().startswith("processed ")
    (tmp_path / "in.jsonl").write_text('{"text": "xyz good good, bad"}\n{"words": ["good", "qqq"]}\n')
    words = ["predict", tmp_path / "runs", "--input", tmp_path / "in.jsonl", "--no-progress"]
    done = run([*command("roberta"), *map(str, words)])
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["words"] for answer in found] == [["xyz", "good", "good", ",", "bad"], ["good", "qqq"]]
    assert all(len(answer["tags"]) == len(answer["words"]) and "entities" in answer for answer in found)
