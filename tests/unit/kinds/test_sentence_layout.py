"""The model reads the <s> of every sentence, padded and packed, and the segments alternate within a window."""

import numpy as np
import pytest

from roberta_plugin.finetuning.summaries.dataset import DocumentsDataset
from roberta_plugin.kinds.sentences import by_document, packed_layout, padded_layout, segments_of
from tests.tiny_summaries import write_prepared, write_raw


def test_the_examples_of_the_docstrings():
    row, position = np.array([0, 1, 0]), np.array([0, 3, 5])
    padded = padded_layout(row, position, num_rows=2)
    assert padded["positions"].tolist() == [[0, 5], [3, 0]]
    assert padded["index"].tolist() == [0, 2, 1]
    packed = packed_layout(row, position, lengths=np.array([9, 7]), num_sequences=3)
    assert packed["positions"].tolist() == [[0, 5, 12]]
    assert packed["index"].tolist() == [0, 2, 1]
    assert (packed["cu_seqlens"].tolist(), packed["max_seqlen"]) == ([0, 2, 3, 3], 2)
    places = by_document(np.array([2, 3]))
    assert (places["document"].tolist(), places["place"].tolist()) == ([0, 0, 1, 1, 1], [0, 1, 0, 1, 2])
    assert (places["num_documents"], places["longest"]) == (2, 3)


def test_segments_alternate_from_sentence_to_sentence_and_begin_anew_in_each_window():
    tokens = np.array([[0, 5, 2, 0, 6, 7, 2], [0, 5, 5, 5, 5, 5, 2]])
    expected = [[0, 0, 0, 1, 1, 1, 1], [0] * 7]
    assert segments_of(tokens, bos_id=0).tolist() == expected
    packed = segments_of(tokens.reshape(1, -1), bos_id=0, starts=np.array([0, 7]))
    assert packed.tolist() == [[*expected[0], *expected[1]]]


@pytest.mark.parametrize("pack", [False, True])
def test_the_sentences_of_a_batch_are_at_their_s_with_their_labels(tmp_path, pack):
    prepared = write_prepared(tmp_path)
    to_model = prepared.vocabulary.tokenizer_to_model(prepared.tokenizer)
    dataset = DocumentsDataset(prepared.split("train"), pad_id=1, vocab_size=1000, seed=1, pack=pack, max_length=64)
    documents = dataset.documents
    for addresses in dataset.batches(1, max_sentences=7):
        batch = dataset.__getitems__(addresses)
        sentences, tokens = batch["sentences"], batch["net_input"]["src_tokens"]
        beginning = sentences["positions"]
        found, following = (tokens.gather(1, at).flatten()[sentences["index"]] for at in (beginning, beginning + 1))
        assert found.tolist() == [prepared.vocabulary.bos_id] * len(found)
        numbers = batch["id"].tolist()
        texts = [text for number in numbers for text in documents.sentences[number]]
        assert following.tolist() == [int(to_model[prepared.tokenizer.encode(text)][0]) for text in texts]
        labels = [documents.labels[documents.first[number] : documents.first[number + 1]] for number in numbers]
        assert sentences["labels"].tolist() == np.concatenate(labels).tolist()
        assert batch["net_input"]["segments"].shape == tokens.shape


def test_batches_keep_to_max_tokens_whatever_windows_their_documents_have(tmp_path):
    raw = write_raw(tmp_path / "raw", sizes={"train": 20})
    with (raw / "train.jsonl").open("a") as file:
        for number in range(10):
            text = ", ".join(['"xyz good"'] * (1 + number % 3))
            file.write(f'{{"id": {number}, "text": [{text}], "summary": "good"}}\n')
    split = write_prepared(tmp_path, raw=raw).split("train")
    assert set(np.diff(split.offsets).tolist()) >= {1, 2}
    dataset = DocumentsDataset(split, pad_id=1, vocab_size=1000, seed=1)
    sizes = [dataset.__getitems__(each)["npositions"] for each in dataset.batches(1, max_tokens=400)]
    assert max(sizes) <= 400
    is_short = np.diff(split.offsets) == 1
    widths = split.sequences.sizes[split.offsets[:-1]]
    assert dataset.sizes[is_short].tolist() == widths[is_short].tolist(), "short documents take no more than they have"
