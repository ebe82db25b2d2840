"""Scores of sentences against minicons on the same model, exported; its results are kept in a file (minicons_results)."""

import json

import numpy as np
import pytest

from roberta_plugin.hub import RobertaHub
from tests.parity import minicons_results
from tests.parity.minicons_results import TEXTS


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    return RobertaHub.from_pretrained(minicons_results.write_model(tmp_path_factory.mktemp("model")))


@pytest.mark.parametrize("method", minicons_results.METRICS)
def test_log_probabilities_of_tokens_equal_those_of_minicons(hub, method):
    expected = json.loads(minicons_results.FILE.read_text())
    found = hub.score(TEXTS, method)
    assert sum(len(score.tokens) for score in found) > 100
    for score, values, tokens in zip(found, expected[method], expected["tokens"], strict=True):
        assert len(score.tokens) == len(tokens)
        np.testing.assert_allclose(score.log_probs, values, atol=2e-5)
    assert np.abs(np.concatenate(expected["pll"]) - np.concatenate(expected["pll-word-l2r"])).max() > 0.1
