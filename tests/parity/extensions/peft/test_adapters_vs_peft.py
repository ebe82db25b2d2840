"""Adapters compute what peft computes with the same files, in both directions."""

import json
import math
import re
from contextlib import nullcontext

import pytest
import torch

from roberta_plugin.conversion.convert import ExportSettings, export_model
from roberta_plugin.conversion.portable_code import CODE
from roberta_plugin.hub import RobertaHub
from roberta_plugin.models.adapters import TARGETS, add_adapters
from roberta_plugin.models.state_dicts import SEGMENTS
from tests.hugging_face import code_in, import_transformers, later
from tests.refusals import refused
from tests.tiny_conversions import HEAD, batch, exported, imported, opened, write_checkpoint
from tests.tiny_models import ROTARY
from tests.tiny_predictors import CLASSES, write_predictor

peft = later("peft")
safetensors = pytest.importorskip("safetensors.torch")
transformers = import_transformers()
TRUST = {"trust_remote_code": True}
TEXTS = ["good bad good", "bad", "a good thing is not so bad, is it", ("good or bad", "is it")]


@pytest.fixture(scope="module", params=[{}, {**ROTARY, "qk_norm": True}], ids=["RoBERTa", "code, segments"])
def work(request, tmp_path_factory):
    """A base model, the same as a folder of Hugging Face, and the same with adapters and a head."""
    folder = tmp_path_factory.mktemp("adapters")
    write_predictor(folder / "base", "fill_mask", **request.param)
    if "qk_norm" in request.param:
        base = torch.load(folder / "base" / "model.pt", weights_only=False)
        base["model"][SEGMENTS] = torch.randn(2, 24, generator=torch.Generator().manual_seed(2))
        torch.save(base, folder / "base" / "model.pt")
    exported(folder / "base", folder / "theirs")
    write_predictor(folder / "tuned", "single", **request.param)
    state = torch.load(folder / "tuned" / "model.pt", weights_only=False)
    state["model"] |= torch.load(folder / "base" / "model.pt", weights_only=False)["model"]
    torch.save(state, folder / "tuned" / "model.pt")
    model = RobertaHub.from_pretrained(folder / "tuned").model
    torch.manual_seed(3)
    add_adapters(model, rank=3, alpha=5.0, targets=TARGETS, first_layer=1)
    for name, parameter in model.named_parameters():
        if name.endswith("lora_B"):
            torch.nn.init.normal_(parameter, std=0.3)
    torch.save({**state, "model": model.state_dict()}, folder / "tuned" / "model.pt")
    model.eval()
    with code_in(folder / "modules"):
        yield folder, model


def inputs_of(folder):
    tokens = RobertaHub.from_pretrained(folder).encode(TEXTS)
    return torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=1)


def outputs_of(model, tokens):
    with torch.no_grad():
        return model(input_ids=tokens, attention_mask=tokens.ne(1).long()).logits


def classifier_in(folder, **options):
    return transformers.AutoModelForSequenceClassification.from_pretrained(folder, **options, trust_remote_code=True)


def assert_same_logits(found, expected):
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5)


def logits_here(folder, tokens):
    return RobertaHub.from_pretrained(folder).predict(CLASSES, tokens, return_logits=True)


def test_peft_reads_what_we_export(work):
    folder, model = work
    exported(folder / "tuned", folder / "adapter", "peft")
    config = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["task_type"]) == (3, 5.0, "SEQ_CLS")
    theirs = peft.PeftModel.from_pretrained(classifier_in(folder / "theirs", num_labels=2), folder / "adapter").eval()
    tokens = inputs_of(folder / "base")
    with torch.no_grad():
        ours = model(tokens, head=CLASSES)[0]
    assert_same_logits(outputs_of(theirs, tokens), ours)
    assert_same_logits(logits_here(folder / "tuned", tokens), ours)
    with theirs.disable_adapter():
        without = outputs_of(theirs, tokens)
    assert (without - ours).abs().max() > 1e-3, "the adapters matter"
    files = "adapter/adapter_model.safetensors", "theirs/model.safetensors"
    sizes = [(folder / name).stat().st_size for name in files]
    assert sizes[0] < 0.7 * sizes[1]
    again = imported(folder / "base", folder / "again", adapter=folder / "adapter", labels=("no", "yes"))
    assert "Adapters do not say whether a text may have several labels: it has one here." in again.notes
    assert_same_logits(logits_here(folder / "again", tokens), ours)
    exported(folder / "tuned", folder / "merged")
    assert_same_logits(outputs_of(classifier_in(folder / "merged").eval(), tokens), ours)


@pytest.mark.parametrize("is_scaled_by_root", [False, True])
def test_we_read_what_peft_saves(work, tmp_path, is_scaled_by_root):
    folder, _ = work
    targets = ["query", "attention.output.dense", "intermediate.dense"]
    options = {"target_modules": targets, "use_rslora": is_scaled_by_root}
    config = peft.LoraConfig(task_type="SEQ_CLS", r=4, lora_alpha=6, **options)
    theirs = peft.get_peft_model(classifier_in(folder / "theirs", num_labels=3), config).eval()
    torch.manual_seed(4)
    for name, parameter in theirs.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    theirs.save_pretrained(tmp_path / "adapter")
    for source in ("theirs", "base"):
        imported(folder / source, tmp_path / source, adapter=tmp_path / "adapter", labels=("a", "b", "c"))
        tokens = inputs_of(folder / "base")
        assert_same_logits(logits_here(tmp_path / source, tokens), outputs_of(theirs, tokens))
        assert RobertaHub.from_pretrained(tmp_path / source).labels == ["a", "b", "c"]


