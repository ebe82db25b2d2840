"""fairseq-train's options are read by its own parser and completed for a number of GPUs."""

from argparse import Namespace
from pathlib import Path

import pytest

from roberta_plugin.launch.recipe import complete
from roberta_plugin.training.arguments import PACKAGE, data_folders, parse
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
        ((), {"batch_sequences": 64, "batch_tokens": 64}, "the effective batch is one of them"),
        ((), {"batch_tokens": 640}, "--batch-tokens needs --max-tokens"),
        ((), {"batch_sequences": 64, "without": ("--batch-size",)}, "--batch-sequences needs --batch-size"),
        (("--max-tokens", "63"), {"batch_tokens": 640}, "--max-tokens is smaller than --tokens-per-sample"),
        (("--save-dir", "elsewhere"), {}, "--save-dir: leave it out, for checkpoints go to RUN-DIR/checkpoints"),
        (("--distributed-world-size=3",), {}, "nodes x gpus_per_node"),
        (("--no-save",), {}, "a restart resumes from a checkpoint"),
        (("--restore-file", "a.pt"), {}, "--finetune-from-model"),
    ],
)
def test_contradictions_are_refused(recipe, options, fields, message):
    with pytest.raises(ValueError, match=message):
        complete(recipe(*options, **fields))


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
