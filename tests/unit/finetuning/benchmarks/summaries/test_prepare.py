"""A prepared folder holds every sentence with its label and the place where it is scored."""

import json
import logging

import numpy as np
import pytest

from roberta_plugin.finetuning.kinds import summary
from roberta_plugin.finetuning.options import SummariesOptions
from roberta_plugin.finetuning.preparation import find_faults, remarks
from tests.tiny_benchmarks import words_tokenizer
from tests.tiny_summaries import NUM_SENTENCES, write_prepared, write_raw


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("summaries"))


def test_every_sentence_is_where_its_window_and_position_say(prepared):
    split, (tokenizer, vocabulary) = prepared.split("train"), words_tokenizer()
    window, position, first = (split.array(name) for name in ("window", "position", "first_sentence"))
    assert split.columns["sentences"].tolist() == np.diff(first).tolist() == [NUM_SENTENCES] * len(split)
    assert (np.diff(split.offsets) > 1).any(), "documents of more than one window"
    back = vocabulary.model_to_tokenizer(tokenizer)
    for number, record in enumerate(split.records()):
        for place, text in enumerate(record["sentences"]):
            at = first[number] + place
            ids = split.sequences[int(split.offsets[number] + window[at])][position[at] :]
            stop = int(np.flatnonzero(ids == vocabulary.eos_id)[0])
            assert ids[0] == vocabulary.bos_id
            assert tokenizer.decode(back[ids[1:stop]].tolist()) == text
    assert find_faults(prepared, split) == []


def test_the_sentences_of_the_summary_are_labelled(prepared):
    split = prepared.split("valid")
    labels, first = split.array("label"), split.array("first_sentence")
    for number, record in enumerate(split.records()):
        chosen = [
            text
            for text, label in zip(record["sentences"], labels[first[number] : first[number + 1]], strict=True)
            if label
        ]
        assert sorted(chosen) == sorted(record["summary"])


def test_what_is_left_out_and_cut_is_counted(tmp_path, caplog):
    raw = write_raw(tmp_path / "raw", sizes={"train": 3})
    with (raw / "train.jsonl").open("a") as file:
        file.write(json.dumps({"id": "far", "text": ["good"], "summary": "bad"}) + "\n")
    folder = tmp_path / "stories" / "train"
    folder.mkdir(parents=True)
    (folder / "0.story").write_text("One. Two.\n\n@highlight\n\nOne\n")
    (folder / "1.story").write_text("\n\n@highlight\n\nOne\n")
    (folder / "2.story").write_text("One.\n")
    with caplog.at_level(logging.INFO):
        prepared = write_prepared(tmp_path, raw=raw, options=SummariesOptions(sentence_length=5))
        assert prepared.split("train").sequences.sizes.max() <= 64
        assert "1 documents share no word with their summary" in caplog.text
        (of_sentences,) = remarks(prepared)
        assert of_sentences.startswith("train: 24 of 25 sentences are longer than 5 tokens and were cut")
        tokenizer, vocabulary = words_tokenizer()
        from roberta_plugin.finetuning.benchmarks import benchmark_of

        settings = {"tokenizer": tokenizer, "vocabulary": vocabulary, "max_length": 64, "options": SummariesOptions()}
        benchmark_of("cnn_dailymail").prepare(folder.parent, tmp_path / "out", **settings)
    assert "2 documents without text or with an empty" in caplog.text
    (folder / "0.story").unlink()
    with pytest.raises(ValueError, match="The split train holds no document"):
        benchmark_of("cnn_dailymail").prepare(folder.parent, tmp_path / "none", **settings)


def test_what_cannot_be_learned_evaluated_or_held_in_memory_is_said(tmp_path, caplog, monkeypatch):
    raw = write_raw(tmp_path / "raw", sizes={"train": 3, "valid": 2})
    lines = [json.dumps({"text": "good", **summary}) for summary in ({"summary": "good"}, {}, {})]
    (raw / "test.jsonl").write_text("\n".join(lines))
    monkeypatch.setattr(summary, "_MANY_WINDOWS", 1)
    with caplog.at_level(logging.WARNING):
        write_prepared(tmp_path, raw=raw)
    assert "test: 2 of 3 documents have no summary, so the split is predicted and not evaluated" in caplog.text
    assert caplog.text.count("has 2 windows, which are trained at once and may not fit into the memory") == 3
    (raw / "train.jsonl").write_text(json.dumps({"text": "good", "summary": "bad"}) + "\n")
    with pytest.raises(ValueError, match="train: none of its 1 documents shares a word with its summary, so there is"):
        write_prepared(tmp_path / "again", raw=raw)
