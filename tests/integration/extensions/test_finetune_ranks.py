"""The real `fairseq-train` of the applications on two ranks: stopped in mid-epoch, resumed, validated."""

import time

import numpy as np
import pytest
import torch

from roberta_plugin.conversion.convert import ExportSettings, export_model
from roberta_plugin.finetuning.benchmarks import benchmark_of, options_for
from roberta_plugin.finetuning.preparation import PrepareSettings, prepare
from tests import tiny_race, tiny_squad, tiny_summaries, tiny_superglue, tiny_tables, tiny_tagging
from tests.conftest import REPOSITORY
from tests.forked_training import ForkedTrainings
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_corpus import command, environment, logged, rank_commands, run_ranks

pytestmark = pytest.mark.integration

SIZES = ("--encoder-layers", "2", "--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "64")
SHAPE = ("--batch-size", "1", "--update-freq", "3", "--max-epoch", "2")
EXAMPLES = {"train": 130, "valid": 23}  # an odd number of batches for two ranks
TIMES = {"valid_wps", "train_wall", "wall"}


def prepared_of(task, folder):
    raw, options = folder / "raw", {}
    if task == "summaries":
        tiny_summaries.write_raw(raw, sizes=EXAMPLES)
    elif task == "tagging":
        tiny_tagging.write_raw(raw, sizes=EXAMPLES)
    elif task == "custom":
        raw.mkdir()
        for seed, (split, number) in enumerate(EXAMPLES.items()):
            options[split] = str(raw / f"{split}.jsonl")
            tiny_tables.write_json_lines(raw / f"{split}.jsonl", tiny_tables.rows_of("multi-label", number, seed=seed))
        options["kind"] = "multi-label"
    elif task == "race":
        tiny_race.write_race(raw, train=65, dev=EXAMPLES["valid"])
        options["question_length"] = "20"
    elif task == "squad2":
        tiny_squad.write_raw(raw, sizes={"train": 130, "dev": EXAMPLES["valid"]})
        options |= {"question_length": "8", "doc_stride": "10"}
    else:
        tiny_superglue.write_task(raw, task, train=260, dev=EXAMPLES["valid"])
    tokenizer = write_tokenizer(folder / "tokenizer")
    where = {"raw": raw, "tokenizer": tokenizer, "output_dir": folder / "data", "max_length": 64}
    return prepare(PrepareSettings(task=task, options=options_for(task, options), **where))


def train_command(prepared, save_dir, *options, lr="1e-3"):
    recipe = benchmark_of(prepared.task).recipe(prepared)
    own = {name: value for name, value in recipe.train.items() if name not in ("optimizer", "lr-scheduler")}
    flags = [word for name, value in own.items() for word in (f"--{name}", *([value] if value != "true" else []))]
    return [
        *command("fairseq-train"),
        *(str(prepared.folder), "--user-dir", str(REPOSITORY / "roberta_plugin"), "--cpu", "--seed", "3"),
        *("--arch", "fast_roberta_tiny", *SIZES, "--encoder-attention-heads", "2", "--max-positions", "64"),
        *("--optimizer", "roberta_adamw", "--lr", lr, "--lr-scheduler", "fixed", "--bf16", *flags),
        *("--best-checkpoint-metric", recipe.metric["value"], "--maximize-best-checkpoint-metric"),
        *("--save-dir", str(save_dir), "--no-epoch-checkpoints", "--log-format", "json", "--log-interval", "1"),
        *("--log-file", f"{save_dir}.log", *options),
    ]


def stop_in_mid_epoch(arguments, save_dir, update):
    """Two ranks, of which the second gets SIGTERM; the update that was saved."""
    ranks = ForkedTrainings(rank_commands(arguments, 2), cwd=REPOSITORY, environment=environment())
    try:
        deadline = time.monotonic() + 120
        while not any(int(record["num_updates"]) >= update for record in logged(save_dir, "train_inner")):
            assert time.monotonic() < deadline and ranks.codes() is None
            time.sleep(0.005)
        ranks.processes[1].terminate()
        assert ranks.codes(timeout=120) == [143, 143]
    finally:
        ranks.kill()
    state = torch.load(save_dir / "checkpoint_last.pt", weights_only=False)
    return state["optimizer_history"][-1]["num_updates"]


def validations(save_dir):
    return [
        {name: value for name, value in record.items() if name not in TIMES} for record in logged(save_dir, "valid")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["summaries", "tagging", "WSC", "custom", "race", "squad2"])
def test_a_run_that_was_stopped_ends_with_the_bits_of_an_undisturbed_one_and_ranks_agree_on_metrics(task, tmp_path):
    prepared = prepared_of(task, tmp_path)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run_ranks(train_command(prepared, whole, *SHAPE), 2)
    num_updates = int(logged(whole, "train_inner")[-1]["num_updates"])
    saved = stop_in_mid_epoch(train_command(prepared, cut, *SHAPE), cut, num_updates // 4)
    assert saved % (num_updates // 2) > 0
    run_ranks(train_command(prepared, cut, *SHAPE), 2)
    expected, found = (torch.load(each / "checkpoint_last.pt", weights_only=False)["model"] for each in (whole, cut))
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert validations(cut) == validations(whole)

    if task != "summaries":
        theirs = ExportSettings(checkpoint=whole / "checkpoint_last.pt", to="huggingface", output_dir=tmp_path / "hf")
        assert (export_model(theirs).folder / "model.safetensors").is_file()

    # An update that changes nothing, and the validation of the same parameters in other batches on other ranks.
    same = ("--finetune-from-model", str(whole / "checkpoint_last.pt"), "--max-update", "1")
    for ranks, size in ((1, "2"), (2, "3")):
        run_ranks(train_command(prepared, tmp_path / f"{ranks}", "--batch-size", size, *same, lr="0"), ranks)
    names = [name for name in validations(whole)[-1] if name.startswith("valid_")]
    names = [name for name in names if name not in ("valid_wpb", "valid_bsz", "valid_padding", "valid_num_updates")]
    one, two = (validations(tmp_path / f"{ranks}")[-1] for ranks in (1, 2))
    for name in set(names) & one.keys():
        assert float(two[name]) == pytest.approx(float(one[name]), abs=2e-3, rel=2e-3), name


def test_negatives_of_all_ranks_train_the_weights_of_one_rank_with_the_whole_batch(tmp_path):
    """34 pairs in updates of 8, so that the last one leaves a rank without examples."""
    rows = tiny_tables.rows_of("embedding", 50)
    tables = {"train": rows[:34], "valid": rows[34:]}
    for name, part in tables.items():
        tiny_tables.write_csv(tmp_path / f"{name}.csv", part)
    options = options_for(
        "custom",
        {"kind": "embedding", "text_pair_column": "pair", **{name: str(tmp_path / f"{name}.csv") for name in tables}},
    )
    where = {"raw": tmp_path, "tokenizer": write_tokenizer(tmp_path / "tokenizer"), "output_dir": tmp_path / "data"}
    prepared = prepare(PrepareSettings(task="custom", options=options, max_length=64, **where))
    found, updates = {}, {}
    for ranks, size in ((1, "8"), (2, "4")):
        save_dir = tmp_path / f"{ranks}"
        shape = ("--batch-size", size, "--max-epoch", "2", "--mini-batch-size", "3")
        arguments = train_command(prepared, save_dir, *shape)
        arguments = [word for word in arguments if word != "--bf16"]
        arguments += ["--dropout", "0", "--attention-dropout", "0"]
        run_ranks(arguments, ranks)
        found[ranks] = torch.load(save_dir / "checkpoint_last.pt", weights_only=False)["model"], validations(save_dir)
        updates[ranks] = [
            [float(record[name]) for name in ("loss", "gnorm", "bsz")] for record in logged(save_dir, "train_inner")
        ]
    assert len(updates[1]) == 10 and updates[1][0][1] > 0.1
    np.testing.assert_allclose(updates[2], updates[1], rtol=1e-3)
    (one, its_log), (two, other_log) = found.values()
    for name, value in one.items():
        if "lm_head" not in name:  # without a gradient, which legacy_ddp replaces by zeros, it does not decay
            torch.testing.assert_close(two[name], value, rtol=1e-4, atol=2e-6)
    for name in ("valid_mrr", "valid_recall@1", "valid_recall@5"):
        assert [record[name] for record in its_log] == [record[name] for record in other_log]
