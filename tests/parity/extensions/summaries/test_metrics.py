"""ROUGE and average precision are those of the packages that define them."""

import json
import lzma

import numpy as np
import pytest
from sklearn.metrics import f1_score

from roberta_plugin.extensions.summaries.documents import ROUGE, f1_of_choice, rouge, words

rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer")
tokenize = pytest.importorskip("rouge_score.tokenize").tokenize


def test_rouge_is_that_of_rouge_score(shared_data):
    scorer = rouge_scorer.RougeScorer(list(ROUGE), use_stemmer=True)
    with lzma.open(shared_data / "summaries" / "bbc_news_summary.dev.jsonl.xz", "rt") as lines:
        records = [json.loads(next(lines)) for _ in range(3)]
    for record in records:
        given, right = record["text"].split(". ")[:4], record["summary"].split(".")
        expected = scorer.score("\n".join(right), "\n".join(given))
        assert rouge(given, right) == {kind: expected[kind].fmeasure for kind in ROUGE}
        assert rouge(given, right, is_official=True) == rouge(given, right)
        assert rouge(given, right, kinds=("rouge2",)) == {"rouge2": expected["rouge2"].fmeasure}
    assert rouge(["The cat."], ["A cat."])["rouge1"] == 0.5
    assert rouge([], ["A cat."])["rougeLsum"] == 0.0


def test_words_of_own_sets_are_those_of_any_script_and_those_of_cnn_dailymail_the_packages():
    scorer = rouge_scorer.RougeScorer(list(ROUGE), use_stemmer=True)
    one, other = "Na\u00efve tests", "Nave tests"  # "na" and "ve" to the package
    wanted = scorer.score(other, one)["rouge1"].fmeasure
    assert rouge([one], [other], kinds=("rouge1",), is_official=True)["rouge1"] == pytest.approx(wanted)
    assert rouge([one], [other], kinds=("rouge1",))["rouge1"] == 0.5
    ascii_text = "It's 3.5% of snake_case runners' runs, re-run."
    assert words(ascii_text) == tokenize(ascii_text, None)


@pytest.mark.parametrize("seed", range(20))
def test_f1_of_choice_is_that_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 30))
    labels = rng.integers(0, 2, size)
    labels[0] = 1
    chosen = rng.integers(0, 2, size)
    found = f1_of_choice(int((chosen & labels).sum()), int(chosen.sum()), int(labels.sum()))
    assert found == pytest.approx(100 * f1_score(labels, chosen))
