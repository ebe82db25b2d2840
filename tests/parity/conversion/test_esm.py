"""Hugging Face's ESM: our models with rotary positions in its classes, its models here, and what neither can be."""

import contextlib
import io
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from roberta_plugin.cli import main
from roberta_plugin.conversion import esm
from roberta_plugin.conversion.convert import ExportSettings, ImportSettings, export_model, import_model
from roberta_plugin.conversion.pretrained import read_any
from roberta_plugin.experiments.starting_model import starting_model
from roberta_plugin.hub import RobertaHub
from roberta_plugin.prediction.predict import PredictSettings, iterate_predictions
from tests.hugging_face import import_transformers
from tests.tiny_conversions import HEAD, TEXT, batch, changed, comes_back, opened, write_checkpoint
from tests.tiny_models import ROTARY

transformers = import_transformers()
TOLERANCE = {"atol": 1e-5, "rtol": 1e-4}
AUTO = dict.fromkeys(("classification", "regression", "multi_label"), transformers.AutoModelForSequenceClassification)
AUTO |= {"masked_lm": transformers.AutoModelForMaskedLM, "tagging": transformers.AutoModelForTokenClassification}
MODELS = {
    "plain": ("masked_lm", {}),
    "untied, no norm of embeddings": (
        "masked_lm",
        {"untie_weights_roberta": True, "no_layernorm_embedding": True, "rotary_base": 500.0},
    ),
    "SentencePiece": ("masked_lm", {"sentencepiece": True, "layer_norm_eps": 1e-6}),
    "shared layers": ("masked_lm", {"share_layers": "all"}),
    **{kind: (kind, {"rotary_base": 100.0}) for kind in AUTO if kind != "masked_lm"},
}


def exported(ours, folder, to="huggingface"):
    return export_model(ExportSettings(checkpoint=ours, to=to, output_dir=folder)).folder


def loaded(auto, folder):
    """The model as transformers loads it, without a parameter that is missing or too much."""
    model, report = auto.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    assert type(model).__name__.startswith("EsmFor")
    return model.eval()


@torch.no_grad()
@pytest.mark.parametrize(("kind", "changes"), MODELS.values(), ids=MODELS)
def test_its_class_computes_what_our_model_does_and_every_bit_comes_back(tmp_path, kind, changes):
    ours = write_checkpoint(tmp_path / "ours", kind, **ROTARY, **changes)
    folder = exported(ours, tmp_path / "theirs")
    theirs, model = loaded(AUTO[kind], folder), opened(ours)
    head = {"masked_lm": {}, "tagging": {"head": "token_head"}}.get(kind, {"head": HEAD})
    ids, is_token = batch(ours)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer(TEXT)["input_ids"] == RobertaHub.from_pretrained(ours).encode(TEXT).tolist()
    single = tokenizer(TEXT[:40], return_tensors="pt").input_ids
    found = theirs(input_ids=ids, attention_mask=is_token.long()).logits
    expected = model(ids, **head)[0]
    rows = is_token if found.dim() == 3 else ...
    torch.testing.assert_close(found[rows], expected[rows], **TOLERANCE)
    torch.testing.assert_close(theirs(input_ids=single).logits, model(single, **head)[0], **TOLERANCE)

    notes = comes_back(ours, folder, tmp_path, has_lm_head=kind == "masked_lm")
    assert not notes or kind != "masked_lm"


@pytest.mark.parametrize("kind", ["masked_lm", "classification", "tagging"])
def test_the_code_of_the_card_gives_our_answers(tmp_path, kind):
    ours = write_checkpoint(tmp_path / "ours", kind, **ROTARY)
    folder = exported(ours, tmp_path / "theirs")
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0].replace("FOLDER", str(folder))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, {})
    text = {"masked_lm": "A text with <mask>.", "classification": "A text.", "tagging": "Ann lives in Oslo."}[kind]
    asked = {"words": text.split()} if kind == "tagging" else text
    (answer,) = iterate_predictions(PredictSettings(model=ours, device="cpu"), [asked])
    assert list(iterate_predictions(PredictSettings(model=folder, device="cpu"), [asked])) == [answer]
    if kind == "tagging":
        assert [line.split()[1] for line in printed.getvalue().splitlines()] == answer["tags"]
    elif kind == "classification":
        first = eval(printed.getvalue())[0]
        assert first["label"] == answer["label"]
        assert first["score"] == pytest.approx(max(answer["probabilities"].values()), rel=1e-4)
    else:
        found = [(each["sequence"], pytest.approx(each["score"], rel=1e-4)) for each in eval(printed.getvalue())]
        filled = RobertaHub.from_pretrained(ours).fill_mask(text, topk=len(found))
        assert [(each.text, each.probability) for each in filled] == found


