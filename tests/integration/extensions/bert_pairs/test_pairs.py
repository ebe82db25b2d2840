"""Pairs with next-sentence prediction through the real fairseq-train: ranks, validation, kills, mixtures."""

import re

import pytest
import torch
import torch.nn.functional as F

from roberta_plugin.models.config import sizes
from roberta_plugin.tasks.masked_lm import RobertaMaskedLMTask
from roberta_plugin.tasks.masked_lm_options import RobertaMaskedLMConfig
from tests.tiny_corpus import kill_at_update, logged, run, run_ranks, train_command, write_data_bin
from tests.tiny_models import assert_one_step
from tests.tiny_models import options as options_of_model

pytestmark = pytest.mark.integration

PAIRS = ("--input-format", "segment-pair", "--next-sentence-prediction", "--short-seq-prob", "0.1")
SENTENCES = ("--input-format", "sentence-pair", "--next-sentence-prediction")


def test_an_option_of_the_pairs_that_is_left_out_on_resuming_is_named(tiny_data_bin, tmp_path):
    words = [*train_command(tiny_data_bin, tmp_path / "run", *PAIRS), "--total-num-update", "10"]
    assert run([*words, "--short-seq-prob", "0.3", "--max-update", "1"]).returncode == 0
    done = run([*words, "--max-update", "2"])
    assert done.returncode == 0, done.stderr[-3000:]
    assert (
        done.stdout.count("other options: --short-seq-prob was 0.3 and is 0.1 now. To continue, give the options that")
        == 1
    )


@pytest.mark.parametrize("pairs", [PAIRS, pytest.param(SENTENCES, marks=pytest.mark.slow)], ids=lambda words: words[1])
def test_a_killed_mixture_of_pairs_goes_on_with_the_same_blocks(tmp_path, pairs):
    """Packed rows of two corpora; the log of the killed and resumed run is that of an undisturbed one.

    With other ranks: test_resume.
    """
    corpora = [
        write_data_bin(tmp_path / name, num_documents=12, valid_documents=4, seed=i) for i, name in enumerate("ab")
    ]
    data = f"{corpora[0]}@3,{corpora[1]}@1"
    options = (*pairs, "--pack-sequences", "--pad-to-multiple", "8", "--batch-size", "3", "--max-update", "14")
    saving = ("--save-interval-updates", "2", "--keep-interval-updates", "1", "--no-epoch-checkpoints")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = run(train_command(data, whole, *options, *saving, "--total-num-update", "20"))
    assert done.returncode == 0, done.stderr[-3000:]
    arguments = train_command(data, killed, *options, *saving, "--total-num-update", "20")
    kill_at_update(arguments, killed, 5)
    done = run(arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"@ [2-9] updates", done.stdout + done.stderr)

    def by_update(save_dir):
        keys = ("loss", "nsp_loss", "nsp_accuracy", "bsz", "wpb")
        return {record["num_updates"]: [record[key] for key in keys] for record in logged(save_dir, "train_inner")}

    assert by_update(killed) == by_update(whole) and len(by_update(whole)) == 14
    assert float(logged(whole, "valid")[-1]["valid_nsp_accuracy"]) > 0

    # Training continues without pairs.
    on = ("--finetune-from-model", str(whole / "checkpoint_last.pt"), "--max-update", "2", "--total-num-update", "9")
    done = run(train_command(data, tmp_path / "plain", *on, "--sample-break-mode", "complete"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "is left out: this model has none" in done.stdout + done.stderr


def test_an_update_of_two_ranks_with_a_dummy_batch_is_that_of_a_plain_reference_in_float64(tiny_data_bin, tmp_path):
    """Five batches for two ranks that take three each: the sixth, fairseq's dummy, must not count for either loss."""
    pairs = {"input_format": "segment-pair", "next_sentence_prediction": True}
    config = RobertaMaskedLMConfig(data=str(tiny_data_bin), tokens_per_sample=64, seed=3, **pairs)
    task = RobertaMaskedLMTask.setup_task(config)
    task.load_dataset("train", combine=True)
    dataset = task.dataset("train")
    size = -(-len(dataset) // 5)
    batches = [dataset.__getitems__(addresses) for addresses in dataset.batches(1, max_sentences=size)]
    assert len(batches) == 5 and len({len(batch["sequence_labels"]["nsp"]) for batch in batches}) == 2

    calm = ("--dropout", "0", "--attention-dropout", "0", "--activation-dropout", "0", "--no-epoch-checkpoints")
    plain = ("--optimizer", "sgd", "--lr-scheduler", "fixed", "--warmup-updates", "0", "--weight-decay", "0")
    options = (*PAIRS[:-2], *calm, *plain, "--batch-size", str(size), "--max-update", "1", "--disable-validation")
    start, end = tmp_path / "start", tmp_path / "end"
    done = run(sgd_command(tiny_data_bin, start, *options, "--lr", "0"))
    assert done.returncode == 0, done.stderr[-3000:]
    on = ("--lr", "1", "--update-freq", "3", "--finetune-from-model", str(start / "checkpoint_last.pt"))
    run_ranks(sgd_command(tiny_data_bin, end, *options, *on), 2)
    before, after = (torch.load(folder / "checkpoint_last.pt", weights_only=False)["model"] for folder in (start, end))
    (record,) = logged(end, "train_inner")
    assert int(record["bsz"]) == len(dataset)

    given = {"arch": "fast_roberta_tiny", "_name": "fast_roberta", "max_positions": 64}
    model = task.build_model(options_of_model(**given, **sizes(2, 32, 64, 2))).double()
    model.load_state_dict(before)
    model.eval()
    total, num_predicted = torch.zeros((), dtype=torch.float64), 0
    for batch in batches:
        features, _ = model(**batch["net_input"], features_only=True)
        is_predicted = batch["target"].ne(task.vocabulary.pad_id)
        masked_lm = F.cross_entropy(model.encoder.lm_head(features)[is_predicted], batch["target"][is_predicted])
        next_sentence = F.cross_entropy(
            model.encoder.next_sentence_head(features[:, 0]), batch["sequence_labels"]["nsp"]
        )
        total = total + int(is_predicted.sum()) * (masked_lm + next_sentence)
        num_predicted += int(is_predicted.sum())
    (total / num_predicted).backward()
    assert not assert_one_step(model, before, after)
    head = model.encoder.next_sentence_head.out_proj.weight.grad
    assert head.abs().max() > 1e-3


def sgd_command(data, save_dir, *options):
    """The same command without what only Adam takes."""
    words = train_command(data, save_dir)
    for name in ("--optimizer", "--adam-betas", "--adam-eps", "--lr-scheduler", "--lr", "--warmup-updates"):
        at = words.index(name)
        del words[at : at + 2]
    return [*words, *options]
