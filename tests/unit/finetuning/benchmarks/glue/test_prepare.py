"""From raw files to prepared folders: what a split holds, for every kind of task."""

import json

import numpy as np
import pytest

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.benchmarks.pronouns import find_schema
from roberta_plugin.finetuning.layouts.texts import Encoder
from roberta_plugin.finetuning.preparation import DataSettings, check_same
from roberta_plugin.finetuning.prepared import NAME, Prepared
from tests.tiny_benchmarks import prepared_of
from tests.tiny_glue import write_task
from tests.unit.finetuning.benchmarks.glue.test_reader import official


def texts(prepared, split, example):
    """The texts of an example's sequences, with | for </s>."""
    back = prepared.vocabulary.model_to_tokenizer(prepared.tokenizer)
    part = prepared.split(split)
    found = []
    for row in range(part.offsets[example], part.offsets[example + 1]):
        ids = part.sequences[row]
        assert ids[0] == prepared.vocabulary.bos_id and ids[-1] == prepared.vocabulary.eos_id
        pieces = np.split(ids[1:], np.flatnonzero(ids[1:] == prepared.vocabulary.eos_id))
        found.append("|".join(prepared.tokenizer.decode(back[piece[piece != 2]].tolist()) for piece in pieces[:-1]))
    return found


def test_classification_has_one_sequence_and_one_label_a_row(tmp_path):
    raw = write_task(tmp_path / "raw", "SST-2", train=9, dev=5, test=4)
    prepared = prepared_of("SST-2", raw, tmp_path / "set")
    assert prepared.splits == ("train", "valid", "test")
    assert prepared.settings == {"kind": "classification", "labels": ["0", "1"], "max_length": 60}
    lines = [line.split("\t") for line in (raw / "SST-2" / "dev.tsv").read_text().splitlines()[1:]]
    assert prepared.split("valid").columns["label"].tolist() == [int(label) for _, label in lines]
    assert [texts(prepared, "valid", row) for row in range(5)] == [[text] for text, _ in lines]
    assert prepared.split("test").columns == {}
    assert [record["id"] for record in prepared.split("test").records()] == ["0", "1", "2", "3"]


def test_regression_keeps_the_number_and_joins_the_pair(tmp_path):
    raw = write_task(tmp_path / "raw", "STS-B", train=9, dev=5, test=4)
    prepared = prepared_of("STS-B", raw, tmp_path / "set")
    lines = [line.split("\t") for line in (raw / "STS-B" / "train.tsv").read_text().splitlines()[1:]]
    assert prepared.split("train").columns["label"].tolist() == [float(line[3]) for line in lines]
    assert texts(prepared, "train", 3) == [f"{lines[3][1]}||{lines[3][2]}"]
    assert prepared.settings["labels"] == []
    assert (prepared.settings["mean"], prepared.settings["deviation"]) == (0, 5), (
        "as fairseq's preprocess_GLUE_tasks.sh"
    )
    data = identity.of(prepared)
    before = {name: value for name, value in data["settings"].items() if name not in ("mean", "deviation")}
    for settings in (data["settings"], before):  # of an earlier version, or on the scale of the labels
        state = {"task_state": {identity.KEY: {**data, "settings": settings}}}
        identity.check_task(state, prepared, checkpoint=tmp_path)
        path = prepared.folder / NAME
        path.write_text(json.dumps({**prepared.content, "settings": settings}))
        check_same(Prepared.open(prepared.folder), DataSettings(task="STS-B", raw=raw, max_length=60))


def test_ranking_groups_the_training_set_and_keeps_the_rows_of_the_others(tmp_path):
    raw = write_task(tmp_path / "raw", "QNLI", train=10, dev=6, test=4)
    prepared = prepared_of("QNLI-ranking", raw, tmp_path / "set")
    train = prepared.split("train")
    assert len(train) == 5
    assert np.diff(train.offsets).tolist() == [2] * 5
    assert train.columns["answer"].tolist() == [0] * 5
    right, wrong = texts(prepared, "train", 2)
    assert "good" in right and "bad" in wrong
    assert right.split("||")[0] == wrong.split("||")[0] == "is it 3 ?"
    valid = prepared.split("valid")
    assert valid.columns["question"].tolist() == [0, 0, 1, 1, 2, 2]
    labels = ["good" in texts(prepared, "valid", row)[0] for row in range(6)]
    assert valid.columns["answer"].tolist() == [int(not label) for label in labels]
    assert prepared.split("test").columns.keys() == {"question"}
    assert len(list(prepared.split("test").records())) == 4


