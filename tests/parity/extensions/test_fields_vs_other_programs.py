"""Fields of files as other programs write them: none is unknown, and what changes answers is followed or refused."""

import argparse
import dataclasses
import functools
import importlib
import inspect
import json
import re
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from roberta_plugin.conversion import fields
from roberta_plugin.conversion.convert import ImportSettings, import_model
from roberta_plugin.conversion.families import fields_of
from roberta_plugin.conversion.huggingface import read_huggingface, read_weights, write_weights
from roberta_plugin.conversion.huggingface_parameters import TOKEN_TYPES
from roberta_plugin.conversion.pretrained import read_any
from roberta_plugin.data.tokenizers.huggingface_fields import check_tokenizer
from roberta_plugin.extensions.peft.adapter import FIELDS as OF_ADAPTERS
from roberta_plugin.extensions.sentence_transformers import reading
from roberta_plugin.hub import RobertaHub
from roberta_plugin.models.checkpoints import FAIRSEQ, FAIRSEQ_MODELS, model_arguments
from roberta_plugin.prediction.predict import PredictSettings, iterate_predictions
from tests.hugging_face import import_transformers, later
from tests.refusals import refused
from tests.tiny_conversions import changed, exported, imported, opened, write_checkpoint

transformers = import_transformers()
peft, sentence_transformers = later("peft"), later("sentence_transformers")
modules = later("sentence_transformers.models")
PARTS = "sentence_transformers.models"
TEXTS = ["A good dog.", "No.", "so bad a cat", "good good good"]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A folder of transformers with an encoder, of byte-level BPE and of SentencePiece."""
    folder = tmp_path_factory.mktemp("fields")
    for name, is_sentencepiece in (("roberta", False), ("xlm-roberta", True)):
        checkpoint = write_checkpoint(folder / "ours" / name, sentencepiece=is_sentencepiece)
        exported(checkpoint, folder / name)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder / name)
        transformers.AutoModelForMaskedLM.from_pretrained(folder / name).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)  # all files as they write them
    return folder


def test_every_field_that_other_programs_write_is_known(theirs):
    for name in ("RobertaConfig", "XLMRobertaConfig", "CamembertConfig", "RobertaPreLayerNormConfig"):
        config = getattr(transformers, name)(num_labels=3)
        assert config.to_dict().keys() <= fields.CONFIG.keys()
    assert {field.name for field in dataclasses.fields(peft.LoraConfig)} <= OF_ADAPTERS.keys()
    assert set(modules.Pooling.config_keys) <= reading.POOLING.keys()
    for name in ("roberta", "xlm-roberta"):
        assert not check_tokenizer(theirs / name)
        assert not read_huggingface(theirs / name).notes
        encoder = modules.Transformer(str(theirs / name))
        assert encoder.get_config_dict().keys() <= reading.SENTENCE_BERT.keys()
    parser = argparse.ArgumentParser()
    from fairseq.models.roberta import RobertaModel, base_architecture

    RobertaModel.add_args(parser)
    options = argparse.Namespace()
    base_architecture(options)
    assert {action.dest for action in parser._actions} - {"help"} <= FAIRSEQ.keys()
    assert vars(options).keys() <= FAIRSEQ.keys()


def test_released_files_which_name_no_kind_of_model_are_read(theirs, tmp_path):
    """tokenizer.json of 2020, as of roberta-base, xlm-roberta-base and camembert-base, and config.json of such years."""

    def of_2020(content):
        for name in ("type", "byte_fallback", "ignore_merges"):
            content["model"].pop(name, None)

    fields_then = {"_num_labels": 2, "output_past": True, "language": "english", "name": "Roberta"}
    for name in ("roberta", "xlm-roberta"):
        folder = changed(theirs / name, "tokenizer.json", tmp_path, of_2020)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **fields_then}))
        found, wanted = (read_huggingface(path) for path in (folder, theirs / name))
        assert found.tokenizer.description() == wanted.tokenizer.description() and not found.notes
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        assert tokenizer(TEXTS)["input_ids"] == [RobertaHub.from_pretrained(folder).encode(x).tolist() for x in TEXTS]


def test_fields_of_configurations_that_make_another_model_are_refused_by_name(theirs, tmp_path):
    refused_fields = {
        "position_embedding_type": "relative_key",
        "is_decoder": True,
        "add_cross_attention": True,
        "is_encoder_decoder": True,
        "pad_token_id": 0,
        "pruned_heads": {"0": [1]},
        "quantization_config": {"quant_method": "gptq"},
        "problem_type": "ranking",
        "is_causal": True,
        "transformers_weights": "other.safetensors",
        "tie_word_embeddings": "false",
    }
    for name, value in refused_fields.items():
        folder = changed(theirs / "roberta", "config.json", tmp_path, {name: value})
        refused(rf"config\.json: {name} is .*Use it with transformers", read_huggingface, folder)
    change = {"spiral": 7, "auto_map": {"AutoModel": "x.y"}, "unused": None, "chunk_size_feed_forward": 2}
    notes = read_huggingface(changed(theirs / "roberta", "config.json", tmp_path, change)).notes
    assert "auto_map" in notes[0] and "has fields that are not read here: spiral (7)." in notes[1] and len(notes) == 2


@pytest.mark.parametrize("name", ["roberta", "xlm_roberta", "camembert", "roberta_prelayernorm", "modernbert"])
def test_every_field_that_transformers_reads_to_compute_is_known(name):
    """By its code: is_causal is in no class's own list of fields, and was read here as without effect."""
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    sources = [inspect.getsource(each) for each in (module, transformers.masking_utils, transformers.utils.generic)]
    of_class = set(re.findall(r"config\.([a-z]\w+)", sources[0]))
    of_all = set(re.findall(r"getattr\((?:self\.)?config, \"(\w+)\"", "".join(sources)))
    methods = {
        name for name in dir(transformers.PretrainedConfig) if callable(getattr(transformers.PretrainedConfig, name))
    }
    of_other_classes = {"sliding_window", "attention_chunk_size"}  # and of ModernBERT a name of local_attention
    unknown = (
        (of_class | of_all) - methods - of_other_classes - fields_of({"model_type": name.replace("_", "-")}).keys()
    )
    assert unknown <= {"attn_implementation", "_attn_implementation", "return_dict"}


