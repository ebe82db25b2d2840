"""Hugging Face's ModernBERT: its models here, ours in its classes, and what neither of the two can be."""

import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from roberta_plugin.cli import main
from roberta_plugin.conversion.pretrained import read_any
from roberta_plugin.experiments.starting_model import starting_model
from roberta_plugin.hub import RobertaHub
from roberta_plugin.models.checkpoints import model_options
from roberta_plugin.prediction.predict import PredictSettings, iterate_predictions
from tests.hugging_face import import_transformers
from tests.needed_extensions import needs
from tests.refusals import refused
from tests.tiny_conversions import TEXT, batch, changed, comes_back, exported, imported, opened, write_checkpoint
from tests.tiny_models import MODERN

TOLERANCE = {"atol": 1e-5, "rtol": 1e-4}
OTHERS = {
    "as published": MODERN,
    "biases": {**MODERN, "no_linear_bias": False, "no_norm_bias": False},
    "swiglu, untied": {**MODERN, "feed_forward": "swiglu", "untie_weights_roberta": True, "activation_fn": "relu"},
    "all global": {
        **{name: value for name, value in MODERN.items() if not name.endswith(("local", "window", "every"))},
        **{"layer_norm_eps": 1e-6, "encoder_layers": 2},
    },
}
TEXTS = ["so it is good", "", "e\u0301 o\u0308 \u00e9 [unused1] e\u0301"]
TEXTS.append("The quick brown fox jumps over the lazy dog, and the dog does not mind it at all.")


@torch.no_grad()
@pytest.mark.parametrize("switches", OTHERS.values(), ids=OTHERS)
def test_its_class_computes_what_our_model_does_and_every_bit_comes_back(tmp_path, switches):
    transformers = import_transformers()
    ours = write_checkpoint(tmp_path / "ours", **switches)
    done = exported(ours, tmp_path / "theirs")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(done.folder).eval()
    assert type(theirs).__name__ == "ModernBertForMaskedLM"
    ids, is_token = batch(ours)
    found = theirs(input_ids=ids, attention_mask=is_token.long()).logits
    torch.testing.assert_close(found[is_token], opened(ours)(ids)[0][is_token], **TOLERANCE)
    assert transformers.AutoTokenizer.from_pretrained(done.folder)("so it is good")["input_ids"][0] == 0

    assert not comes_back(ours, done.folder, tmp_path)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A folder as transformers writes it, with a tokenizer that has ModernBERT's steps and places of its symbols."""
    transformers = import_transformers()
    folder = tmp_path_factory.mktemp("theirs")
    made = Tokenizer(models.BPE())
    made.normalizer, made.decoder = normalizers.NFC(), decoders.ByteLevel()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|padding|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator([TEXT] * 20, trainer)
    names = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
    made.add_special_tokens([*names, AddedToken("[MASK]", lstrip=True), *(f"[unused{n}]" for n in range(4))])
    ids = [(name, made.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]",
        mask_token=AddedToken("[MASK]", lstrip=True), model_max_length=60,
    )  # fmt: skip
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.ModernBertConfig(
        vocab_size=made.get_vocab_size() + 3, hidden_size=24, intermediate_size=40, num_hidden_layers=4,
        num_attention_heads=4, max_position_embeddings=64, local_attention=8, pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.cls_token_id, eos_token_id=tokenizer.sep_token_id, cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
    )  # fmt: skip
    model = transformers.ModernBertForMaskedLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    return folder


def logits_by_symbol(folder, text):
    """Their logits (T, V)."""
    transformers = import_transformers()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(**tokenizer(text, return_tensors="pt")).logits[0]


