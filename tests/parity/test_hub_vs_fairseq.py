"""RobertaHub against fairseq's RobertaHubInterface: same files, same weights, same ids, features and answers."""

import inspect
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import collate_tokens
from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.alignment_utils import align_bpe_to_words, align_features_to_words
from fairseq.models.roberta.hub_interface import RobertaHubInterface

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.hub import RobertaHub
from roberta_plugin.models.roberta import FastRobertaModel
from roberta_plugin.registry import HUB_METHODS
from tests.tiny_benchmarks import write_prepared, write_tokenizer
from tests.tiny_checkpoints import state_of
from tests.tiny_models import options

TEXTS = ["Hello world", " world", "", "It's naïve — 3.14% of the €2,000 🙂 emoji.", "a  b\n\tc ", "東京タワー"]


def files_of(folder):
    """GPT-2's files, as fairseq's hub takes them."""
    return {"gpt2_encoder_json": str(folder / "encoder.json"), "gpt2_vocab_bpe": str(folder / "vocab.bpe")}


def assert_filled_alike(ours, theirs, text, topk):
    found, expected = ours.fill_mask(text, topk=topk), theirs.fill_mask(text, topk=topk)
    assert [(filling.text, filling.token) for filling in found] == [(text, token) for text, _, token in expected]
    torch.testing.assert_close([f.probability for f in found], [p for _, p, _ in expected], atol=1e-6, rtol=1e-4)


@pytest.fixture(scope="module")
def hubs(shared_data):
    folder = shared_data / "gpt2_bpe"
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    mask_idx = dictionary.add_symbol("<mask>")
    task = SimpleNamespace(source_dictionary=dictionary, mask_idx=mask_idx, max_positions=lambda: 64)
    torch.manual_seed(0)
    model = FastRobertaModel.build_model(options(encoder_layers=1, encoder_embed_dim=16), task).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    bpe = Namespace(bpe="gpt2", **files_of(folder))
    theirs = RobertaHubInterface(Namespace(bpe=bpe), task, model)
    return RobertaHub(model, tokenizer=load_tokenizer(folder), vocabulary=Vocabulary.load(folder / "dict.txt")), theirs


@pytest.mark.parametrize("text", TEXTS)
def test_encode_and_decode_are_fairseqs(hubs, text):
    ours, theirs = hubs
    ids = ours.encode(text)
    assert torch.equal(ids, theirs.encode(text))
    assert ours.decode(ids) == theirs.decode(ids) == text


def test_pairs_are_fairseqs(hubs):
    ours, theirs = hubs
    for more in ({}, {"no_separator": True}):
        ids = ours.encode("Is it so?", " Yes, it is.", "Or not.", **more)
        assert torch.equal(ids, theirs.encode("Is it so?", " Yes, it is.", "Or not.", **more))
        if not more:
            assert ours.decode(ids) == theirs.decode(ids) == ["Is it so?", " Yes, it is.", "Or not."]


def test_features_are_fairseqs(hubs):
    ours, theirs = hubs
    tokens = ours.encode("The quick brown fox.")
    torch.testing.assert_close(ours.extract_features(tokens), theirs.extract_features(tokens))
    hidden = ours.extract_features(tokens, return_all_hiddens=True)
    expected = theirs.extract_features(tokens, return_all_hiddens=True)
    assert len(hidden) == len(expected) == 2
    for one, other in zip(hidden, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("text", ["The capital of France is <mask>.", "<mask> is a city", "pre<mask> and more"])
def test_filled_masks_are_fairseqs(hubs, text):
    assert_filled_alike(*hubs, text, 20)


def in_fairseqs_hub(state, folder, data):
    """A checkpoint of ours, loaded by fairseq's own RobertaModel.from_pretrained."""
    state["cfg"] |= {"bpe": None, "common": {"seed": 1}}
    torch.save(state, folder / "model.pt")
    return RobertaModel.from_pretrained(str(folder), "model.pt", str(data), **files_of(data)).eval()


def test_our_masked_lm_checkpoint_works_in_fairseqs_hub(tmp_path):
    data = write_tokenizer(tmp_path / "tokenizer")
    theirs = in_fairseqs_hub(state_of(data), tmp_path, data)
    assert_filled_alike(RobertaHub.from_pretrained(tmp_path, data=data), theirs, "good <mask> bad", 9)


def test_our_fine_tuned_checkpoint_tells_labels_in_fairseqs_hub(tmp_path):
    prepared = write_prepared(tmp_path / "set")
    task = {"_name": "roberta_sentence_prediction", "data": str(prepared.folder), "max_positions": 40}
    state = state_of(prepared.folder, task=task, heads={"sentence_classification_head": 2})
    theirs = in_fairseqs_hub(state, tmp_path, prepared.folder)
    dictionary = theirs.task.label_dictionary
    assert [dictionary.string([label + dictionary.nspecial]) for label in range(2)] == ["no", "yes"]
    ours = RobertaHub.from_pretrained(tmp_path)
    tokens = ours.encode("good", " bad")
    expected = theirs.predict("sentence_classification_head", tokens)
    torch.testing.assert_close(ours.predict("sentence_classification_head", tokens), expected)


def test_every_call_of_fairseqs_hub_is_there_with_its_arguments():
    """The first argument is given without its name in all of fairseq's examples."""
    calls = [name for name, value in vars(RobertaHubInterface).items() if callable(value) and not name.startswith("_")]
    assert len(calls) >= 8
    for name in calls:
        _, _first, *wanted = inspect.signature(getattr(RobertaHubInterface, name)).parameters.values()
        ours = inspect.signature(
            HUB_METHODS.load(name) if name in HUB_METHODS else getattr(RobertaHub, name)
        ).parameters
        named = {each.name for each in wanted if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)}
        assert named <= ours.keys(), name
    assert isinstance(RobertaHub.device, property)


