"""An exported folder in sentence-transformers, by its own one-liner: the vectors of `RobertaHub.embed`."""

import numpy as np
import pytest
import torch

from roberta_plugin.conversion.convert import ExportSettings, export_model
from roberta_plugin.hub import RobertaHub
from tests.hugging_face import import_transformers
from tests.tiny_conversions import write_checkpoint

import_transformers()
sentence_transformers = pytest.importorskip("sentence_transformers")


def test_an_exported_folder_gives_our_embeddings(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "ours")
    export_model(ExportSettings(checkpoint=checkpoint, to="huggingface", output_dir=tmp_path / "theirs"))
    texts = ["A good dog.", "No.", "so bad a cat"]
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "theirs"), device="cpu").encode(texts)
    ours = torch.as_tensor(RobertaHub.from_pretrained(checkpoint).embed(texts))
    np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-5)