NAMES = {"0": "a", "1": "b", "2": "c"}


@pytest.mark.parametrize(
    ("num_labels", "fields", "found"),
    [
        (3, {"id2label": {"2": "c", "00": "a", "1": "b"}}, ("classification", ("a", "b", "c"))),
        (3, {"id2label": {"0": 7, "1": 1.5, "2": True}}, ("classification", ("7", "1.5", "True"))),
        (3, {"id2label": None, "num_labels": 3}, ("classification", ())),
        (1, {"problem_type": "multi_label_classification"}, ("multi_label", ("LABEL_0",))),  # a probability, no number
        (3, {"id2label": {"0": "a", "2": "b", "3": "c"}}, "must give each class from 0 to 2 a name of its own"),
        (3, {"id2label": {"1": "a", "2": "b", "3": "c"}}, "must give each class from 0 to 2 a name of its own"),
        (3, {"id2label": {**NAMES, "1": "a"}}, "must give each class from 0 to 2 a name of its own"),
        (3, {"id2label": {"0": "a", "1": "b"}}, "says 2 classes, and the weights have 3"),
        (3, {"id2label": {**NAMES, "3": "d"}}, "says 4 classes, and the weights have 3"),
        (3, {"id2label": None}, "says 2 classes, and the weights have 3"),
        (3, {"problem_type": "regression"}, "problem_type is 'regression' with 3 outputs"),
        (1, {"problem_type": "single_label_classification"}, "problem_type is .* with 1 outputs"),
    ],
    ids=str,
)
def test_classes_have_the_names_of_their_numbers_or_are_refused(theirs, tmp_path, num_labels, fields, found):
    """Names that did not fit were left out without a word, and of two classes of one name an answer had one."""
    base = transformers.AutoModelForSequenceClassification.from_pretrained(theirs / "roberta", num_labels=num_labels)
    shutil.copytree(theirs / "roberta", tmp_path / "theirs")
    base.save_pretrained(tmp_path / "theirs")
    folder = changed(tmp_path / "theirs", "config.json", tmp_path, fields)
    if isinstance(found, tuple):
        model = read_any(folder)
        assert (model.head.kind, model.labels) == found and model.head.num_outputs == num_labels
        (answer,) = iterate_predictions(PredictSettings(model=folder), [{"text": "so good"}])
        logits = base(**transformers.AutoTokenizer.from_pretrained(folder)("so good", return_tensors="pt")).logits
        wanted = logits.sigmoid() if found[0] == "multi_label" else logits.softmax(-1)
        assert [*answer["probabilities"].values()] == pytest.approx(wanted[0].tolist(), abs=1e-5)
    else:
        with pytest.raises(ValueError, match=found):
            read_any(folder)


