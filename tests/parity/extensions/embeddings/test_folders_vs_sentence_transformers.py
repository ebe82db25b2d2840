"""An exported folder in sentence-transformers, by its own one-liner: the vectors of `RobertaHub.embed`."""

import numpy as np
import pytest
import torch
from huggingface_hub import constants

from roberta_plugin.cli import main
from roberta_plugin.conversion.convert import ExportSettings, export_model
from roberta_plugin.conversion.huggingface import read_huggingface, read_weights
from roberta_plugin.experiments.finetuning_plan import GRID
from roberta_plugin.experiments.sweeps.grid import read_grid
from roberta_plugin.finetuning import identity
from roberta_plugin.hub import RobertaHub
from tests.first_runs import train
from tests.hugging_face import later
from tests.refusals import refused
from tests.tiny_conversions import write_checkpoint

sentence_transformers = later("sentence_transformers")


def trained_for_vectors(checkpoint, **settings):
    """Let a checkpoint record such a training."""
    state = torch.load(checkpoint / "model.pt", weights_only=False)
    settings = {"kind": "embedding", "max_length": 40, "labels": [], "text_column": "text", **settings}
    state["task_state"] = {identity.KEY: {"task": "custom", "settings": settings}}
    torch.save(state, checkpoint / "model.pt")


def test_an_exported_folder_gives_our_embeddings(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "ours")
    export_model(ExportSettings(checkpoint=checkpoint, to="huggingface", output_dir=tmp_path / "theirs"))
    texts = ["A good dog.", "No.", "so bad a cat"]
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "theirs"), device="cpu").encode(texts)
    ours = torch.as_tensor(RobertaHub.from_pretrained(checkpoint).embed(texts))
    np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-5)


@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("first", False), ("max", False)])
def test_a_folder_of_a_trained_model_pools_and_cuts_as_in_training(tmp_path, pooling, normalize):
    checkpoint = write_checkpoint(tmp_path / "ours")
    trained_for_vectors(checkpoint, pooling=pooling, normalize=normalize, max_length=12)
    folder = tmp_path / "theirs"
    for _ in range(2):  # the second one replaces the first
        export_model(ExportSettings(checkpoint=checkpoint, to="sentence-transformers", output_dir=folder))
    texts = [" A good dog.", "No.", "so bad\n", "good " * 30]
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    assert model.max_seq_length == 12 and model.similarity_fn_name == "cosine"
    theirs = model.encode(texts)
    hub = RobertaHub.from_pretrained(checkpoint)
    cut = hub.codec.encoder.ids("good " * 30)
    ours = hub.embed(texts[:3]).numpy()
    np.testing.assert_allclose(ours, theirs[:3], atol=1e-5)
    last = hub.pooled([np.concatenate([[0], cut[:10], [2]])], pooling, normalize=normalize).numpy()
    np.testing.assert_allclose(last[0], theirs[3], atol=1e-5)
    assert (np.abs(np.linalg.norm(ours, axis=1) - 1) < 1e-5).all() == normalize
    assert "SentenceTransformer(" in (folder / "README.md").read_text()
    assert not [name for name in read_weights(folder) if "lm_head" in name]
    again = read_huggingface(folder)
    found = RobertaHub.from_pretrained(folder).embed(texts[:3]).numpy()
    np.testing.assert_allclose(found, ours, atol=1e-6)  # not those of the mean
    assert identity.read_record(again.state)["settings"]["max_length"] == 12
    config = folder / "config.json"
    config.write_text(config.read_text().replace(f'"pooling": "{pooling}"', '"pooling": "median"'))
    refused(r"config\.json: embedding was not written by an export", read_huggingface, folder)


def test_a_fine_tuning_begins_with_the_vectors_of_the_model_that_it_starts_from(tmp_path, monkeypatch):
    """Of <s> and of length 1, as BGE, GTE and Arctic have them; after an update that changes nothing, and a second."""
    monkeypatch.setattr(constants, "HF_ASSETS_CACHE", str(tmp_path / "assets"))
    checkpoint = write_checkpoint(tmp_path / "ours")
    export_model(ExportSettings(checkpoint=checkpoint, to="huggingface", output_dir=tmp_path / "bare"))
    modules = later("sentence_transformers.models")
    bare = modules.Transformer(str(tmp_path / "bare"), max_seq_length=12)
    pooling = modules.Pooling(bare.get_word_embedding_dimension(), pooling_mode="cls")
    model = sentence_transformers.SentenceTransformer(modules=[bare, pooling, modules.Normalize()], device="cpu")
    model.save(str(tmp_path / "theirs"))
    rows = [f"good {number} so it is,bad {number} or not at all so it is not,{number % 2}" for number in range(20)]
    (tmp_path / "table.csv").write_text("\n".join(["text,text_pair,label", *rows]) + "\n")
    texts = ["A good dog.", "No.", "good " * 30]
    start, expected = tmp_path / "theirs", model.encode(texts)
    for name in ("first", "second"):
        words = ["finetune", "custom", "--kind", "embedding", "--train", tmp_path / "table.csv", "--model", start]
        words += ["--text-pair-column", "text_pair", "--label-column", "label", "--output-dir", tmp_path / name]
        words += ["--quick", "--only", "lr=1e-9", "--set", "max-update=1", "--grid-only"]
        assert main([*map(str, words)]) == 0
        grid = read_grid(tmp_path / name / GRID)
        train(grid.runs[0].arguments_in(tmp_path / name / "run", grid.metric))
        start = tmp_path / name / "run" / "checkpoints" / "checkpoint_last.pt"
        found = RobertaHub.from_pretrained(start).embed(texts).numpy()
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("pooling", "normalize", "changes"),
    [
        ("mean", True, {}),
        ("first", False, {"encoder_normalize_before": True}),
        ("max", True, {"encoder_normalize_before": True}),
    ],
)
def test_a_model_of_vectors_is_exported_to_transformers_as_an_encoder_whose_card_gives_them(
    tmp_path, capfd, pooling, normalize, changes
):
    """It had the masked-LM head of the model below it, and a card that fills masks."""
    checkpoint = write_checkpoint(tmp_path / "ours", **changes)
    trained_for_vectors(checkpoint, pooling=pooling, normalize=normalize)
    settings = ExportSettings(checkpoint=checkpoint, to="huggingface", output_dir=tmp_path / "theirs")
    done = export_model(settings)
    assert done.model.head.name == "encoder" and not done.notes
    card = (tmp_path / "theirs" / "README.md").read_text()
    assert "pipeline_tag: feature-extraction" in card and "gives a vector to a text. Exported" in card
    code = card.split("```python\n")[1].split("```")[0].replace('"FOLDER"', repr(str(tmp_path / "theirs")))
    capfd.readouterr()
    exec(code, found := {})
    assert "MISSING" not in (said := capfd.readouterr().err) and "UNEXPECTED" not in said
    texts = ["A text.", "Another one."]
    np.testing.assert_allclose(found["vectors"], RobertaHub.from_pretrained(checkpoint).embed(texts), atol=1e-6)
    back = read_huggingface(tmp_path / "theirs")
    np.testing.assert_allclose(
        found["vectors"], RobertaHub.from_pretrained(tmp_path / "theirs").embed(texts), atol=1e-6
    )
    assert not back.notes
