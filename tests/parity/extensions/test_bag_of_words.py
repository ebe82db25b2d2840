"""TF-IDF with logistic regression is scikit-learn's, on the tokens of texts."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from roberta_plugin.finetuning.kinds.bag_of_words import BagOfWords
from roberta_plugin.finetuning.options import CustomOptions
from roberta_plugin.finetuning.preparation import PrepareSettings, prepare
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_tables import rows_of, write_csv


def words_of(prepared, split):
    """The texts of each example as words: T for the tokens of the first text, P for those of the second."""
    found = []
    for ids in (split.sequences[number].tolist() for number in range(len(split))):
        first, _, rest = " ".join(map(str, ids[1:-1])).partition(" 2 2 ")
        found.append(" ".join([f"T{each}" for each in first.split()] + [f"P{each}" for each in rest.split()]))
    return found


@pytest.mark.parametrize("kind", ["classification", "pair", "multi-label"])
def test_outputs_are_those_of_scikit_learn(tmp_path, kind):
    write_csv(tmp_path / "my.csv", rows_of(kind, 200))
    pair = "pair" if kind == "pair" else None
    options = CustomOptions(kind=kind, train="my.csv", text_pair_column=pair, class_weights=("balanced",))
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    settings = {"task": "custom", "raw": tmp_path, "tokenizer": tokenizer, "output_dir": tmp_path / "data"}
    prepared = prepare(PrepareSettings(**settings, max_length=64, options=options))
    train, valid = prepared.split("train"), prepared.split("valid")
    vectorizer = TfidfVectorizer(lowercase=False, token_pattern=r"\S+")
    known, asked = (words_of(prepared, each) for each in (train, valid))
    features, of_valid = vectorizer.fit_transform(known), vectorizer.transform(asked)
    weights = prepared.settings["weights"]
    if kind == "multi-label":
        labels = np.asarray(train.columns["labels"])
        found = [
            LogisticRegression(class_weight={1: weight}).fit(features, labels[:, number]).decision_function(of_valid)
            for number, weight in enumerate(weights)
        ]
        expected = np.stack(found, axis=1)
        plain = OneVsRestClassifier(LogisticRegression()).fit(features, labels).decision_function(of_valid)
        assert np.abs(expected - plain).max() > 0.01, "weights count"
    else:
        model = LogisticRegression(class_weight=dict(enumerate(weights)))
        expected = model.fit(features, np.asarray(train.columns["label"])).decision_function(of_valid)
        expected = np.stack([0 * expected, expected], axis=1) if expected.ndim == 1 else expected
    logits = BagOfWords(prepared).outputs(valid).logits
    assert logits is not None and logits.shape == expected.shape and logits.std() > 0.1
    assert np.abs(logits - expected).max() < 1e-3  # of another order of sums in L-BFGS