def test_dropout_in_heads_is_that_of_the_layers_where_no_other_is_said(theirs, tmp_path):
    for config, dropout in (({}, 0.3), ({"classifier_dropout": 0.0}, 0.0), ({"classifier_dropout": 0.2}, 0.2)):
        folder = changed(
            theirs / "roberta",
            "config.json",
            tmp_path,
            {"classifier_dropout": None, "hidden_dropout_prob": 0.3, **config},
        )
        assert read_any(folder).state["cfg"]["model"]["pooler_dropout"] == dropout
        exported(folder, tmp_path / "back")
        head = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "back").classifier
        assert head.dropout.p == dropout  # whoever fine-tunes it on


def test_parts_of_weights_that_would_answer_otherwise_are_refused_or_named(theirs, tmp_path):
    """Each of them answered here by other numbers than in transformers, without a word."""
    word, decoder = "roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight"

    def folder(config, **weights):
        copy = changed(theirs / "roberta", "config.json", tmp_path, config)
        write_weights(copy, {**read_weights(theirs / "roberta"), **weights})
        return copy

    weights = read_weights(theirs / "roberta")
    words, query = weights[word], "roberta.encoder.layer.0.attention.self.query.weight"
    read_any(folder({}, **{decoder: words.clone()}))  # as in pytorch_model.bin
    for config, other, message in (
        ({}, {decoder: words + 1}, "the weights have another matrix. Make it false"),
        ({"tie_word_embeddings": False}, {}, "the weights have no lm_head.decoder.weight"),
        ({"hidden_act": "relu"}, {}, "hidden_act is 'relu', but the masked-LM head of this class always has gelu"),
        ({}, {word: words.to(torch.float8_e4m3fn)}, "holds float8_e4m3fn"),
        ({}, {query: weights[query].to(torch.float8_e5m2)}, f"{query} holds float8_e5m2, and only floating-point"),
        ({}, {query: weights[query].to(torch.int8)}, f"{query} holds int8, and only floating-point numbers of 16 bits"),
    ):
        refused(message, read_any, folder(config, **other))
    assert read_any(folder({"tie_word_embeddings": False}, **{decoder: words + 1})).notes == ()
    bare = transformers.AutoModel.from_pretrained(theirs / "roberta", hidden_act="relu", dtype=torch.float64).eval()
    shutil.copytree(theirs / "roberta", tmp_path / "bare")
    bare.save_pretrained(tmp_path / "bare")
    assert "Its pooler, a layer on the features of <s>, is left out." in read_any(tmp_path / "bare").notes
    ids = torch.tensor([[0, 7, 9, 11, 2]])
    with torch.no_grad():
        found = opened(tmp_path / "bare").double()(ids, features_only=True)[0]
        torch.testing.assert_close(found, bare(ids).last_hidden_state, atol=1e-6, rtol=1e-6)


def test_adapters_beside_the_weights_or_alone_are_named(theirs, tmp_path):
    model = adapter(theirs, tmp_path / "alone")
    for read in (read_any, RobertaHub.from_pretrained):
        with pytest.raises(ValueError, match=r"alone has adapters of peft .*`roberta import MODEL --adapter .*alone"):
            read(tmp_path / "alone")
    shutil.copytree(theirs / "roberta", tmp_path / "both")
    shutil.copytree(tmp_path / "alone", tmp_path / "both", dirs_exist_ok=True)
    assert "has adapters of peft beside its weights" in " ".join(read_any(tmp_path / "both").notes)
    settings = {"source": tmp_path / "both", "adapter": tmp_path / "both", "output_dir": tmp_path / "ours"}
    import_model(ImportSettings(**settings))
    ids = torch.tensor([[0, 7, 9, 11, 2]])
    with torch.no_grad():
        hub = RobertaHub.from_pretrained(tmp_path / "ours")
        found = hub.predict("sentence_classification_head", ids, return_logits=True)
        torch.testing.assert_close(found, model(input_ids=ids).logits, atol=2e-6, rtol=1e-5)


