"""fairseq-train's options are read by its own parser and completed for a number of GPUs."""

import re
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq import optim, tasks

from roberta_plugin.launch import arguments
from roberta_plugin.launch.arguments import PACKAGE, check_options, data_folders, parse, to_config
from roberta_plugin.launch.batch_size import measured_size, nominal_size, plan_batch, sequences_in_tokens, task_of
from roberta_plugin.launch.recipe import complete
from tests.tiny_benchmarks import write_prepared
from tests.tiny_corpus import train_command, write_data_bin
from tests.unit.launch.recipes import good_recipe


@pytest.fixture
def recipe(tiny_data_bin, tmp_path):
    return lambda *options, **fields: good_recipe(tiny_data_bin, tmp_path / "run", *options, **fields)


@pytest.mark.parametrize(("nodes", "update_freq"), [(1, 32), (2, 16), (16, 2)])
def test_the_batch_follows_from_the_number_of_gpus(recipe, nodes, update_freq):
    parsed = parse(complete(recipe(nodes=nodes, gpus_per_node=4, batch_sequences=512)))
    assert (parsed.batch_size, parsed.update_freq) == (4, [update_freq])
    assert parsed.batch_size * parsed.update_freq[0] * nodes * 4 == 512


def test_a_batch_in_tokens_sets_max_tokens(recipe):
    parsed = parse(complete(recipe("--max-tokens", "300", without=("--batch-size",), batch_tokens=64 * 48)))
    assert (parsed.max_tokens, parsed.update_freq) == (4 * 64, [3])  # 48 sequences = 4 GPUs x 4 x 3


def test_without_an_effective_batch_the_recipe_is_taken_as_it_is(recipe):
    parsed = parse(complete(recipe("--update-freq", "5")))
    assert (parsed.batch_size, parsed.update_freq) == (4, [5])


def test_options_without_an_architecture_are_refused():
    with pytest.raises(ValueError, match=r"--arch is missing"):
        parse(["data", "--task", "roberta_masked_lm"])


@pytest.mark.parametrize(
    ("options", "fields", "message"),
    [
        (("--update-freq", "2"), {"batch_sequences": 64}, "--update-freq follows from the effective batch"),
        ((), {"batch_tokens": 640}, "--batch-tokens needs --max-tokens"),
        ((), {"batch_sequences": 64, "without": ("--batch-size",)}, "--batch-sequences needs --batch-size"),
        (("--max-tokens", "63"), {"batch_tokens": 640}, "--max-tokens is smaller than --tokens-per-sample"),
        (("--save-dir", "elsewhere"), {}, "--save-dir: leave it out, for checkpoints go to RUN-DIR/checkpoints"),
        (("--distributed-world-size=3",), {}, "nodes x gpus_per_node"),
        (("--no-save",), {}, "a restart resumes from a checkpoint"),
    ],
)
def test_contradictions_are_refused(recipe, options, fields, message):
    with pytest.raises(ValueError, match=message):
        complete(recipe(*options, **fields))


def test_initial_weights_that_the_task_does_not_make_are_refused_before_a_job_is_submitted(recipe):
    counts = ["--init-attention", "counts", "--init-std", "width"]
    check_options(parse(complete(recipe(*counts))))
    other = recipe(*counts, "--task", "masked_lm", "--criterion", "masked_lm")
    with pytest.raises(ValueError, match="--init-attention counts needs --task roberta_masked_lm"):
        check_options(parse(complete(other)))


def test_a_run_may_continue_another_one_because_its_own_checkpoint_wins_at_a_restart(recipe):
    assert parse(complete(recipe("--restore-file", "old.pt"))).restore_file == "old.pt"


def test_this_plugin_needs_no_user_dir_and_others_keep_theirs(recipe):
    assert "--user-dir" not in complete(recipe("--user-dir", f"somewhere/{PACKAGE.name}"))
    assert "other" in complete(recipe("--user-dir=other"))