def test_adapters_of_another_form_or_model_are_refused(work, tmp_path):
    folder, _ = work
    without = "has no adapters: fine-tune it with --set lora-rank=8"
    refused(without, exported, folder / "base", tmp_path / "none", "peft")
    exported(folder / "tuned", tmp_path / "adapter", "peft")
    path = tmp_path / "adapter" / "adapter_config.json"
    content = json.loads(path.read_text())

    def refuse(message, **options):
        refused(message, imported, folder / "base", tmp_path / "out", adapter=tmp_path / "adapter", **options)

    for change, message in (
        ({"use_dora": True}, "use_dora is True"),
        ({"r": 5}, "it is for another model"),
        ({"lora_alpha": "much"}, "r and lora_alpha must be numbers"),
        ({"lora_alpha": math.nan}, "r and lora_alpha must be numbers"),
        ({"r": True}, "r and lora_alpha must be numbers"),
        ({"use_rslora": "no"}, "use_rslora is 'no', and only True or False is read here"),
        ({"target_modules": ["query", "embeddings.LayerNorm"]}, "target_modules names embeddings.* no weights of it"),
        ({"modules_to_save": ["score", "qa_outputs"]}, "modules_to_save names score, and .* has no weights of it"),
        ({"modules_to_save": "classifier"}, "modules_to_save must be a list of names"),
    ):
        path.write_text(json.dumps(content | change))
        refuse(message)
    path.write_text(json.dumps(content))
    weights = tmp_path / "adapter" / "adapter_model.safetensors"
    whole = safetensors.load_file(weights)
    dense = "base_model.model.classifier.dense.weight"
    for value in ({}, {dense: whole[dense][:-1].contiguous()}):
        safetensors.save_file({name: each for name, each in whole.items() if name != dense} | value, weights)
        refuse(r"adapter_model\.safetensors: its head is not complete, or of another")
    for number in (math.nan, math.inf):
        spoiled = whole[dense].clone()
        spoiled[1, 2] = number
        safetensors.save_file({**whole, dense: spoiled}, weights)
        refuse(rf"adapter_model\.safetensors: {re.escape(dense)} holds NaN or infinite")
    safetensors.save_file({name: each * 1e30 if ".lora_" in name else each for name, each in whole.items()}, weights)
    refuse(r"adapter_model\.safetensors: encoder.* holds NaN or infinite")  # their product
    path.unlink()
    refuse(r"has no adapter_config\.json", error=FileNotFoundError)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "auto", "name"),
    [
        ("multiple_choice", "MultipleChoice", HEAD),  # whose pooler, a part of the head, was left behind
        ("question_answering", "QuestionAnswering", "span_head"),
        ("tagging", "TokenClassification", "token_head"),
    ],
)
def test_heads_of_all_kinds_go_along_and_come_back(tmp_path, kind, auto, name):
    base, tuned = write_checkpoint(tmp_path / "base"), write_checkpoint(tmp_path / "tuned", kind)
    state, below = (torch.load(each / "model.pt", weights_only=False) for each in (tuned, base))
    torch.save({**state, "model": {**state["model"], **below["model"]}}, tuned / "model.pt")
    model = RobertaHub.from_pretrained(tuned).model
    add_adapters(model, rank=2, alpha=4.0, targets=TARGETS, first_layer=0)
    for parameter_name, parameter in model.named_parameters():
        if parameter_name.endswith("lora_B"):
            torch.nn.init.normal_(parameter, std=0.3)
    torch.save({**state, "model": model.eval().state_dict()}, tuned / "model.pt")
    for to, source, folder in (("huggingface", base, "theirs"), ("peft", tuned, "adapter")):
        export_model(ExportSettings(checkpoint=source, to=to, output_dir=tmp_path / folder))
    classes = {"num_labels": 5} if kind == "tagging" else {}
    theirs = getattr(transformers, f"AutoModelFor{auto}").from_pretrained(tmp_path / "theirs", **classes)
    theirs = peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter").eval()
    imported(base, tmp_path / "back", adapter=tmp_path / "adapter")
    ids, is_token = batch(base)
    inputs = {"input_ids": ids, "attention_mask": is_token.long()}
    with torch.no_grad():
        found = theirs(**({key: each[None] for key, each in inputs.items()} if kind == "multiple_choice" else inputs))
        ours, back = (each(ids, head=name)[0] for each in (model, opened(tmp_path / "back")))
    if kind == "question_answering":
        torch.testing.assert_close(found.end_logits[is_token], ours.end[is_token], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(tuple(back), tuple(ours), atol=1e-5, rtol=1e-5)
    else:
        logits = found.logits.view(-1, 1) if kind == "multiple_choice" else found.logits[is_token]
        rows = ... if kind == "multiple_choice" else is_token
        torch.testing.assert_close(logits, ours[rows], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(back[rows], ours[rows], atol=1e-5, rtol=1e-5)


def test_a_head_of_another_class_than_the_model_below_it_has_no_adapter(work, tmp_path):
    folder, _ = work
    state = torch.load(folder / "tuned" / "model.pt", weights_only=False)
    state["cfg"]["model"]["pooler_activation_fn"] = "relu"
    torch.save(state, tmp_path / "model.pt")
    needs_code = (folder / "theirs" / CODE.name).exists()
    expected = (
        nullcontext()
        if needs_code
        else pytest.raises(ValueError, match="transformers does not have for the model's class")
    )
    with expected:
        settings = ExportSettings(checkpoint=tmp_path, data=folder / "tuned", to="peft", output_dir=tmp_path / "peft")
        export_model(settings)