def test_fields_of_tokenizers_that_give_other_ids_are_refused_by_name(theirs, tmp_path):
    def step(part, **values):
        def change(content):
            content[part] = {**(content[part] or {}), **values}

        return change

    metaspace = functools.partial(step, "pre_tokenizer", type="Metaspace")
    cases_of = {
        "roberta": [
            (step("model", dropout=0.1), "dropout is 0.1"),
            (lambda content: content["model"].pop("merges") and content["model"].pop("type"), "has the step None"),
            (lambda content: content.update(pre_tokenizer=None), "pre_tokenizer does not have the step ByteLevel"),
            (step("model", ignore_merges=True), "ignore_merges is True"),
            (step("model", end_of_word_suffix="</w>"), "end_of_word_suffix is '</w>'"),
            (step("pre_tokenizer", use_regex=False), "use_regex is False"),
            (step("normalizer", type="Lowercase"), "normalizer has the step Lowercase, and RoBERTa's have only NFC"),
            (step("pre_tokenizer", type="Whitespace"), "pre_tokenizer has the step Whitespace"),
            (step("post_processor", type="Odd"), "post_processor has the step Odd"),
        ],
        "xlm-roberta": [
            (step("model", byte_fallback=True), "byte_fallback is True"),
            (step("pre_tokenizer", pretokenizers=[{"type": "WhitespaceSplit"}]), "does not have the step Metaspace"),
            (step("model", unk_id=0), "unk_id 0, which is '<s>'"),
            (step("normalizer", type="NFKC"), "normalizer has the step NFKC"),
            (metaspace(replacement="_", prepend_scheme="always"), "replacement is '_'"),
            (metaspace(replacement="\u2581", prepend_scheme="never"), "prepend_scheme is 'never'"),
        ],
    }
    for name, cases in cases_of.items():
        for change, message in cases:
            folder = changed(theirs / name, "tokenizer.json", tmp_path, change)
            assert "tokenizer.json" in refused(message, read_huggingface, folder)
    for change, message in (
        ({"cls_token": "[CLS]"}, r"cls_token is '\[CLS\]', and only '<s>'"),
        ({"mask_token": {"content": "[MASK]", "lstrip": True}}, r"mask_token is '\[MASK\]', and only '<mask>'"),
        ({"add_bos_token": False}, "add_bos_token is False"),
        ({"sp_model_kwargs": {"enable_sampling": True}}, "sp_model_kwargs"),
    ):
        folder = changed(theirs / "roberta", "tokenizer_config.json", tmp_path, change)
        refused(message, read_huggingface, folder)
    for change in (step("post_processor", type="TemplateProcessing"), {"normalizer": {"type": [1]}}):
        folder = changed(theirs / "roberta", "tokenizer.json", tmp_path, change)
        refused(r"tokenizer\.json is not complete", read_huggingface, folder)
    change = {"truncation_side": "left", "tokenizer_class": "BertTokenizer", "errors": "strict", "odd": [1]}
    change["padding_side"] = "left"
    folder = changed(theirs / "roberta", "tokenizer_config.json", tmp_path, change)
    notes = " ".join(read_huggingface(folder).notes)
    assert all(name in notes for name in ("truncation_side", "padding_side", "tokenizer_class", "odd ([1])"))
    assert "errors" not in notes
    joins = {"post_processor": {"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]}}
    folder = changed(theirs / "roberta", "tokenizer.json", tmp_path, joins)
    assert "joins symbols and texts otherwise" in read_huggingface(folder).notes[0]
    folder = changed(theirs / "roberta", "tokenizer.json", tmp_path, {"post_processor": None})
    assert not read_huggingface(folder).notes  # RobertaTokenizer joins as ever
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    assert "joins symbols and texts otherwise" in read_huggingface(folder).notes[0]


@torch.no_grad()
def test_a_second_token_type_comes_back_and_is_said(theirs, tmp_path):
    torch.manual_seed(5)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 36}
    size = len(transformers.AutoTokenizer.from_pretrained(theirs / "roberta"))
    config = transformers.RobertaConfig(vocab_size=size, max_position_embeddings=42, type_vocab_size=2, **sizes)
    model = transformers.RobertaForMaskedLM(config).eval()
    shutil.copytree(theirs / "roberta", tmp_path / "theirs")
    model.save_pretrained(tmp_path / "theirs")
    notes = imported(tmp_path / "theirs", tmp_path / "ours").notes
    assert any("token types have different embeddings" in note for note in notes)
    ids = torch.tensor([[0, 7, 9, 11, 2]])
    torch.testing.assert_close(opened(tmp_path / "ours")(ids)[0], model(input_ids=ids).logits, atol=1e-5, rtol=1e-5)
    exported(tmp_path / "ours", tmp_path / "back")
    before, after = (read_weights(tmp_path / name) for name in ("theirs", "back"))
    assert torch.equal(before[TOKEN_TYPES], after[TOKEN_TYPES]) and len(after[TOKEN_TYPES]) == 2
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "back").eval()
    inputs = {"input_ids": ids, "token_type_ids": torch.tensor([[0, 0, 1, 1, 1]])}
    torch.testing.assert_close(again(**inputs).logits, model(**inputs).logits)