def test_bf16_on_the_command_line_is_no_sign_of_a_tpu(recipe):
    words = complete(recipe("--bf16"))
    parsed = parse(words)
    assert parsed.bf16
    assert not parsed.tpu


def test_checkpoints_go_into_the_run_folder(recipe, tmp_path):
    assert parse(complete(recipe())).save_dir == str(tmp_path / "run" / "checkpoints")


def test_data_folders_of_a_mixture_are_all_found(recipe):
    parsed = parse(complete(recipe()))
    parsed.data = "a@2,b@1:c"
    assert data_folders(parsed) == [Path("a"), Path("b"), Path("c")]
    parsed.task, parsed.data = "translation", "d:e"
    assert data_folders(parsed) == [Path("d"), Path("e")]


@pytest.mark.parametrize("value", ["6e-", "[1e-3,"])
def test_a_value_that_fairseq_cannot_evaluate_is_named(tiny_data_bin, value):
    words = ["--task", "roberta_masked_lm", "--arch", "fast_roberta_tiny", "--lr", value]
    with pytest.raises(ValueError, match=r"cannot read --lr .*: it must be a number"):
        parse([str(tiny_data_bin), *words])


def test_a_folder_with_a_colon_in_its_path_is_one_data_folder(tiny_data_bin, tmp_path):
    folder = tmp_path / "20:30"
    folder.symlink_to(tiny_data_bin)
    for task in ("roberta_masked_lm", "sentence_prediction"):
        assert data_folders(Namespace(task=task, data=str(folder))) == [folder]


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
        (("--mask-prob", "1.5"), "--mask-prob must be greater than 0 and below 1, got 1.5"),
        (("--num-workers", "-1"), "--num-workers must be 0 or more, got -1."),
        (("--batch-size", "0"), "--batch-size must be 1 or more, got 0."),
        (("--update-freq", "1,0"), "--update-freq must be 1 or more, got 0."),
        (("--max-update", "-4"), "--max-update must be 0 or more, got -4."),
        (("--log-interval", "0"), "--log-interval must be 1 or more, got 0."),
        (("--save-interval", "0"), "--save-interval must be 1 or more, got 0."),
        (("--lr", "-0.1"), "--lr must be 0 or more, got -0.1."),
        (("--total-num-update", "0"), "--total-num-update must be 1 or more, got 0"),
        (("--max-tokens", "8"), r"--max-tokens \(8\) is smaller than --tokens-per-sample \(64\)"),
        (("--max-positions", "32"), r"--tokens-per-sample \(64\) exceeds the model's 32 positions"),
        (("--seed", "4294967296"), "--seed must be at most 4294967295, got 4294967296."),
        (("--criterion", "cross_entropy"), "roberta_masked_lm: give --criterion roberta_masked_lm"),
        (("--encoder-attention-heads", "3"), r"--encoder-embed-dim \(32\) must be a multiple"),
        (("--adam-betas", "(0.9, 1.0)"), "--adam-betas must be two numbers"),
    ],
)
def test_what_a_training_would_refuse_is_refused_before_it(tiny_data_bin, tmp_path, options, message):
    parsed = parsed_with(tiny_data_bin, tmp_path, *options)
    with pytest.raises(ValueError, match=message) as before:
        check_options(parsed)
    with pytest.raises(ValueError, match=message) as started:
        start(parsed)
    assert str(before.value) == str(started.value)


def test_a_metric_that_validations_do_not_log_is_refused(tiny_data_bin, tmp_path):
    parsed = parsed_with(tiny_data_bin, tmp_path, "--best-checkpoint-metric", "nsp_loss")
    with pytest.raises(ValueError, match="nsp_loss is not logged by validations: choose by loss, ppl, accuracy"):
        check_options(parsed)
    check_options(parsed_with(tiny_data_bin, tmp_path, "--best-checkpoint-metric", "accuracy"))


