"""Prepared folders: gold tags survive words -> tokens -> words, in any context, with any piece labels."""

import dataclasses
import json

import numpy as np
import pytest

from roberta_plugin.finetuning.examples_dataset import TaggingDataset
from roberta_plugin.finetuning.kinds.entities import Sentences, read_file
from roberta_plugin.finetuning.layouts.texts import Encoder
from roberta_plugin.finetuning.layouts.words import IGNORED
from roberta_plugin.finetuning.options import TaggingOptions
from roberta_plugin.finetuning.preparation import DataSettings, check_same, remarks
from tests.tiny_benchmarks import words_tokenizer
from tests.tiny_tagging import write_columns, write_prepared, write_raw

LABELS = ["O", "B-FINE", "I-FINE", "B-POOR", "I-POOR"]


@pytest.fixture(scope="module", params=["first", "all"])
def prepared(request, tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("tagging"), label_pieces=request.param)


def test_the_tags_of_the_words_are_at_their_first_tokens(prepared, tmp_path):
    is_all = prepared.settings["label_pieces"] == "all"
    assert prepared.settings["labels"] == LABELS
    encoder = Encoder(*words_tokenizer())
    for name in prepared.splits:
        split = prepared.split(name)
        sentences = Sentences(split)
        raw = read_file(prepared.folder.parent / "raw" / f"{name}.txt", needs_tags=True)
        assert len(split) > len(raw), "no sentence was cut: the test shows little"
        words = [word for each in raw for word in each.texts]
        tags = [tag for each in raw for tag in each.target]
        assert [word for record in split.records() for word in record["words"]] == words
        assert [LABELS[label] for label in sentences.tags] == tags
        assert np.diff(sentences.offsets).tolist() == [len(each.texts) for each in raw]
        assert np.flatnonzero(sentences.is_first).tolist() == sentences.offsets[:-1].tolist()
        learned = np.split(np.asarray(split.array("token_labels")), np.cumsum(split.sequences.sizes)[:-1])
        seen = 0
        for word, window, position, label in zip(
            words, sentences.windows, sentences.positions, sentences.tags, strict=True
        ):
            ids = split.sequences[window]
            spaced = encoder.ids(f" {word}").tolist(), encoder.ids(word).tolist()
            assert any(
                ids[position : position + len(found)].tolist() == found[: len(ids) - 1 - position] for found in spaced
            )
            assert learned[window][position] == label
            seen += 1
        assert seen == len(words)
        num_learned = sum(int((each != IGNORED).sum()) for each in learned)
        num_tokens = sum(len(encoder.ids(" ".join(each.texts))) for each in raw)
        assert num_learned == (num_tokens if is_all else len(words))


def test_batches_have_the_labels_of_their_tokens_padded_or_packed(prepared):
    split = prepared.split("train")
    sizes = split.sequences.sizes
    learned = np.split(np.asarray(split.array("token_labels")), np.cumsum(sizes)[:-1])
    for pack in (False, True):
        dataset = TaggingDataset(split, pad_id=1, vocab_size=1000, seed=1, pad_to_multiple=8, pack=pack, max_length=24)
        for indices in (np.array([3, 0, 11]), np.array([5])):
            batch = dataset.make_batch(np.ones(len(indices), dtype=np.int64), indices)
            labels, tokens = batch["token_labels"], batch["net_input"]["src_tokens"]
            assert labels.shape == tokens.shape and tokens.shape[1] % 8 == 0
            flat, ids = labels.ravel(), tokens.ravel()
            starts = np.cumsum([0, *sizes[indices[:-1]]]) if pack else np.arange(len(indices)) * tokens.shape[1]
            for start, window in zip(starts.tolist(), indices.tolist(), strict=True):
                assert flat[start : start + sizes[window]].tolist() == learned[window].tolist()
                assert ids[start : start + sizes[window]].tolist() == split.sequences[window].tolist()
            assert batch["num_labels"] == (flat != IGNORED).sum() == sum((learned[i] != IGNORED).sum() for i in indices)