@pytest.mark.parametrize("options", [{}, {"layers_to_transform": [1]}, {"init_lora_weights": "gaussian"}], ids=str)
def test_adapters_that_peft_writes_are_followed(theirs, tmp_path, options):
    adapted = adapter(theirs, tmp_path / "adapter", **options)
    notes = imported(theirs / "roberta", tmp_path / "ours", adapter=tmp_path / "adapter").notes
    assert not [note for note in notes if "adapter_config" in note]
    ids = torch.tensor([[0, 7, 9, 11, 2]])
    with torch.no_grad():
        expected = adapted(input_ids=ids).logits
        hub = RobertaHub.from_pretrained(tmp_path / "ours")
        found = hub.predict("sentence_classification_head", ids, return_logits=True)
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5)


def test_adapters_that_are_not_whole_are_refused_and_older_files_are_read(theirs, tmp_path):
    adapter(theirs, tmp_path / "adapter", target_modules=["query", "value"])
    path, old = (tmp_path / "adapter" / name for name in ("adapter_model.safetensors", "adapter_model.bin"))
    whole = load_file(path)
    name = next(each for each in whole if ".layer.1." in each and "query.lora_A" in each)
    settings = {"source": theirs / "roberta", "output_dir": tmp_path / "ours", "adapter": tmp_path / "adapter"}
    for tensors, message in (
        ({each: value for each, value in whole.items() if ".layer.1." not in each}, "no weights for .*layer.1.*query"),
        (
            {each: value for each, value in whole.items() if "layer.1.attention.self.value" not in each},
            "has no weights for .*layer.1.attention.self.value, and adapter_config.json names it: copy both",
        ),
        ({**whole, name: whole[name].to(torch.float8_e4m3fn)}, "query.lora_A.weight holds float8_e4m3fn"),
    ):
        save_file(tensors, path)
        refused(message, import_model, ImportSettings(**settings))
    save_file(whole, path)
    for change in ({"layers_to_transform": [1]}, {"target_modules": ["query"]}):  # the weights of the others are there
        folder = changed(tmp_path / "adapter", "adapter_config.json", tmp_path, change)
        words = "has weights for encoder.layer.0.attention.self.*, and adapter_config.json does not name it"
        refused(words, import_model, ImportSettings(**settings | {"adapter": folder}, no_comparison=True))
    path.unlink()
    torch.save(whole, old)
    import_model(ImportSettings(**settings))
    torch.save({"a": [1]}, old)
    refused("adapter_model.bin is not a state dict", import_model, ImportSettings(**settings))


def test_an_adapter_of_a_model_of_vectors_is_compared_with_both_programs(theirs, tmp_path):
    """The folder without the adapter had other vectors, for which the import was refused."""
    vectors_model(theirs, tmp_path / "vectors", pooling="cls")
    adapter(theirs, tmp_path / "adapter", auto=transformers.AutoModel, task_type="FEATURE_EXTRACTION")
    imported(tmp_path / "vectors", tmp_path / "ours", adapter=tmp_path / "adapter")
    model = sentence_transformers.SentenceTransformer(str(tmp_path / "vectors"), device="cpu")
    model.load_adapter(str(tmp_path / "adapter"))
    found = RobertaHub.from_pretrained(tmp_path / "ours").embed(TEXTS).numpy()
    np.testing.assert_allclose(found, model.encode(TEXTS), atol=1e-5)