def test_its_model_answers_here_as_there_and_goes_back(theirs, tmp_path):
    done = imported(theirs, tmp_path / "ours")
    (note,) = done.notes
    assert "joins symbols and texts otherwise than RoBERTa's, which is not followed" in note
    hub = RobertaHub.from_pretrained(done.folder)
    assert hub.model.cfg.attention_window == 8 and hub.model.cfg.global_attention_every == 3
    there = logits_by_symbol(theirs, TEXTS[0])
    for text in TEXTS:
        expected = logits_by_symbol(theirs, text)
        with torch.no_grad():
            found = hub.model(hub.encode(text)[None])[0][0]
        assert found.shape == expected.shape
        torch.testing.assert_close(found.sort(-1).values, expected.sort(-1).values, **TOLERANCE)
    (best, *_) = hub.fill_mask("so it is <mask>")
    assert best == hub.fill_mask("so it is [MASK]")[0]
    back = exported(done.folder, tmp_path / "back").folder
    again = logits_by_symbol(back, TEXTS[0])
    torch.testing.assert_close(again, there, **TOLERANCE)
    before, after = (load_file(folder / "model.safetensors") for folder in (theirs, back))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    transformers = import_transformers()
    pipe = transformers.pipeline("fill-mask", model=str(theirs))
    (answer, *_) = pipe("so it is [MASK]", top_k=1)
    assert best.probability == pytest.approx(answer["score"], rel=1e-3)
    card = (back / "README.md").read_text()
    code = card.split("```python\n")[1].split("```")[0].replace('"FOLDER"', repr(str(back)))
    exec(code, {})  # it had <mask>, which its tokenizer does not know
    assert "fills `[MASK]`" in card
    again = transformers.pipeline("fill-mask", model=str(back))("so it is [MASK]")[0]
    assert again["score"] == pytest.approx(answer["score"], rel=1e-3)


def test_its_own_name_of_the_mask_is_a_mask_in_every_text(theirs):
    """Its letters were read: [, M, A, S, K, ]."""
    hub, text = RobertaHub.from_pretrained(theirs), "a fox [MASK] the\x1c [MASK]dog\nand [MASK]"
    transformers = import_transformers()
    wanted = transformers.AutoTokenizer.from_pretrained(theirs)(text)["input_ids"]
    ids = hub.encode(text)
    assert ids.tolist() == hub.encode(text.replace("[MASK]", "<mask>")).tolist() and len(ids) == len(wanted)
    assert int((ids == hub.vocabulary.mask_id).sum()) == 3
    assert (
        hub.codec.encoder.ids(text).tolist() == hub.codec.encoder.ids_of_all([text])[0].tolist() == ids[1:-1].tolist()
    )
    model = transformers.AutoModel.from_pretrained(theirs).eval()
    with torch.no_grad():
        features = model(torch.tensor([wanted])).last_hidden_state[0]
    torch.testing.assert_close(hub.embed([text])[0], features.mean(0), **TOLERANCE)
    words = hub.extract_features_aligned_to_words(text)
    assert [str(word) for word in words][3] == "[MASK]"
    filled = hub.fill_mask(text)
    assert len(filled) == 3 and filled[1][0].text.startswith("a fox [MASK] the\x1c")
    refused(r"needs at least one <mask> or \[MASK\] in the text", hub.fill_mask, "a fox")
    settings = PredictSettings(model=theirs, score="pll")
    refused(r"has a <mask> or \[MASK\]\. Give whole", lambda: list(iterate_predictions(settings, ["a [MASK] fox"])))


@needs("vocabulary_change")
def test_with_new_words_its_symbols_keep_their_names_and_ids(theirs, tmp_path):
    imported(theirs, tmp_path / "ours")
    words = ["--add", "foxhound", "--output-dir", str(tmp_path / "longer")]
    assert main(["tokenizer", "extend", "--checkpoint", str(tmp_path / "ours"), *words]) == 0
    exported(tmp_path / "longer", tmp_path / "back")
    before, after = (import_transformers().AutoTokenizer.from_pretrained(each) for each in (theirs, tmp_path / "back"))
    assert [after.convert_tokens_to_ids(each) for each in before.all_special_tokens] == before.all_special_ids
    hub = RobertaHub.from_pretrained(tmp_path / "longer")
    ours = hub.model(hub.encode("the foxhound")[None])[0][0].sort().values
    found = logits_by_symbol(tmp_path / "back", "the foxhound")[:, : ours.size(1)].sort().values
    torch.testing.assert_close(found, ours, **TOLERANCE)