WORDS = {
    'I said, "hello RoBERTa."': ["I", "said", ",", '"', "hello", "RoBERTa", ".", '"'],
    "It's na\u00efve, 3.14% of \u20ac2,000": ["It", "'s", "na\u00efve", ",", "3.14", "%", "of", "\u20ac", "2,000"],
    "unbelievably well-known": ["un", "believably", "well", "-", "known"],
}


@pytest.mark.parametrize("sentence", WORDS)
def test_aligned_words_are_fairseqs(hubs, sentence):
    """Given the same words; fairseq has them from spaCy."""
    ours, theirs = hubs
    tokens = theirs.encode(sentence)
    alignment = align_bpe_to_words(theirs, tokens, WORDS[sentence])
    expected = align_features_to_words(theirs, theirs.extract_features(tokens).squeeze(0), alignment)
    found = ours.extract_features_aligned_to_words(sentence, words=WORDS[sentence])
    assert [str(word) for word in found] == ["<s>", *WORDS[sentence], "</s>"]
    torch.testing.assert_close(torch.stack([word.vector for word in found]), expected, atol=1e-5, rtol=1e-4)


def test_the_examples_of_fairseqs_readme_work_as_written_there(tmp_path):
    """Encoding, features, batched predictions of pairs, registering a head, aligned words and pronouns."""
    folder = write_tokenizer(tmp_path)
    torch.save(state_of(folder, heads={"mnli": 3}), folder / "model.pt")
    roberta = FastRobertaModel.from_pretrained(str(folder), checkpoint_file="model.pt", data_name_or_path=".")
    roberta.eval()  # disable dropout (or leave in train mode to finetune)

    tokens = roberta.encode("good bad!")
    assert roberta.decode(tokens) == "good bad!"
    last_layer_features = roberta.extract_features(tokens)
    assert last_layer_features.size() == torch.Size([1, len(tokens), 24])
    all_layers = roberta.extract_features(tokens, return_all_hiddens=True)
    assert len(all_layers) == 4
    assert torch.all(all_layers[-1] == last_layer_features)

    batch_of_pairs = [["good good", "bad"], ["bad", "bad bad"], ["a", "b"]]
    batch = collate_tokens([roberta.encode(pair[0], pair[1]) for pair in batch_of_pairs], pad_idx=1)
    logprobs = roberta.predict("mnli", batch)
    assert len(logprobs.argmax(dim=1).tolist()) == 3
    torch.testing.assert_close(roberta.predict("mnli", batch_of_pairs), logprobs)

    roberta.register_classification_head("new_task", num_classes=3)
    assert roberta.predict("new_task", tokens).grad_fn is not None

    doc = roberta.extract_features_aligned_to_words('I said, "hello RoBERTa."')
    assert len(doc) == 10
    for tok in doc:
        assert f"{tok!s:10}{tok.vector[:5]} (...)".startswith(str(tok))

    answer = roberta.disambiguate_pronoun("The _good_ would not fit in the bad because [it] was too.")
    assert answer in (True, False)
    masked = roberta.fill_mask("The first good <mask> of it", topk=3)
    assert [len(each) for each in masked] == [3, 3, 3]
