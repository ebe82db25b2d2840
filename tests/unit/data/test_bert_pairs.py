"""BERT's own pairs: those of a plain re-implementation of create_pretraining_data.py, draw by draw."""

from random import Random

import numpy as np
import pytest

from roberta_plugin.data import bert_pairs
from roberta_plugin.data.bert_pairs import open_bert_pairs
from roberta_plugin.data.pair_chunks import Targets
from tests.unit.data.test_pairs import texts, write_sentences


def instances_of(all_documents, index, *, longest, short_prob, rng):
    """`create_instances_from_document`, written down after the paper's code: documents are lists of lists of tokens."""
    document, instances = all_documents[index], []
    target = rng.randint(2, longest) if rng.random() < short_prob else longest
    chunk, length, i = [], 0, 0
    while i < len(document):
        chunk.append(document[i])
        length += len(document[i])
        if i == len(document) - 1 or length >= target:
            a_end = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            a = [token for sentence in chunk[:a_end] for token in sentence]
            b, is_random = [], len(chunk) == 1 or rng.random() < 0.5
            if is_random:
                for _ in range(10):
                    other = rng.randint(0, len(all_documents) - 1)
                    if other != index:
                        break
                for sentence in all_documents[other][rng.randint(0, len(all_documents[other]) - 1) :]:
                    b.extend(sentence)
                    if len(b) >= target - len(a):
                        break
                i -= len(chunk) - a_end
            else:
                b = [token for sentence in chunk[a_end:] for token in sentence]
            instances.append((a, b, is_random))
            chunk, length = [], 0
        i += 1
    return instances


def lengths_after_truncation(a, b, longest):
    a, b = len(a), len(b)
    while a + b > longest:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    return a, b


def documents_of(tokens):
    documents = [[]]
    for item in range(tokens.num_items):
        sentence = tokens[item][:-1].tolist()
        if sentence:
            documents[-1].append(sentence)
        elif documents[-1]:
            documents.append([])
    return [document for document in documents if document]


@pytest.mark.parametrize("in_table", [False, True])
@pytest.mark.parametrize(("longest", "short_prob"), [(60, 0.1), (12, 0.5), (200, 0.0)])
def test_pairs_are_berts_draw_by_draw(longest, short_prob, in_table, tmp_path, monkeypatch):
    monkeypatch.setattr(bert_pairs, "_ITEMS_WITHOUT_TABLE", 0 if in_table else 10**9)
    tokens, _ = write_sentences(tmp_path / "train", num_documents=120)
    for _ in range(1 + in_table):  # made, then opened
        source = open_bert_pairs(tokens, targets=Targets(longest, short_prob), num_draws=3, seed=5)
    assert bool(list(tmp_path.glob("*.table"))) == in_table
    everything = np.arange(len(source))
    pairs = source.pairs(everything, passes=np.ones_like(everything), seed=(7, 0))
    documents, expected = documents_of(tokens), []
    for number in range(3):
        rng = Random(f"5 {number}")
        for index in range(len(documents)):
            expected += instances_of(documents, index, longest=longest, short_prob=short_prob, rng=rng)
    assert len(source) == len(expected) > 700
    assert pairs.follows.tolist() == [not is_random for _, _, is_random in expected]
    assert 100 < source.num_following == pairs.follows.sum() < len(source) / 2
    is_cut = 0
    for column, ((a, b, _), found) in enumerate(zip(expected, texts(source, pairs), strict=True)):
        lengths = lengths_after_truncation(a, b, longest)
        assert tuple(pairs.lengths[:, column]) == lengths
        for whole, part, length, front in zip((a, b), found, lengths, pairs.fronts[:, column], strict=True):
            assert part.tolist() == whole[front : front + length]
        is_cut += lengths != (len(a), len(b))
    assert is_cut > 20 or longest == 200, "no pair was too long"
    others = source.pairs(everything, passes=np.full_like(everything, 2), seed=(7, 0))
    assert all(np.array_equal(one, other) for one, other in zip(pairs, others, strict=True)), "a pass changes nothing"


def test_one_document_is_refused(tmp_path):
    tokens, _ = write_sentences(tmp_path / "train", num_documents=1)
    with pytest.raises(ValueError, match=r"--bert-pairs .*train has only 1: binarize"):
        open_bert_pairs(tokens, targets=Targets(60, 0.1), num_draws=1, seed=1)