def test_an_imported_model_is_the_start_of_a_fine_tuning(theirs, tmp_path):
    ours = imported(theirs, tmp_path / "ours").folder
    long = [f"so it is <mask> {'so ' * 90}"]
    (answer,) = iterate_predictions(PredictSettings(model=ours), long)
    assert len(answer["masks"]) == 1, "rotary positions go on"
    settings = PredictSettings(model=ours, max_length=60)
    refused("tokens, and 60 is the most", lambda: list(iterate_predictions(settings, long)))
    start = starting_model(ours / "model.pt")
    assert start.options["feed-forward"] == "geglu" and start.longest == math.inf
    assert {"no-linear-bias": "true", "attention-window": "8", "max-positions": "64"}.items() <= start.options.items()


@pytest.mark.slow  # `test_onnx.py` has graphs of such layers
def test_an_imported_model_becomes_a_graph(theirs, tmp_path):
    ours = imported(theirs, tmp_path / "ours").folder
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    pytest.importorskip("onnxscript", reason="needs onnxscript")
    graph = exported(ours, tmp_path / "onnx", "onnx").folder
    session = onnxruntime.InferenceSession(graph / "model.onnx")
    ids = np.array([Tokenizer.from_file(str(graph / "tokenizer.json")).encode(TEXTS[3]).ids])
    assert ids[0].tolist() == RobertaHub.from_pretrained(ours).encode(TEXTS[3]).tolist()
    found = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0]
    expected = logits_by_symbol(theirs, TEXTS[3]).numpy()
    np.testing.assert_allclose(np.sort(found, -1), np.sort(expected, -1), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sparse_prediction": True}, "sparse_prediction is True, and only False is read here"),
        ({"decoder_bias": False}, "decoder_bias is False, and only True is read here"),
        ({"mlp_bias": True}, "attention_bias, mlp_bias, classifier_bias must all be true or all be false"),
        ({"hidden_activation": "relu"}, "hidden_activation must be gelu or silu, got 'relu'"),
        ({"layer_types": ["sliding_attention"] * 4}, "layer_types must have full_attention in the first and then each"),
        ({"local_attention": 1}, "local_attention must be 2 or more"),
        ({"sliding_window": 1}, "sliding_window is 1, and no value is read here"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "and only the rope_type default is read"),
        ({"rope_parameters": {"full_attention": {"type": "linear"}}}, "and only the rope_type default is read"),
        ({"rope_parameters": {"full_attention": {"rope_theta": float("nan")}}}, "must be a number above 1, got nan"),
        ({"embedding_dropout": 2}, "embedding_dropout must be a number from 0 to 1, got 2"),
        ({"embedding_dropout": True}, "embedding_dropout must be a number from 0 to 1, got True"),
        ({"is_causal": True}, "is_causal is True, and only False is read here"),
        ({"norm_bias": "false"}, "norm_bias is 'false', and only True or False is read here"),
        ({"attention_bias": 0, "mlp_bias": 0, "classifier_bias": 0}, "attention_bias is 0, and only True or False"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings is 'false', and only True or False is read here"),
        ({"classifier_pooling": "max"}, "classifier_pooling is 'max', and only 'cls' or 'mean' is read here"),
        ({"rope_parameters": {"full_attention": {"rope_theta": None}}}, "must be a number above 1, got None"),
        ({"rope_parameters": {"sliding_attention": {"rope_theta": 0}}}, "must be a number above 1, got 0"),
        ({"rope_parameters": None, "local_rope_theta": None}, "must be a number above 1, got None"),
        ({"norm_bias": True}, "norm_bias is true in config.json, and the weights have none for"),
        (
            {"architectures": ["ModernBertForSequenceClassification"]},
            "which has no counterpart here. Classes that are read",
        ),
    ],
    ids=str,
)
def test_what_ours_cannot_be_is_refused_by_name(theirs, tmp_path, capsys, changes, message):
    folder = changed(theirs, "config.json", tmp_path, changes)
    assert main(["import", str(folder), "--output-dir", str(tmp_path / "ours")]) == 2
    assert message in capsys.readouterr().err


def test_older_files_name_the_layers_otherwise(theirs, tmp_path):
    """As the released ones, of 2024."""

    def as_of_2024(content):
        for name in ("layer_types", "rope_parameters"):
            del content[name]
        content |= {"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
        content |= {"position_embedding_type": "absolute", "classifier_pooling": "mean", "torch_dtype": "float32"}

    folder = changed(theirs, "config.json", tmp_path, as_of_2024)
    found, expected = (model_options(read_any(each).state) for each in (folder, theirs))
    assert found == expected