def test_adapters_of_a_model_without_a_head_are_followed(theirs, tmp_path):
    adapted = adapter(theirs, tmp_path / "adapter", auto=transformers.AutoModel, task_type="FEATURE_EXTRACTION")
    settings = {"source": theirs / "roberta", "adapter": tmp_path / "adapter", "output_dir": tmp_path / "ours"}
    import_model(ImportSettings(**settings))
    ids = torch.tensor([[0, 7, 9, 11, 2]])
    with torch.no_grad():
        found = RobertaHub.from_pretrained(tmp_path / "ours").extract_features(ids)
        torch.testing.assert_close(found, adapted(input_ids=ids).last_hidden_state, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"target_modules": ["word_embeddings"]},
            "no place for .*lora_embedding_A.*of embeddings or of a head. Merge",
        ),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"),
        ({"init_lora_weights": "olora"}, "init_lora_weights is 'olora'"),
        ({"use_dora": True}, "use_dora is True"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"lora_bias": True}, "lora_bias is True"),
        ({"rank_pattern": {"layer.0": 2}}, "rank_pattern is"),
        ({"alpha_pattern": {"layer.0": 2}}, "alpha_pattern is"),
        ({"trainable_token_indices": [5]}, "trainable_token_indices is"),
        ({"modules_to_save": ["classifier", "word_embeddings"]}, "whole modules .*word_embeddings"),
    ],
    ids=str,
)
def test_adapters_that_change_more_are_refused_by_name(theirs, tmp_path, options, message):
    adapter(theirs, tmp_path / "adapter", **options)
    refused(message, imported, theirs / "roberta", tmp_path / "ours", adapter=tmp_path / "adapter")


def adapter(theirs, folder, *, auto=None, **options):
    """A model of peft's with trained adapters, which are written into a folder."""
    torch.manual_seed(6)
    auto = auto or transformers.AutoModelForSequenceClassification
    base = auto.from_pretrained(theirs / "roberta", num_labels=2)
    defaults = {"task_type": "SEQ_CLS", "r": 3, "lora_alpha": 4, "target_modules": ["query", "value"]}
    config = peft.LoraConfig(**{**defaults, **options})
    model = peft.get_peft_model(base, config).eval()
    for name, parameter in model.named_parameters():
        if "lora_B" in name and parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    return model


def vectors_model(theirs, folder, *, name="roberta", pooling="mean", more=(), **options):
    """A model of sentence-transformers, which is written into a folder."""
    encoder = modules.Transformer(str(theirs / name), max_seq_length=options.pop("max_seq_length", None))
    parts = [encoder, modules.Pooling(24, pooling_mode=pooling), *more]
    model = sentence_transformers.SentenceTransformer(modules=parts, device="cpu", **options)
    model.save(str(folder))
    return model


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("name", ["roberta", "xlm-roberta"])
def test_vectors_of_sentence_transformers_are_ours(theirs, tmp_path, pooling, name):
    more = [modules.Normalize()] if name == "roberta" else []
    expected = vectors_model(theirs, tmp_path / "theirs", name=name, pooling=pooling, more=more).encode(TEXTS)
    imported(tmp_path / "theirs", tmp_path / "ours")
    for to in ("huggingface", "sentence-transformers"):
        exported(tmp_path / "ours", tmp_path / to, to)
    for folder in ("theirs", "ours", "huggingface", "sentence-transformers"):
        found = RobertaHub.from_pretrained(tmp_path / folder).embed(TEXTS).numpy()
        np.testing.assert_allclose(found, expected, atol=1e-5)
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "sentence-transformers"), device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), expected, atol=1e-5)


def test_lengths_of_sentence_transformers_are_ours(theirs, tmp_path):
    vectors_model(theirs, tmp_path / "theirs", max_seq_length=9)
    assert read_any(tmp_path / "theirs").state["task_state"]["data"]["settings"]["max_length"] == 9


@pytest.mark.parametrize("pooling", ["lasttoken", "weightedmean", "mean_sqrt_len_tokens", ("cls", "mean")], ids=str)
def test_other_poolings_are_refused_by_name(theirs, tmp_path, pooling):
    vectors_model(theirs, tmp_path / "theirs", pooling=pooling)
    named = pooling if isinstance(pooling, str) else "cls and mean"
    message = rf"1_Pooling/config\.json: the pooling is {named}, and only cls, mean, max"
    refused(message, read_any, tmp_path / "theirs")
    (tmp_path / "theirs" / "modules.json").unlink()
    read_any(tmp_path / "theirs")