def test_wnli_puts_every_phrase_in_the_place_of_the_pronoun(tmp_path):
    raw = write_task(tmp_path / "raw", "WNLI", train=10, dev=6, test=4)
    prepared = prepared_of("WNLI", raw, tmp_path / "set")
    train = prepared.split("train")
    assert len(train) == 5
    assert train.columns["label"].tolist() == [1] * 5
    phrases = []
    for text, row in zip(texts(prepared, "train", 1), range(*train.offsets[1:3]), strict=True):
        ids = train.sequences[row]
        span = ids[train.columns["before"][1] : len(ids) - train.columns["after"][1]]
        assert text.endswith(" ran.") and text.startswith("I saw the ")
        back = prepared.vocabulary.model_to_tokenizer(prepared.tokenizer)
        phrases.append(prepared.tokenizer.decode(back[span].tolist()))
        assert text == f"{text.split('. ')[0]}.{phrases[-1]} ran."
    assert phrases[0].startswith(" The good")
    assert any(phrase.startswith(" The bad") for phrase in phrases[1:])
    valid = prepared.split("valid")
    assert len(valid) == 6 and valid.columns["label"].sum() == 3
    assert prepared.split("test").columns.keys() == {"before", "after"}


def test_a_text_that_is_too_long_loses_its_ends_and_keeps_the_phrase(tmp_path):
    raw = write_task(tmp_path / "raw", "WNLI", train=10, dev=6, test=4)
    prepared = prepared_of("WNLI", raw, tmp_path / "set", max_length=24)
    train = prepared.split("train")
    assert train.sequences.sizes.max() == 24
    whole = prepared_of("WNLI", raw, tmp_path / "whole").split("train")
    for example in range(len(train)):
        for row in range(*train.offsets[example : example + 2]):
            spans = []
            for part in (train, whole):
                ids, columns = part.sequences[row], part.columns
                spans.append(ids[columns["before"][example] : len(ids) - columns["after"][example]].tolist())
            assert spans[0] == spans[1]


def test_a_row_without_a_pronoun_keeps_its_place(tmp_path, caplog):
    raw = write_task(tmp_path / "raw", "WNLI", train=10, dev=6, test=4)
    path = raw / "WNLI" / "dev.tsv"
    path.write_text(path.read_text() + "99\tThe dog ran.\tThe cat ran.\t0\n")
    valid = prepared_of("WNLI", raw, tmp_path / "set").split("valid")
    assert len(valid) == 7
    assert "in 1 of 7 rows no pronoun was found" in caplog.text
    ids = valid.sequences[int(valid.offsets[6])]
    assert valid.columns["before"][6] == len(ids) and valid.columns["after"][6] == 0


def test_phrases_of_the_real_rows_have_the_ids_of_the_whole_text(shared_data, glue):
    """Byte-level BPE of the three parts is that of the text: parts begin where words begin."""
    if not (shared_data / "gpt2_bpe").is_dir():
        pytest.skip("needs shared/data/gpt2_bpe")
    tokenizer = load_tokenizer(shared_data / "gpt2_bpe")
    encoder = Encoder(tokenizer, Vocabulary.load(shared_data / "gpt2_bpe" / "dict.txt"))
    number = 0
    for row in official("WNLI", glue)["valid"]:
        schema = find_schema(row)
        text = schema.before.rstrip()
        space = schema.before[len(text) :]
        for phrase in (schema.phrase, *schema.rivals):
            parts = [encoder.ids(part) for part in (text, space + phrase, schema.after)]
            assert np.concatenate(parts).tolist() == encoder.ids(f"{schema.before}{phrase}{schema.after}").tolist()
            number += 1
    assert number > 300
