"""What all fine-tuning tasks refuse before any work is done."""

from contextlib import nullcontext

import pytest
from omegaconf import MISSING

from roberta_plugin.cli import main
from roberta_plugin.tasks.finetuning import FineTuningConfig, RaceTask, RobertaSentencePredictionTask
from roberta_plugin.training import arguments as train_arguments
from tests.tiny_benchmarks import write_prepared, write_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("set") / "set", task="race").folder


def setup(folder, **options):
    return RaceTask.setup_task(FineTuningConfig(data=str(folder), seed=1, **options))


def test_the_vocabulary_and_the_splits_are_those_of_the_folder(folder):
    task = setup(folder, max_positions=64)
    task.load_dataset("valid")
    assert len(task.dataset("valid")) == 40
    assert len(task.source_dictionary) == len(task.vocabulary) == len(task.prepared.vocabulary)
    assert task.source_dictionary.index("<mask>") == task.vocabulary.mask_id
    assert task.max_positions() == 64


def test_a_model_that_is_too_short_is_named(folder):
    with pytest.raises(ValueError, match="of up to 30 tokens, and --max-positions is 20: prepare it again"):
        setup(folder, max_positions=20)


def test_folders_for_another_task_or_none_are_refused(folder, tmp_path):
    other = write_prepared(tmp_path / "set", task="CoLA").folder
    with pytest.raises(ValueError, match="prepared for CoLA: give --task roberta_sentence_prediction, not race"):
        setup(other)
    with pytest.raises(FileNotFoundError, match="roberta prepare TASK"):
        setup(tmp_path)
    with pytest.raises(ValueError, match="data folder is missing"):
        setup(MISSING)
    with pytest.raises(ValueError, match="no split 'dev'; it has train, valid"):
        setup(folder).load_dataset("dev")


def test_packed_rows_need_a_model_that_can(folder):
    from argparse import Namespace

    from fairseq.models.roberta.model import base_architecture

    args = Namespace(arch="roberta_base", encoder_layers=1, encoder_embed_dim=8, encoder_attention_heads=2)
    args.encoder_ffn_embed_dim, args._name, args.max_positions = 8, "roberta", 64
    base_architecture(args)
    setup(folder).build_model(args)
    with pytest.raises(ValueError, match="--pack-sequences needs a model that keeps the sequences of a row apart"):
        setup(folder, pack_sequences=True).build_model(args)


def test_checkpoints_are_not_chosen_by_the_f1_of_a_label_that_the_split_lacks(tmp_path):
    """Neither where a training is planned, nor in fairseq-train, whose validations would log no such metric."""
    for name, labels in (("train", "abc"), ("valid", "ab")):
        rows = [f"text {number},{labels[number % len(labels)]}" for number in range(12)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    words = ["prepare", "custom", "--kind", "classification", "--output-dir", tmp_path / "set"]
    words += ["--tokenizer", write_tokenizer(tmp_path / "tokenizer")]
    words += ["--train", tmp_path / "train.csv", "--valid", tmp_path / "valid.csv"]
    assert main([str(word) for word in words]) == 0
    name = "roberta_sentence_prediction"
    options = ["--task", name, "--criterion", name, "--arch", "fast_roberta_tiny", "--optimizer", "roberta_adamw"]
    options += ["--lr", "0.001", "--batch-size", "4", "--best-checkpoint-metric"]
    said = r"--best-checkpoint-metric f1_c: no example of the split 'valid' has the label 'c', so it cannot be measured"
    for metric, more, refusal in (
        ("f1_c", (), pytest.raises(ValueError, match=said)),
        ("f1_b", (), nullcontext()),
        ("f1_c", ("--disable-validation",), nullcontext()),
        ("f1_c", ("--valid-subset", "train"), nullcontext()),
    ):
        parsed = train_arguments.parse([str(tmp_path / "set"), *options, metric, *more])
        with refusal:
            train_arguments.check_options(parsed)
        with refusal:
            RobertaSentencePredictionTask.check_start(train_arguments.to_config(parsed))
