"""What is checked when a training on a table starts."""

from contextlib import nullcontext

import pytest
from fairseq.tasks import TASK_REGISTRY

from roberta_plugin.cli import main
from roberta_plugin.launch import arguments as train_arguments
from tests.tiny_benchmarks import write_tokenizer


def test_checkpoints_are_not_chosen_by_the_f1_of_a_label_that_the_split_lacks(tmp_path):
    """Neither where a training is planned, nor in fairseq-train, whose validations would log no such metric."""
    for name, labels in (("train", "abc"), ("valid", "ab")):
        rows = [f"text {number},{labels[number % len(labels)]}" for number in range(12)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    words = ["prepare", "custom", "--kind", "classification", "--output-dir", tmp_path / "set"]
    words += ["--tokenizer", write_tokenizer(tmp_path / "tokenizer")]
    words += ["--train", tmp_path / "train.csv", "--valid", tmp_path / "valid.csv"]
    assert main([str(word) for word in words]) == 0
    options = "--task roberta_sentence_prediction --criterion roberta_sentence_prediction --arch fast_roberta_tiny "
    options += "--optimizer roberta_adamw --lr 0.001 --batch-size 4 --best-checkpoint-metric"
    said = r"--best-checkpoint-metric f1_c: no example of the split 'valid' has the label 'c', so it cannot be measured"
    for metric, more, refusal in (
        ("f1_c", (), pytest.raises(ValueError, match=said)),
        ("f1_b", (), nullcontext()),
        ("f1_c", ("--disable-validation",), nullcontext()),
        ("f1_c", ("--valid-subset", "train"), nullcontext()),
    ):
        parsed = train_arguments.parse([str(tmp_path / "set"), *options.split(), metric, *more])
        with refusal:
            train_arguments.check_options(parsed)
        with refusal:
            TASK_REGISTRY["roberta_sentence_prediction"].check_start(train_arguments.to_config(parsed))
