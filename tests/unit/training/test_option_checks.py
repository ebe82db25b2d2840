"""What is refused before a job is submitted is what fairseq-train refuses once it has started, in the same words."""

import pytest
import torch
from fairseq import optim, tasks

from roberta_plugin.training import arguments
from roberta_plugin.training.option_checks import check_options
from tests.tiny_benchmarks import write_prepared
from tests.tiny_corpus import train_command


def parsed_with(data, tmp_path, *options):
    words = train_command(data, tmp_path / "save")[1:]
    words[words.index("--optimizer") + 1] = "roberta_adamw"
    return arguments.parse([*words, "--total-num-update", "9", *options])


def start(parsed):
    """What fairseq-train does up to its first batch."""
    config = arguments.to_config(parsed)
    task = tasks.setup_task(config.task)
    model = task.build_model(config.model)
    task.build_criterion(config.criterion)
    task.load_dataset("train", combine=True)
    task.get_batch_iterator(
        task.dataset("train"),
        max_tokens=config.dataset.max_tokens,
        max_sentences=config.dataset.batch_size,
        max_positions=model.max_positions(),
    )
    optim.build_optimizer(config.optimizer, [torch.nn.Parameter(torch.zeros(1))])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--mask-prob", "1.5"), "--mask-prob must lie between 0 and 1, got 1.5"),
        (("--num-workers", "-1"), "--num-workers must be 0 or more, got -1."),
        (("--batch-size", "0"), "--batch-size must be 1 or more, got 0."),
        (("--update-freq", "1,0"), "--update-freq must be 1 or more, got 0."),
        (("--log-interval", "0"), "--log-interval must be 1 or more, got 0."),
        (("--save-interval", "0"), "--save-interval must be 1 or more, got 0."),
        (("--lr", "-0.1"), "--lr must be 0 or more, got -0.1."),
        (("--total-num-update", "0"), "--total-num-update must be 1 or more, got 0"),
        (("--tokens-per-sample", "2"), "--tokens-per-sample must be at least 3"),
        (("--max-tokens", "8"), r"--max-tokens \(8\) is smaller than --tokens-per-sample \(64\)"),
        (("--max-positions", "32"), r"--tokens-per-sample \(64\) exceeds the model's 32 positions"),
        (("--next-sentence-prediction",), "--next-sentence-prediction is for pairs of texts"),
        (("--criterion", "cross_entropy"), "roberta_masked_lm: give --criterion roberta_masked_lm"),
        (("--encoder-attention-heads", "3"), r"--encoder-embed-dim \(32\) must be a multiple"),
        (("--dropout", "1"), "--dropout must be at least 0 and below 1, got 1"),
        (("--adam-betas", "(0.9, 1.0)"), "--adam-betas must be two numbers"),
        (("--adam-eps", "-1"), "--adam-eps must be 0 or more, got -1"),
        (("--layer-lr-decay", "2"), "--layer-lr-decay must lie above 0 and be at most 1, got 2"),
        (("--background-checkpoints", "--write-checkpoints-asynchronously"), "are both given: leave out the second"),
    ],
)
def test_what_a_training_would_refuse_is_refused_before_it(tiny_data_bin, tmp_path, options, message):
    parsed = parsed_with(tiny_data_bin, tmp_path, *options)
    with pytest.raises(ValueError, match=message) as before:
        check_options(parsed)
    with pytest.raises(ValueError, match=message) as started:
        start(parsed)
    assert str(before.value) == str(started.value)


def test_good_options_pass_here_and_there(tiny_data_bin, tmp_path):
    parsed = parsed_with(tiny_data_bin, tmp_path, "--max-positions", "64", "--lr", "1e-3,1e-4", "--update-freq", "2,1")
    check_options(parsed)
    start(parsed)


def test_fine_tuning_is_checked_against_its_prepared_folder(tmp_path):
    folder = write_prepared(tmp_path / "RTE").folder
    options = ("--task", "roberta_sentence_prediction", "--criterion", "roberta_sentence_prediction")
    words = [str(folder), *options, "--arch", "fast_roberta_tiny", "--optimizer", "roberta_adamw", "--batch-size", "2"]
    check_options(arguments.parse(words))
    for more, message in (
        (("--max-positions", "8"), "and --max-positions is 8: prepare it again"),
        (("--pad-to-multiple", "0"), "--pad-to-multiple must be 1 or more, got 0"),
        (("--task", "race", "--criterion", "race"), "give --task roberta_sentence_prediction, not race"),
    ):
        with pytest.raises(ValueError, match=message):
            check_options(arguments.parse([*words, *more]))


def test_an_option_without_a_default_has_to_be_given(tiny_data_bin, tmp_path):
    """fairseq ends with an error of hydra and all 260 options."""
    words = train_command(tiny_data_bin, tmp_path / "save")[1:]
    with pytest.raises(ValueError, match="--total-num-update is missing: --lr-scheduler polynomial_decay needs it"):
        check_options(arguments.parse(words))