def document(path):
    lines = []
    for number in range(3):
        lines += ["-DOCSTART- -X- O", ""]
        for _ in range(2 + number):
            lines += ["xyz N O", "good N B-X", "bad N I-X", ""]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def test_a_document_is_read_at_once_and_its_sentences_stay_apart(tmp_path):
    document(tmp_path / "raw" / "train.txt")
    prepared = write_prepared(tmp_path, raw=tmp_path / "raw", max_length=18, context="document")
    split = prepared.split("train")
    sentences = Sentences(split)
    assert len(np.unique(sentences.offsets)) == 10, "9 sentences"
    encoder = Encoder(*words_tokenizer())
    whole = encoder.ids(" ".join(["xyz good bad"] * 2)).tolist()
    assert split.sequences[0].tolist() == [0, *whole, 2]
    assert len(split) > 3
    assert sentences.is_first.sum() == 9
    with pytest.raises(ValueError, match=r"line 1: --context document needs -DOCSTART- lines"):
        write_prepared(tmp_path / "b", context="document")


def test_empty_sentences_and_words_without_tokens_are_kept(tmp_path):
    (tmp_path / "raw").mkdir()
    lines = [
        {"tokens": ["good", "", "\u00a0", "bad"], "tags": ["B-X", "I-X", "O", "B-X"]},
        {"tokens": [], "tags": []},
        {"tokens": [""], "tags": ["B-X"]},
    ]
    (tmp_path / "raw" / "train.jsonl").write_text("\n".join(map(json.dumps, lines)))
    split = write_prepared(tmp_path, raw=tmp_path / "raw").split("train")
    sentences = Sentences(split)
    assert [record["words"] for record in split.records()] == [each["tokens"] for each in lines]
    assert [len(sequence) for sequence in (split.sequences[index] for index in range(3))] == [4, 2, 2]
    assert sentences.positions.tolist() == [1, 0, 0, 2, 0]
    assert sentences.windows.tolist() == [0, 0, 0, 0, 2]
    assert sentences.offsets.tolist() == [0, 4, 4, 5]
    rows = sentences.rows([np.full((4, 3), 1 / 3), np.full((2, 3), 1 / 3), np.full((2, 3), 1 / 3)])
    assert rows[[1, 2, 4]].tolist() == [[1, 0, 0]] * 3 and (rows[[0, 3]] == 1 / 3).all()
    assert split.array("token_labels").tolist() == [IGNORED, 1, 1, IGNORED, *[IGNORED] * 4]


def test_a_folder_prepared_with_another_column_is_not_used_in_silence(tmp_path):
    raw = write_raw(tmp_path / "raw", sizes={"train": 3})
    prepared = write_prepared(tmp_path, raw=raw)
    wanted = DataSettings(task=prepared.task, raw=raw, max_length=24, options=TaggingOptions(doc_stride=8))
    check_same(prepared, wanted)
    others = TaggingOptions(doc_stride=8, tags_column="2", scheme="plain")
    with pytest.raises(
        ValueError, match=r"--tags-column was not given and is 2 now; --scheme was not given and is plain now"
    ):
        check_same(prepared, dataclasses.replace(wanted, options=others))


def test_texts_that_do_not_fit_and_types_without_entities_are_counted(tmp_path):
    raw = tmp_path / "raw"
    write_columns(raw / "train.txt", [(["good", "x" * 40], ["B-X", "O"]), (["bad"], ["B-Y"])])
    write_columns(raw / "valid.txt", [(["good"], ["B-X"])])
    cut, lacking = remarks(write_prepared(tmp_path, raw=raw))
    assert cut == "train: 1 of 2 texts are longer than 24 tokens and were divided into windows (longest 44)"
    assert lacking.startswith("valid: no example has the label 'Y', so it is not measured")


def test_words_before_the_first_mark_are_a_document(tmp_path):
    lines = "good B-X\n\nbad O\n\n-DOCSTART- O\n\ngood O\n"
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "train.txt").write_text(lines)
    prepared = write_prepared(tmp_path, raw=tmp_path / "raw", context="document")
    (tmp_path / "raw" / "train.txt").write_text("-DOCSTART- O\n\n" + lines)
    marked = write_prepared(tmp_path / "marked", raw=tmp_path / "raw", context="document")
    assert len(prepared.split("train")) == 2, "one window for each document"
    assert [ids.tolist() for ids in prepared.split("train").sequences] == [
        ids.tolist() for ids in marked.split("train").sequences
    ]