def test_other_parts_and_prompts_are_refused_or_named(theirs, tmp_path):
    vectors_model(theirs, tmp_path / "dense", more=[modules.Dense(24, 8)])
    refused(r"modules\.json names Dense, and only a Transformer with one Pooling", read_any, tmp_path / "dense")
    prompts = {"query": "query: ", "document": ""}
    vectors_model(theirs, tmp_path / "prompts", prompts=prompts, similarity_fn_name="dot", truncate_dim=8)
    said = " ".join(read_any(tmp_path / "prompts").notes)
    assert all(each in said for each in ("has prompts: {'query': 'query: '}", "_name is 'dot'", "truncate_dim is 8"))
    sentence = "config_sentence_transformers.json"
    for name, content, message in (
        (sentence, {"prompts": ["query: "]}, "prompts must be texts by their names"),
        (
            sentence,
            {"prompts": {"a": "b"}, "default_prompt_name": "c"},
            "default_prompt_name is 'c', and prompts has only",
        ),
        ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case is True"),
        ("modules.json", [{"type": "x.Transformer", "path": ""}], r"names x\.Transformer, and only a"),
        (
            "modules.json",
            [{"type": f"{PARTS}.{each}", "path": each} for each in ("Transformer", "Pooling")],
            "make its path",
        ),
        (
            "modules.json",
            [{"type": f"{PARTS}.Transformer", "path": ""}],
            "names Transformer, and only a Transformer with",
        ),
        ("modules.json", {"0": 1}, "is not a list of the parts of a model"),
        ("sentence_bert_config.json", {"max_seq_length": 0}, "max_seq_length must be 6 or more, got 0"),
    ):
        folder = tmp_path / "prompts"
        before = (folder / name).read_text()
        (folder / name).write_text(json.dumps(content))
        refused(message, read_any, folder)
        (folder / name).write_text(before)


@pytest.mark.parametrize("default", [None, "passage"])
def test_prompts_of_sentence_transformers_are_put_in_front_of_texts_on_all_roads(theirs, tmp_path, default):
    prompts = {"query": "good: ", "passage": "so bad: "}
    model = vectors_model(theirs, tmp_path / "theirs", prompts=prompts, default_prompt_name=default)
    texts = TEXTS[:3]
    expected = {name: model.encode(texts, prompt_name=name) for name in (*prompts, "document", None)}
    assert np.abs(expected["query"] - expected["document"]).max() > 0.01
    imported(tmp_path / "theirs", tmp_path / "ours")
    for to in ("huggingface", "sentence-transformers"):
        exported(tmp_path / "ours", tmp_path / to, to)
        imported(tmp_path / to, tmp_path / f"{to} back")
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "sentence-transformers"), device="cpu")
    assert again.prompts.items() >= prompts.items() and again.default_prompt_name == default
    check_card(tmp_path / "huggingface", model)
    for folder in ("theirs", "ours", "huggingface back", "sentence-transformers back"):
        hub = RobertaHub.from_pretrained(tmp_path / folder)
        for name, wanted in expected.items():
            np.testing.assert_allclose(hub.embed(texts, prompt_name=name).numpy(), wanted, atol=1e-5)
            settings = PredictSettings(model=tmp_path / folder, prompt_name=name)
            found = [each["embedding"] for each in iterate_predictions(settings, [{"text": text} for text in texts])]
            np.testing.assert_allclose(found, wanted, atol=1e-5)
    refused(
        "prompt_name other: the model has no prompt of this name, it has .*query", hub.embed, texts, prompt_name="other"
    )


def check_card(folder, model):
    """Run the code of a model card, whose texts have the model's default prompt."""
    code = (folder / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
    made: dict = {}
    exec(code.replace("FOLDER", str(folder)), made)
    np.testing.assert_allclose(made["vectors"].numpy(), model.encode(["A text.", "Another one."]), atol=1e-6)


@pytest.mark.parametrize(("pooling", "name_of_model"), [("mean", "roberta"), ("cls", "xlm-roberta")])
def test_prompts_that_pooling_leaves_out_are_read_and_not_pooled_on_all_roads(theirs, tmp_path, pooling, name_of_model):
    prompts = {"query": "good: ", "passage": "so bad:", "long": "bad " * 60}
    options = {"prompts": prompts, "default_prompt_name": "passage"}
    model = vectors_model(theirs, tmp_path / "theirs", name=name_of_model, pooling=pooling, **options)
    pooled = model.encode(TEXTS, prompt_name="query")
    model.set_pooling_include_prompt(False)
    model.save(str(tmp_path / "theirs"))
    expected = {name: model.encode(TEXTS, prompt_name=name) for name in (*prompts, "document", None)}
    assert np.abs(expected["query"] - pooled).max() > 0.01
    imported(tmp_path / "theirs", tmp_path / "ours")
    for to in ("huggingface", "sentence-transformers"):
        exported(tmp_path / "ours", tmp_path / to, to)
    for folder in ("theirs", "ours", "huggingface", "sentence-transformers"):
        hub = RobertaHub.from_pretrained(tmp_path / folder)
        for name, wanted in expected.items():
            np.testing.assert_allclose(hub.embed(TEXTS, prompt_name=name).numpy(), wanted, atol=1e-6)
        settings = PredictSettings(model=tmp_path / folder, prompt_name="query")
        found = [each["embedding"] for each in iterate_predictions(settings, [{"text": text} for text in TEXTS])]
        np.testing.assert_allclose(found, expected["query"], atol=1e-6)
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "sentence-transformers"), device="cpu")
    for name, wanted in expected.items():
        np.testing.assert_allclose(again.encode(TEXTS, prompt_name=name), wanted, atol=1e-6)
    check_card(tmp_path / "huggingface", model)


