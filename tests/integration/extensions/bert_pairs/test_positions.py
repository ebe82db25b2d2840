"""Rotary positions and local windows with pairs."""

import pytest

from tests.integration.test_positions import trained

pytestmark = pytest.mark.integration


def test_pairs_of_texts_train_with_all_on(tiny_data_bin, tmp_path):
    pairs = ("--input-format", "segment-pair", "--next-sentence-prediction", "--max-update", "2")
    assert (
        "encoder.sentence_encoder.segment_embeddings.weight"
        in trained(tiny_data_bin, tmp_path / "run", *pairs)["model"]
    )
