"""From text files to the verbs that make a data-bin; the record of a training that has begun."""

import gzip
from pathlib import Path
from types import SimpleNamespace

import pytest

from roberta_plugin.pretraining.run import (
    PretrainSettings,
    check_record,
    command_line,
    hold_out,
    shown,
    steps_of_text,
    train,
)


def documents(number, *, lines=2):
    return "".join(f"{'This is a line of text.' + chr(10)}" * lines + f"Document {one}.\n\n" for one in range(number))


def test_every_fiftieth_document_is_held_out_and_none_is_lost(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(documents(120))
    hold_out([str(text)], tmp_path / "train.txt", tmp_path / "valid.txt")
    train, valid = ((tmp_path / f"{split}.txt").read_text() for split in ("train", "valid"))
    assert valid.count("Document") == 2 and "Document 49." in valid and "Document 99." in valid
    assert train.count("Document") == 118
    assert sorted((train + valid).split("\n\n")) == sorted(text.read_text().split("\n\n"))


def test_one_long_document_is_held_out_in_parts_and_a_short_one_is_refused(tmp_path):
    text = tmp_path / "text.txt.gz"
    with gzip.open(text, "wt") as file:
        file.write("A line.\n" * 5000)
    hold_out([str(text)], tmp_path / "train.txt", tmp_path / "valid.txt")
    assert (tmp_path / "valid.txt").read_text().count("A line.") == 100
    with gzip.open(text, "wt") as file:
        file.write("A line.\n" * 50)
    (tmp_path / "train.txt").unlink()
    with pytest.raises(ValueError, match=r"text\.txt\.gz.*--valid"):
        hold_out([str(text)], tmp_path / "train.txt", tmp_path / "other.txt")
    assert not (tmp_path / "train.txt").exists() and not (tmp_path / "other.txt").exists()


def test_text_is_made_into_a_tokenizer_and_a_data_bin_with_what_is_given(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(documents(120))
    train, binarize = steps_of_text(PretrainSettings(data=[str(text)], output_dir=tmp_path / "run"))
    assert train[:2] == ["tokenizer", "train"] and train[train.index("--vocab-size") + 1] == "1000"
    assert binarize[binarize.index("--valid") + 1] == str(tmp_path / "run" / "text" / "valid.txt")
    (verb,) = steps_of_text(
        PretrainSettings(data=[str(text)], valid=["v.txt"], tokenizer=tmp_path / "bpe", output_dir=tmp_path / "run")
    )
    assert verb[verb.index("--tokenizer") + 1] == str(tmp_path / "bpe")
    assert verb[verb.index("--valid") + 1] == "v.txt"


def test_the_folder_is_named_after_the_data():
    assert PretrainSettings(data=["data-bin/books"]).folder == Path("runs/books").absolute()
    assert PretrainSettings(data=["a/latin.txt.gz"]).folder == Path("runs/latin").absolute()


def test_other_options_than_those_that_a_training_began_with_are_refused(tmp_path):
    check_record(tmp_path, ["bin", "--lr", "1e-3", "--bf16"])
    check_record(tmp_path, ["bin", "--lr", "1e-3", "--bf16", "--user-dir", "elsewhere"])
    with pytest.raises(ValueError, match=r"--lr was 1e-3 and is 2e-3 now.*another --output-dir"):
        check_record(tmp_path, ["bin", "--lr", "2e-3", "--bf16"])


def test_the_command_can_be_copied():
    assert shown(["fairseq-train", "a b", "--lr", "1", "--x"]) == "fairseq-train 'a b' \\\n  --lr 1 \\\n  --x"


def test_trackers_call_a_training_by_its_folder(tmp_path, monkeypatch):
    started = []

    def lines_of(command, **options):
        started.append(options["environment"])
        yield from ()

    monkeypatch.setattr("roberta_plugin.training.process.lines_of", lines_of)
    monkeypatch.setenv("WANDB_RESUME", "never")
    plan = SimpleNamespace(
        command=["fairseq-train", "data", "--wandb-project", "x"],
        arguments=["data", "--max-update", "3"],
        machine=SimpleNamespace(gpus=1),
    )
    train(plan, log=tmp_path / "mine" / "train.log", lock=0)
    (variables,) = started
    assert variables.keys() == {"WANDB_NAME", "WANDB_RUN_ID"}
    assert command_line(tmp_path / "mine", plan).startswith(
        f"WANDB_NAME=mine WANDB_RUN_ID={variables['WANDB_RUN_ID']} fairseq-train"
    )
    plan.command.remove("--wandb-project")
    assert command_line(tmp_path / "mine", plan).startswith("fairseq-train")