def test_good_options_pass_here_and_there(tiny_data_bin, tmp_path):
    parsed = parsed_with(tiny_data_bin, tmp_path, "--max-positions", "64", "--lr", "1e-3,1e-4", "--update-freq", "2,1")
    check_options(parsed)
    start(parsed)


def test_fine_tuning_is_checked_against_its_prepared_folder(tmp_path):
    folder = write_prepared(tmp_path / "set").folder
    options = ("--task", "roberta_sentence_prediction", "--criterion", "roberta_sentence_prediction")
    words = [str(folder), *options, "--arch", "fast_roberta_tiny", "--optimizer", "roberta_adamw", "--batch-size", "2"]
    words += ["--lr", "0.1"]
    check_options(arguments.parse(words))
    for more, message in (
        (("--max-positions", "8"), "and --max-positions is 8: prepare it again"),
        (("--pad-to-multiple", "0"), "--pad-to-multiple must be 1 or more, got 0"),
        (
            ("--task", "roberta_made", "--criterion", "roberta_made"),
            "give --task roberta_sentence_prediction, not roberta_ma",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            check_options(arguments.parse([*words, *more]))


def test_an_option_without_a_default_has_to_be_given(tiny_data_bin, tmp_path):
    """fairseq ends with an error of hydra and all 260 options."""
    words = train_command(tiny_data_bin, tmp_path / "save")[1:]
    with pytest.raises(ValueError, match="--total-num-update is missing: --lr-scheduler polynomial_decay needs it"):
        check_options(arguments.parse(words))


@pytest.mark.parametrize(
    ("num_gpus", "most", "expected"),
    [
        (1, 32, (32, 256)),
        (8, 32, (32, 32)),
        (1024, 32, (8, 1)),
        (8, 24, (16, 64)),
        (256, 32, (32, 1)),
        (8192, 32, (1, 1)),
    ],
)
def test_the_papers_batch_is_shared_out_exactly(num_gpus, most, expected):
    plan = plan_batch(8192, num_gpus=num_gpus, most_per_gpu=most)
    assert plan == expected
    assert plan.per_gpu * plan.update_freq * num_gpus == 8192


def test_no_other_share_needs_fewer_steps():
    for effective in range(6, 300, 6):
        for most in range(1, 20):
            plan = plan_batch(effective, num_gpus=6, most_per_gpu=most)
            assert plan.per_gpu <= most
            assert plan.per_gpu * plan.update_freq * 6 == effective
            better = [size for size in range(plan.per_gpu + 1, most + 1) if (effective // 6) % size == 0]
            assert not better


def test_a_batch_that_cannot_be_shared_names_the_ways_out():
    with pytest.raises(
        ValueError, match=re.escape("8,192 sequences cannot be shared out evenly among 3 GPUs")
    ) as caught:
        plan_batch(8192, num_gpus=3, most_per_gpu=32)
    assert "take 2 GPUs" in str(caught.value)
    assert "8,190 or 8,193 sequences" in str(caught.value)


def test_the_pretraining_task_shares_out_any_batch_in_the_fewest_steps():
    """The blocks of its updates: tests/unit/data/test_block_order.py."""
    assert plan_batch(8192, num_gpus=1016, most_per_gpu=32, may_differ=True) == (9, 1)
    assert plan_batch(8192, num_gpus=127, most_per_gpu=32, may_differ=True) == (22, 3)
    assert plan_batch(8192, num_gpus=8, most_per_gpu=24, may_differ=True) == (16, 64)  # as before, where it divides
    for effective in range(6, 200, 7):
        for num_gpus in range(1, effective + 1):
            for most in range(2, 12):
                plan = plan_batch(effective, num_gpus=num_gpus, most_per_gpu=most, may_differ=True)
                assert plan.per_gpu <= most
                if effective % num_gpus:
                    assert num_gpus * plan.update_freq <= effective, "an empty batch"
                    assert num_gpus * (plan.update_freq - 1) * most < effective, "fewer steps would do"
    with pytest.raises(ValueError, match="leaves some of 9 GPUs without any: take 8 GPUs at most"):
        plan_batch(8, num_gpus=9, most_per_gpu=4, may_differ=True)
    with pytest.raises(ValueError, match="one sequence at a time: raise --batch-size to 2"):
        plan_batch(16, num_gpus=3, most_per_gpu=1, may_differ=True)


@pytest.mark.parametrize("values", [{"num_gpus": 0, "most_per_gpu": 4}, {"num_gpus": 2, "most_per_gpu": 0}])
def test_numbers_below_one_are_refused(values):
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        plan_batch(8, **values)


def test_tokens_are_whole_sequences():
    assert sequences_in_tokens(2**20, tokens_per_sample=512) == 2048
    with pytest.raises(ValueError, match=re.escape("take 999,936 or 1,000,448 tokens")):
        sequences_in_tokens(1_000_000, tokens_per_sample=512)


OPTIONS = ("--task", "roberta_masked_lm", "--criterion", "roberta_masked_lm", "--arch", "fast_roberta_tiny", "--cpu")
OPTIONS += ("--optimizer", "roberta_adamw", "--tokens-per-sample", "64")


@pytest.mark.parametrize(
    "further",
    [
        ("--batch-size", "4", "--sample-break-mode", "complete"),
        ("--batch-size", "4", "--sample-break-mode", "complete_doc", "--update-freq", "3"),
        ("--max-tokens", "200", "--sample-break-mode", "complete_doc"),
    ],
    ids=lambda further: " ".join(further[1::2]),
)
def test_it_is_the_mean_of_the_batches_of_an_epoch(tmp_path, further):
    check_size(tmp_path, further)


def check_size(tmp_path, further):
    """The size of an update that is measured for a plan is the mean of the batches of an epoch."""
    from fairseq import tasks

    data = write_data_bin(tmp_path / "data")
    parsed = parse([str(data), *OPTIONS, *further])
    size = measured_size(*task_of(parsed), parsed.train_subset, num_ranks=2)

    config = to_config(parsed)
    task = tasks.setup_task(config.task)
    task.load_dataset("train", combine=True)
    dataset = task.dataset("train")
    limits = {"max_tokens": config.dataset.max_tokens, "max_sentences": config.dataset.batch_size}
    batches = [
        dataset.make_batch(batch.passes, batch.indices)
        for batch in dataset.batches(1, required_batch_size_multiple=8, **limits)
    ]
    assert len(batches) > 5
    scale = len(batches) / -(-len(batches) // (2 * parsed.update_freq[0]))  # the last update takes what is left
    for name, found in (("nsentences", size.sequences), ("ntokens", size.tokens), ("npairs", size.pairs)):
        assert found == pytest.approx(scale * np.mean([batch[name] for batch in batches])), name
    assert size.tokens_in_epoch == sum(batch["ntokens"] for batch in batches)
    predicted = scale * np.mean([batch["predicted"]["number"] for batch in batches])
    assert size.predicted == pytest.approx(predicted, rel=0.15)


def test_without_data_blocks_are_taken_to_be_full(tmp_path):
    data = write_data_bin(tmp_path / "data")
    size = nominal_size(parse([str(data), *OPTIONS, "--batch-size", "32", "--update-freq", "8"]), num_ranks=8)
    assert size[:4] == (2048, 2048 * 64, 2048 * 64 * 64, pytest.approx(0.15 * 2048 * 64))
    assert nominal_size(parse([str(data), *OPTIONS, "--max-tokens", "512"]), num_ranks=1).sequences == 8
    with pytest.raises(ValueError, match="batch size is missing"):
        nominal_size(parse([str(data), *OPTIONS]), num_ranks=1)
