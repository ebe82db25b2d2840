"""From a recipe and a measured speed to what the planner needs."""

import json
from pathlib import Path

import pytest

from roberta_plugin.launch.recipe import LaunchSettings
from roberta_plugin.planner.flops import PAPER_VOCABULARY, flops_per_token
from roberta_plugin.planner.inputs import speed_in_log, training_of, vocabulary_size
from tests.nodes import DGX_1

V100 = DGX_1
OPTIONS = {
    "--task": "roberta_masked_lm",
    "--criterion": "roberta_masked_lm",
    "--arch": "fast_roberta_small",
    "--encoder-ffn-embed-dim": "1000",
    "--tokens-per-sample": "256",
    "--mask-prob": "0.2",
    "--batch-size": "16",
    "--optimizer": "roberta_adamw",
    "--lr-scheduler": "polynomial_decay",
    "--total-num-update": "1000",
    "--max-update": "1000",
}


def recipe(*extra, nodes=2, batch_sequences=512, without=(), data="no-such-data"):
    words = [word for pair in OPTIONS.items() if pair[0] not in without for word in pair]
    return LaunchSettings(
        output_dir=Path("runs/x"),
        train=(data, *words, *extra),
        nodes=nodes,
        gpus_per_node=8,
        batch_sequences=batch_sequences,
    )


def test_the_recipe_says_what_is_trained():
    training = training_of(recipe("--bf16"), machine=V100, tokens_per_second=5000)
    shape = training.shape
    assert (shape.num_layers, shape.dim, shape.ffn_dim, shape.num_heads) == (4, 512, 1000, 8)
    assert (shape.tokens_per_sample, shape.max_positions, shape.predicted_share) == (256, 256, 0.2)
    assert shape.vocab_size == PAPER_VOCABULARY
    assert (training.batch_sequences, training.most_per_gpu, training.num_updates) == (512, 16, 1000)
    assert training.tokens_per_second == 5000
    assert (training.precision.is_half, training.precision.is_memory_efficient) == (True, False)
    assert training.has_dropout
    assert not training.recompute
    assert not training.has_eager_attention


def test_the_batch_is_the_same_for_any_number_of_gpus_in_the_recipe():
    one, two = (training_of(recipe(nodes=nodes), machine=V100, tokens_per_second=1) for nodes in (1, 4))
    assert one == two
    by_hand = training_of(recipe("--update-freq", "3", batch_sequences=None), machine=V100, tokens_per_second=1)
    assert by_hand.batch_sequences == 16 * 3 * 16


def test_options_that_cost_memory_or_save_it():
    extra = ("--memory-efficient-fp16", "--dropout", "0", "--checkpoint-activations", "--attention-backend", "eager")
    training = training_of(recipe(*extra), machine=V100, tokens_per_second=1)
    assert training.precision.is_memory_efficient
    assert training.precision.state_size == 16
    by_fairseq = recipe(*extra, "--optimizer", "adam")
    assert training_of(by_fairseq, machine=V100, tokens_per_second=1).precision.state_size == 12
    assert not training.has_dropout
    assert training.recompute
    assert training.has_eager_attention
    assert not training_of(recipe(), machine=V100, tokens_per_second=1).precision.is_half
    assert training.overlaps
    assert not training_of(recipe("--ddp-backend", "legacy_ddp"), machine=V100, tokens_per_second=1).overlaps


def test_a_utilization_is_a_share_of_the_peak():
    training = training_of(recipe(), machine=V100, utilization=0.5)
    assert training.tokens_per_second * flops_per_token(training.shape) == pytest.approx(62.5e12)


@pytest.mark.parametrize(
    ("changes", "speed", "message"),
    [
        ({}, {}, "one of --tokens-per-second, --log"),
        ({}, {"tokens_per_second": 1, "utilization": 0.5}, "one of --tokens-per-second"),
        ({"extra": ("--tokens-per-sample", "0")}, {"utilization": 0.5}, "--tokens-per-sample must be 3 or more"),
        ({"extra": ("--max-update", "-1")}, {"utilization": 0.5}, "--max-update must be 0 or more, got -1"),
        ({"without": ("--max-update",)}, {"tokens_per_second": 1}, "no --max-update"),
        ({"without": ("--batch-size",), "batch_sequences": None}, {"tokens_per_second": 1}, "no --batch-size"),
    ],
)
def test_what_is_refused_and_how(changes, speed, message):
    options = {name: value for name, value in changes.items() if name != "extra"}
    with pytest.raises(ValueError, match=message):
        training_of(recipe(*changes.get("extra", ()), **options), machine=V100, **speed)


def test_a_fine_tuning_is_refused_by_name():
    names = ("--task", "roberta_sentence_prediction", "--criterion", "roberta_sentence_prediction", "--lora-rank", "8")
    pretraining = ("--task", "--criterion", "--tokens-per-sample", "--mask-prob")
    with pytest.raises(ValueError, match="The task roberta_sentence_prediction has no --tokens-per-sample"):
        training_of(recipe(*names, without=pretraining), machine=V100, tokens_per_second=1)


def test_the_vocabulary_is_the_datas_own(tiny_data_bin, tmp_path):
    from fairseq.data import Dictionary

    dictionary = Dictionary.load(str(tiny_data_bin / "dict.txt"))
    dictionary.add_symbol("<mask>")
    assert vocabulary_size([tiny_data_bin]) == len(dictionary)
    (tmp_path / "dict.txt").write_text((tiny_data_bin / "dict.txt").read_text() + "<mask> 1\n")
    assert vocabulary_size([tmp_path]) == len(dictionary)


def log_of(path, speeds, devices):
    lines = [f"INFO | fairseq_cli.train | training on {devices} devices (GPUs/TPUs)"]
    for update, speed in enumerate(speeds):
        record = {"num_updates": str(update), "wps": str(speed)}
        lines.append(f"INFO | train_inner | {json.dumps(record)}")
    path.write_text("\n".join(lines))
    return path


def test_the_speed_is_the_logs_median_for_one_device(tmp_path):
    assert speed_in_log(log_of(tmp_path / "a", [10, 4000, 5000, 5100, 5200], 1)) == 5000
    assert speed_in_log(log_of(tmp_path / "b", [10, 4000, 5000, 5100, 5200], 4)) == 1250
    training = training_of(recipe(), machine=V100, log=tmp_path / "a")
    assert training.tokens_per_second == 5000


def test_a_log_without_a_speed_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"empty contains no speed: it needs `train_inner` lines"):
        speed_in_log(log_of(tmp_path / "empty", [], 1))
    with pytest.raises(FileNotFoundError, match="none does not exist"):
        speed_in_log(tmp_path / "none")