def test_a_folder_of_sentence_transformers_is_asked_for_what_it_was_made_for(theirs, tmp_path):
    expected = vectors_model(theirs, tmp_path / "vectors", pooling="cls", max_seq_length=9).encode(["bad " * 20])[0]
    (answer,) = iterate_predictions(PredictSettings(model=tmp_path / "vectors"), [{"text": "bad " * 20}])
    np.testing.assert_allclose(answer["embedding"], expected, atol=1e-5)
    head = transformers.AutoModelForSequenceClassification.from_pretrained(theirs / "roberta", num_labels=1)
    shutil.copytree(theirs / "roberta", tmp_path / "scores")
    head.save_pretrained(tmp_path / "scores")
    cross_encoder = sentence_transformers.CrossEncoder(str(tmp_path / "scores"), device="cpu")
    cross_encoder.save_pretrained(str(tmp_path / "cross"))
    assert "activation_fn is 'torch.nn.modules.activation.Sigmoid'" in read_any(tmp_path / "cross").notes[0]
    (answer,) = iterate_predictions(PredictSettings(model=tmp_path / "cross"), [{"text": "good", "text_pair": "bad"}])
    found = torch.tensor(answer["score"]).sigmoid()
    assert found == pytest.approx(cross_encoder.predict([("good", "bad")])[0], abs=1e-5)


def test_options_of_fairseq_that_make_another_encoder_are_refused_by_name(theirs):
    path = theirs / "ours" / "roberta" / "model.pt"
    state = torch.load(path, weights_only=False)
    options = dict(state["cfg"]["model"])
    for name, value in {"no_scale_embedding": False, "encoder_xformers_att_config": "{}", "d2v2_multi": True}.items():
        for model in ("fast_roberta", FAIRSEQ_MODELS[0]):
            state["cfg"]["model"] = {**options, "_name": model, name: value}
            refused(rf"model\.pt: {name} is .*fairseq alone", model_arguments, state, path)


def test_what_prepared_the_texts_of_fairseq_is_said(theirs, tmp_path, caplog):
    shutil.copytree(theirs / "ours" / "roberta", tmp_path / "ours")
    state = torch.load(tmp_path / "ours" / "model.pt", weights_only=False)
    state["cfg"]["task"] = {"_name": "sentence_prediction", "init_token": 0, "separator_token": None}
    state["cfg"] |= {"bpe": {"_name": "hf_byte_bpe", "bpe_add_prefix_space": True}, "tokenizer": {"_name": "moses"}}
    torch.save(state, tmp_path / "ours" / "model.pt")
    RobertaHub.from_pretrained(tmp_path / "ours")
    said = " ".join(record.getMessage() for record in caplog.records)
    names = ("separator_token is None", "bpe_add_prefix_space is True", "tokenizer is 'moses'")
    assert all(name in said for name in names)
    assert "init_token" not in said


def test_notes_are_said_where_a_folder_is_used_as_it_is(theirs, tmp_path, caplog):
    folder = changed(theirs / "roberta", "tokenizer_config.json", tmp_path, {"truncation_side": "left"})
    RobertaHub.from_pretrained(folder)
    assert any("truncation_side is 'left', which is not followed" in each.getMessage() for each in caplog.records)
    folder = changed(theirs / "roberta", "tokenizer_config.json", tmp_path, {"model_max_length": 12})
    assert read_any(folder).state["task_state"]["data"]["settings"]["max_length"] == 12