def test_sentence_transformers_gives_our_vectors(tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    ours = write_checkpoint(tmp_path / "ours", **ROTARY)
    folder = exported(ours, tmp_path / "theirs", to="sentence-transformers")
    texts = ["A good dog.", "No.", "so bad a cat"]
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(texts)
    np.testing.assert_allclose(RobertaHub.from_pretrained(ours).embed(texts).numpy(), theirs, atol=1e-5)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A folder as transformers writes it, with a head for contacts that is not zero, and our tokenizer."""
    folder = tmp_path_factory.mktemp("theirs")
    ours = write_checkpoint(folder / "ours", **ROTARY)
    exported(ours, folder / "esm")
    torch.manual_seed(0)
    config = transformers.EsmConfig(
        vocab_size=len(read_any(ours).vocabulary), hidden_size=24, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=4, position_embedding_type="rotary", emb_layer_norm_before=False, pad_token_id=1,
        mask_token_id=0, rope_theta=2000.0,
    )  # fmt: skip
    model = transformers.EsmForMaskedLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder / "esm")
    return folder / "esm"


@torch.no_grad()
def test_its_model_answers_here_as_there_and_starts_a_fine_tuning(theirs, tmp_path):
    assert transformers.EsmConfig(num_labels=3).to_dict().keys() <= esm.FIELDS.keys()
    ours = import_model(ImportSettings(source=theirs, output_dir=tmp_path / "ours"))
    assert not ours.notes
    hub, model = RobertaHub.from_pretrained(ours.folder), loaded(transformers.AutoModelForMaskedLM, theirs)
    ids = hub.encode(TEXT)[None]
    torch.testing.assert_close(hub.model(ids)[0], model(input_ids=ids).logits, **TOLERANCE)
    options = starting_model(ours.folder / "model.pt").options
    assert options["position-encoding"] == "rotary" and options["no-layernorm-embedding"] == "true"

    bare = shutil.copytree(theirs, tmp_path / "bare")
    model.esm.save_pretrained(bare)
    weights = load_file(bare / "model.safetensors")
    frequencies = weights.pop(next(name for name in weights if name.endswith("rotary_embeddings.inv_freq")))
    older = {f"encoder.layer.{n}.attention.self.rotary_embeddings.inv_freq": frequencies.half() for n in range(2)}
    save_file(weights | older, bare / "model.safetensors")  # names until 2026, in 16 bits
    (note,) = import_model(ImportSettings(source=bare, output_dir=tmp_path / "encoder")).notes
    assert "The model has no complete head" in note
    features = RobertaHub.from_pretrained(tmp_path / "encoder").extract_features(ids)
    torch.testing.assert_close(features, model.esm(input_ids=ids).last_hidden_state, **TOLERANCE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_dropout": True}, "token_dropout is True, and only False is read here"),
        ({"position_embedding_type": "absolute"}, "position_embedding_type is 'absolute', and of ESM only 'rotary'"),
        ({"position_embedding_type": None}, "position_embedding_type is None, and of ESM only 'rotary'"),
        ({"is_folding_model": True}, "is_folding_model is True, and only False is read here"),
        ({"rope_theta": 1}, "rope_theta must be a number above 1, got 1"),
        pytest.param(
            {"rope_theta": 10**400}, "rope_theta must be a number above 1, got a number of", id="rope_theta: 1e400"
        ),
        ({"rope_theta": 5e4}, "rotary_embeddings.inv_freq has other frequencies than rope_theta (50000) gives"),
        (
            {"num_attention_heads": 2},
            "2, and by rotary_embeddings.inv_freq heads have 6 dimensions: copy both files again",
        ),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling is {'rope_type': 'yarn'}, and no value is read here"),
        ({"architectures": ["EsmForProteinFolding"]}, "EsmForProteinFolding', which has no counterpart here"),
    ],
    ids=str,
)
def test_what_ours_cannot_be_is_refused_by_name(theirs, tmp_path, capsys, changes, message):
    folder = changed(theirs, "config.json", tmp_path, changes)
    assert main(["import", str(folder), "--output-dir", str(tmp_path / "ours")]) == 2
    assert message in capsys.readouterr().err
