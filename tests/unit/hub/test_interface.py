"""RobertaHub: text in, ids, features and filled masks out, and errors that say what is missing."""

import copy
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary

from roberta_plugin import register
from roberta_plugin.conversion.pretrained import fairseq_dictionary
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.hub import RobertaHub, find_checkpoint, find_dictionary, running
from roberta_plugin.hub.texts import TextCodec
from roberta_plugin.models.roberta import FastRobertaModel
from tests.refusals import refused
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_checkpoints import state_of
from tests.tiny_hub import PIECES, check_refusals, write_hub
from tests.tiny_models import options
from tests.tiny_tokenizers import train_tokenizer

TEXT = "The quick brown fox jumps over the lazy dog, and the dog does not mind it at all.\n" * 20


class FixedScores(torch.nn.Module):
    """A model whose scores are known: symbol number `favourite + position` is the most probable everywhere."""

    def __init__(self, vocab_size: int, favourite: int) -> None:
        super().__init__()
        self.vocab_size, self.favourite = vocab_size, favourite
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.encoder = SimpleNamespace(lm_head=torch.nn.Identity())

    def max_positions(self) -> int:
        return 30

    def forward(self, tokens, *, features_only, has_padding):
        scores = torch.zeros(*tokens.shape, self.vocab_size)
        for position in range(tokens.size(1)):
            scores[:, position, self.favourite + position] = 9.0
        return scores, {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    (folder / "text.txt").write_text(TEXT)
    train_tokenizer("byte_level_bpe", [folder / "text.txt"], vocab_size=300, folder=folder)
    return folder


@pytest.fixture
def hub(folder):
    return make_hub(folder)


def make_hub(folder, **switches):
    vocabulary = Vocabulary.load(folder / "dict.txt")
    dictionary = type("D", (), {"pad": lambda self: 1, "__len__": lambda self: len(vocabulary)})()
    task = SimpleNamespace(source_dictionary=dictionary, max_positions=lambda: 30)
    torch.manual_seed(0)
    model = FastRobertaModel.build_model(options(max_positions=30, **switches), task)
    return RobertaHub(model, tokenizer=load_tokenizer(folder), vocabulary=vocabulary).eval()


def test_the_model_class_hands_out_the_hub_and_refuses_what_it_cannot_follow(monkeypatch):
    register()
    calls = []
    monkeypatch.setattr(RobertaHub, "from_pretrained", lambda *args, **options: calls.append((args, options)) or "hub")
    assert FastRobertaModel.from_pretrained("runs/books") == "hub"
    FastRobertaModel.from_pretrained("runs/books", checkpoint_file="a.pt", data_name_or_path="data-bin", bpe="gpt2")
    assert calls == [
        (("runs/books", None, None, None), {"data_name_or_path": None, "bpe": None}),
        (("runs/books", "a.pt", None, None), {"data_name_or_path": "data-bin", "bpe": "gpt2"}),
    ]
    given = {"gpt2_vocab_bpe": "vocab.bpe", "error": TypeError}
    refused("does not take gpt2_vocab_bpe", FastRobertaModel.from_pretrained, "runs/books", **given)


def test_masks_survive_encoding_and_decoding(hub):
    tokens = hub.encode("The quick <mask> fox jumps over the <mask>.")
    assert tokens.eq(hub.vocabulary.mask_id).sum() == 2
    assert tokens[0] == 0 and tokens[-1] == 2
    assert hub.decode(tokens) == "The quick <mask> fox jumps over the <mask>."
    assert hub.decode(tokens.tolist()) == hub.decode(tokens)


def test_several_masks_have_a_list_each_in_their_order(hub, folder):
    vocabulary = hub.vocabulary
    fixed = RobertaHub(FixedScores(len(vocabulary), 100), tokenizer=hub.tokenizer, vocabulary=vocabulary)
    text = "The quick <mask> fox jumps <mask> the dog."
    answers = fixed.fill_mask(text, topk=3)
    positions = fixed.encode(text).eq(vocabulary.mask_id).nonzero()[:, 0].tolist()
    assert [len(fillings) for fillings in answers] == [3, 3]
    for which, (fillings, position) in enumerate(zip(answers, positions, strict=True)):
        expected = hub.tokenizer.decode([int(vocabulary.symbols[100 + position])])
        assert fillings[0].token == expected
        assert fillings[0].probability > fillings[1].probability
        assert fillings[0].text.count("<mask>") == 1
        part = fillings[0].text.split("<mask>")[which]
        assert expected.strip() in part


def test_one_mask_is_one_list_whose_probabilities_fall(hub):
    fillings = hub.fill_mask("The quick brown <mask> jumps.", topk=7)
    probabilities = [filling.probability for filling in fillings]
    assert len(fillings) == 7
    assert probabilities == sorted(probabilities, reverse=True)
    assert 0 < sum(probabilities) <= 1
    assert all("<mask>" not in filling.text for filling in fillings)


def test_features_and_classes_have_the_documented_shapes(hub):
    tokens = hub.encode("The quick fox")
    assert hub.extract_features(tokens).shape == (1, len(tokens), 24)
    assert [h.shape for h in hub.extract_features(tokens, return_all_hiddens=True)] == [(1, len(tokens), 24)] * 4
    hub.model.register_classification_head("task", num_classes=3)
    torch.testing.assert_close(hub.predict("task", tokens).exp().sum(), torch.tensor(1.0))
    assert hub.predict("task", tokens.unsqueeze(0).repeat(2, 1), return_logits=True).shape == (2, 3)


def test_impossible_calls_are_refused(hub):
    refused("needs at least one <mask>", hub.fill_mask, "No hole here.")
    refused("topk must be 1 or more, got 0", hub.fill_mask, "A <mask>.", topk=0)
    refused(r"has \d+ tokens, and this model reads at most 30", hub.extract_features, hub.encode(TEXT))


def test_of_a_text_that_only_rotary_positions_reach_all_is_read_where_it_is_asked_for(folder, hub):
    hub.register_classification_head("task", num_classes=3)
    refused(
        "max_length must be a whole number from 6 to the 30 positions of the model",
        *(hub.predict, "task", [TEXT]),
        max_length=31,
    )
    hub = make_hub(folder, position_encoding="rotary")
    hub.register_classification_head("task", num_classes=3)
    ids = hub.encode(TEXT.strip())
    assert len(ids) > 60
    with torch.no_grad():
        whole = hub.predict("task", [TEXT], max_length=len(ids))
        torch.testing.assert_close(whole, hub.predict("task", ids))
        assert not torch.equal(whole, hub.predict("task", [TEXT])), "which is cut to the length of its training"


def test_a_missing_checkpoint_or_vocabulary_is_named(tmp_path):
    message, missing = r"No checkpoint in .*checkpoint_best\.pt.*--save-dir", {"error": FileNotFoundError}
    refused(message, find_checkpoint, tmp_path, None, **missing)
    for number in (10, 2, 1):
        (tmp_path / f"fold-{number}-of-10").mkdir()
    message = r"is a cross-validation.* such as .*/fold-1-of-10, or fine-tune"
    refused(message, find_checkpoint, tmp_path, None, **missing)
    (tmp_path / "model.pt").touch()
    assert find_checkpoint(tmp_path, None).name == "model.pt"
    state = {"cfg": {"task": {"data": f"{tmp_path}/a@2,{tmp_path}/b@1"}}}
    message = r"No dict\.txt for .*model\.pt: looked in .*/a\. Name the folder"
    refused(message, find_dictionary, tmp_path / "model.pt", state, None, **missing)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "dict.txt").touch()
    assert find_dictionary(tmp_path / "model.pt", state, None) == tmp_path / "a" / "dict.txt"
    state = {"cfg": {"task": {"data": "a"}}}  # trained in tmp_path, opened elsewhere
    checkpoint = tmp_path / "runs" / "checkpoints" / "model.pt"
    assert find_dictionary(checkpoint, state, None) == tmp_path / "a" / "dict.txt"


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.mark.parametrize("form", ["cfg", "args"])
@pytest.mark.parametrize("arch", ["fast_roberta_base", "roberta_large"])
def test_heads_of_a_masked_lm_checkpoint_are_there(tmp_path, tokenizer_folder, arch, form):
    """As of roberta.large.mnli, whose task is the pretraining."""
    state = state_of(tokenizer_folder, form=form, arch=arch, heads={"mnli": 3, "other": 2})
    torch.save(state, tmp_path / "model.pt")
    hub = RobertaHub.from_pretrained(tmp_path, data=tokenizer_folder)
    assert hub.predict("mnli", hub.encode("good", "bad")).shape == (1, 3)
    assert hub.predict("other", hub.encode("good")).shape == (1, 2)
    loaded = hub.model.classification_heads["mnli"].out_proj.weight
    assert torch.equal(loaded, state["model"]["classification_heads.mnli.out_proj.weight"])


def test_a_head_for_each_token_is_there(tmp_path, tokenizer_folder):
    state = state_of(tokenizer_folder)
    model = RobertaHub.from_pretrained(save(state, tmp_path), data=tokenizer_folder).model
    model.register_head("tags", "made_token", num_classes=4)
    state["model"] = model.state_dict()
    hub = RobertaHub.from_pretrained(save(state, tmp_path), data=tokenizer_folder)
    found, _ = hub.model(hub.encode("good")[None], head="tags")
    expected, _ = model(hub.encode("good")[None], head="tags")
    assert torch.equal(found, expected)


def save(state, folder):
    torch.save(state, folder / "model.pt")
    return folder


@pytest.mark.parametrize("form", ["cfg", "args"])
@pytest.mark.parametrize("says_where", [True, False])
def test_a_checkpoint_of_fairseqs_sentence_prediction_is_usable(
    tmp_path, tokenizer_folder, monkeypatch, form, says_where
):
    """Its folder has input0/dict.txt and label/dict.txt, and the tokenizer is elsewhere."""
    for part in ("input0", "label"):
        (tmp_path / "RTE-bin" / part).mkdir(parents=True)
    shutil.copy(tokenizer_folder / "dict.txt", tmp_path / "RTE-bin" / "input0" / "dict.txt")
    (tmp_path / "RTE-bin" / "label" / "dict.txt").write_text("entailment 9\nnot_entailment 8\n")
    task = {"_name": "sentence_prediction", "data": "RTE-bin", "num_classes": 2, "max_positions": 40}
    heads = {"sentence_classification_head": 2}
    (tmp_path / "checkpoints").mkdir()
    state = state_of(tokenizer_folder, form=form, arch="roberta_base", task=task, heads=heads)
    torch.save(state, tmp_path / "checkpoints" / "checkpoint_best.pt")
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "RTE-bin" if says_where else None
    message = r"No tokenizer for .*encoder\.json and vocab\.bpe .*tokenizer=\.\.\."
    refused(message, RobertaHub.from_pretrained, "checkpoints", data=data, error=FileNotFoundError)
    hub = RobertaHub.from_pretrained("checkpoints", data=data, tokenizer=tokenizer_folder)
    assert hub.predict("sentence_classification_head", hub.encode("good", "bad")).shape == (1, 2)


@pytest.mark.parametrize("device", ["moon", 5, b"cpu"])
def test_a_device_that_is_not_there_is_refused(tmp_path, tokenizer_folder, device):
    with pytest.raises(ValueError, match=r"--device .* cannot be used here \(.*Give cpu, or leave it out"):
        RobertaHub.from_pretrained(save(state_of(tokenizer_folder), tmp_path), data=tokenizer_folder, device=device)


def test_from_pretrained_of_the_model_is_the_hub_and_reads_the_checkpoint_once(tmp_path, tokenizer_folder, monkeypatch):
    reads, load = [], torch.load
    monkeypatch.setattr(torch, "load", lambda *args, **options: reads.append(1) or load(*args, **options))
    folder = str(save(state_of(tokenizer_folder), tmp_path))
    hub = FastRobertaModel.from_pretrained(folder, data_name_or_path=str(tokenizer_folder))
    assert len(hub.fill_mask("good <mask>", topk=3)) == 3
    assert len(reads) == 1


def test_an_answer_is_text(hub, folder):
    vocabulary = hub.vocabulary
    fixed = RobertaHub(FixedScores(len(vocabulary), 0), tokenizer=hub.tokenizer, vocabulary=vocabulary)
    fillings = fixed.fill_mask("The <mask> fox.", topk=8)  # the scores favour a special symbol
    assert fixed.encode("The <mask> fox.").tolist().index(vocabulary.mask_id) < 4
    assert all(filling.token for filling in fillings)
    assert all(filling.probability < 0.5 for filling in fillings)


@pytest.fixture(scope="module")
def heads_hub(tmp_path_factory):
    """A model with a head of classes and one for each token."""
    hub = write_hub(tmp_path_factory.mktemp("heads"))
    hub.model.register_head("tags", "made_token", num_classes=4)
    return hub


def test_lists_of_texts_have_the_results_of_single_texts_in_order(heads_hub):
    hub, close = heads_hub, {"atol": 1e-5, "rtol": 1e-4}
    singles = [hub.encode(text) for text in PIECES]
    assert all(torch.equal(one, other) for one, other in zip(hub.encode(PIECES), singles, strict=True))
    assert torch.equal(hub.encode([("good", "bad")])[0], hub.encode("good", "bad"))
    for found, tokens in zip(hub.extract_features(PIECES, max_tokens=20), singles, strict=True):
        torch.testing.assert_close(found, hub.extract_features(tokens)[0], **close)
    for found, tokens in zip(hub.extract_features(PIECES, return_all_hiddens=True), singles, strict=True):
        expected = hub.extract_features(tokens, return_all_hiddens=True)
        assert len(found) == len(expected) == 4
        torch.testing.assert_close(found[2], expected[2][0], **close)
    logits = torch.cat([hub.predict("task", tokens, return_logits=True) for tokens in singles])
    torch.testing.assert_close(hub.predict("task", PIECES, return_logits=True, max_tokens=20), logits, **close)
    torch.testing.assert_close(hub.predict("task", PIECES), logits.log_softmax(-1), **close)
    for found, tokens in zip(hub.predict("tags", PIECES), singles, strict=True):
        torch.testing.assert_close(found, hub.predict("tags", tokens)[0], **close)
    masked = ["good <mask> bad", "<mask>", "bad <mask> good <mask>"]
    torch.testing.assert_close(hub.extract_features(masked)[0], hub.extract_features(hub.encode(masked[0]))[0], **close)
    for text, found in zip(masked, hub.fill_mask(masked, topk=3), strict=True):
        expected = hub.fill_mask(text, topk=3)
        assert len(found) == len(expected)
        flat = [*found] if text.count("<mask>") == 1 else [each for one in found for each in one]
        wanted = [*expected] if text.count("<mask>") == 1 else [each for one in expected for each in one]
        assert [filling.text for filling in flat] == [filling.text for filling in wanted]


def test_gradients_flow_through_ids_and_features_of_texts_can_be_trained_on(heads_hub):
    hub = heads_hub
    for parameter in hub.parameters():
        parameter.grad = None
    hub.train()
    try:
        hub.extract_features(hub.encode("good bad")).sum().backward()
        assert hub.model.encoder.sentence_encoder.embed_tokens.weight.grad.abs().sum() > 0
        hub.predict("task", hub.encode("good bad")).sum().backward()
        assert hub.model.classification_heads["task"].out_proj.weight.grad is not None
        hub.fill_mask("good <mask>")
        hub.extract_features(PIECES)
        assert hub.training and hub.model.training
    finally:
        hub.eval()
    probe = torch.nn.Linear(24, 1)
    probe(hub.extract_features(PIECES)[0]).sum().backward()
    probe(hub.predict("tags", PIECES)[0][0, :1].expand(24)).backward()
    assert probe.weight.grad is not None


def test_a_registered_head_has_the_type_of_the_model(heads_hub):
    hub = copy.deepcopy(heads_hub).bfloat16()
    hub.register_classification_head("new", num_classes=4, embedding_size=24)
    assert hub.predict("new", hub.encode("good")).shape == (1, 4)
    assert hub.predict("new", PIECES).dtype == torch.float32
    assert len(hub.fill_mask("good <mask>")) == 5


def test_names_of_fairseqs_hub_are_there(heads_hub):
    hub = heads_hub
    assert hub.task.mask_idx == hub.vocabulary.mask_id == hub.task.source_dictionary.index("<mask>")
    tokens = hub.task.source_dictionary.encode_line(f"<s> {hub.bpe.encode('good bad')} </s>", append_eos=False)
    assert torch.equal(tokens.long(), hub.encode("good bad"))
    assert hub.bpe.decode(hub.bpe.encode("caf\u00e9  good")) == "caf\u00e9  good"
    assert hub.bpe.decode(f"{hub.bpe.encode('good')} <mask>") == "good<mask>"
    with pytest.raises(AttributeError, match="has no names of labels"):
        _ = hub.task.label_dictionary


def aligned(hub, sentence, **options):
    words = hub.extract_features_aligned_to_words(sentence, **options)
    assert [sentence[word.start : word.end] for word in words[1:-1]] == [str(word) for word in words[1:-1]]
    return words


def test_aligned_words_have_vectors(heads_hub):
    words = aligned(heads_hub, 'I said, "hello good."')
    assert [str(word) for word in words] == ["<s>", "I", "said", ",", '"', "hello", "good", ".", '"', "</s>"]
    sentence = 'good bad,good"bad.'  # without tokens of white space alone
    words = aligned(heads_hub, sentence)
    features = heads_hub.extract_features(heads_hub.encode(sentence))[0]
    torch.testing.assert_close(sum(word.vector for word in words), features.sum(dim=0), atol=1e-4, rtol=1e-4)
    layers = aligned(heads_hub, sentence, return_all_hiddens=True, tokenizer=lambda text: ["good", text[5:]])
    assert [str(word) for word in layers] == ["<s>", "good", 'bad,good"bad.', "</s>"]
    assert layers[1].vector.shape == (4, 24)


def test_a_mask_in_the_sentence_is_one_word_with_the_features_of_its_token(heads_hub):
    sentence = "good <mask> bad, <mask><mask>"
    words = aligned(heads_hub, sentence)
    assert [str(word) for word in words[1:-1]] == ["good", "<mask>", "bad", ",", "<mask>", "<mask>"]
    ids = heads_hub.encode(sentence)
    features = heads_hub.extract_features(ids)[0]
    masks = features[ids == heads_hub.vocabulary.mask_id]
    found = torch.stack([word.vector for word in words if str(word) == "<mask>"])
    torch.testing.assert_close(found, masks)
    torch.testing.assert_close(sum(word.vector for word in words), features.sum(dim=0), atol=1e-4, rtol=1e-4)
    words = aligned(heads_hub, "a <mask>bad", words=["a", "<", "mask", ">bad"])  # other words share the token
    torch.testing.assert_close(words[2].vector, words[3].vector)


@pytest.mark.parametrize("keeps_space", [False, True])
def test_the_tokens_of_a_text_with_masks_are_located(heads_hub, keeps_space):
    codec = TextCodec(heads_hub.tokenizer, heads_hub.vocabulary, mask_keeps_space=keeps_space)
    for text in ("good <mask> bad", "<mask>", "  <mask>  <mask>good \u00e9<mask>", "good"):
        located = codec.locate(text)
        assert len(located.ids) == len(codec.ids([text])[0])
        pieces = [text[start:end] for start, end in zip(located.starts, located.ends, strict=True)]
        is_mask = codec.ids([text])[0] == heads_hub.vocabulary.mask_id
        assert [piece.strip() for piece in np.array(pieces, dtype=object)[is_mask]] == ["<mask>"] * int(is_mask.sum())


def test_many_masks_are_scored_in_parts(heads_hub, monkeypatch):
    texts = ["<mask>" * 30, "good <mask>", "<mask> <mask> bad"]

    def found():
        spans = [range(2, 11), range(1, 2)]
        scores = heads_hub.score_spans(heads_hub.codec.sequences(["good bad " * 6, "bad"]), spans)
        first, second, *_ = heads_hub.fill_mask(texts, topk=2)
        return [[best.text for best in one] for one in first], [best.text for best in second], scores

    whole, sizes = found(), []
    monkeypatch.setattr(running, "POSITIONS_AT_ONCE", 7)
    head = heads_hub.model.encoder.lm_head
    handle = head.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    again = found()
    handle.remove()
    assert again[:2] == whole[:2] and again[2] == pytest.approx(whole[2], abs=1e-5)
    assert max(sizes) == 7 and len(sizes) > 5


def test_the_score_of_a_span_is_the_mean_log_probability_of_its_masked_tokens(heads_hub):
    scores = heads_hub.score_spans(heads_hub.codec.sequences(["good bad", "good good bad"]), [range(1, 2), range(1, 3)])
    tokens = heads_hub.encode("<mask> <mask> bad")
    expected = heads_hub.model(tokens[None])[0].log_softmax(-1)[0]
    ids = heads_hub.encode("good good bad")
    assert scores[1] == pytest.approx(float(expected[[1, 2], ids[[1, 2]]].mean()), abs=1e-4)


def test_an_unknown_head_and_a_text_for_ids_are_refused(heads_hub):
    refused(r"no head 'mnli'; it has task, tags", heads_hub.predict, "mnli", heads_hub.encode("good"))
    message = r"Give a list of texts \(.*also take ids.*\), got the text 'good'"
    refused(message, heads_hub.extract_features, "good")


CALLS = {
    "encode": lambda hub, value: hub.encode(value),
    "encode, second": lambda hub, value: hub.encode("good", value),
    "decode": lambda hub, value: hub.decode(value),
    "extract_features": lambda hub, value: hub.extract_features(value),
    "aligned": lambda hub, value: hub.extract_features_aligned_to_words(value),
    "words": lambda hub, value: hub.extract_features_aligned_to_words("good", words=value),
    "fill_mask": lambda hub, value: hub.fill_mask(value),
    "topk": lambda hub, value: hub.fill_mask("good <mask>", topk=value),
    "score": lambda hub, value: hub.score(value),
    "predict": lambda hub, value: hub.predict("task", value),
    "tags": lambda hub, value: hub.predict("tags", value),
    "head": lambda hub, value: hub.predict(value, ["good"]),
    "max_tokens": lambda hub, value: hub.extract_features(["good"], max_tokens=value),
    "bpe.encode": lambda hub, value: hub.bpe.encode(value),
    "bpe.decode": lambda hub, value: hub.bpe.decode(value),
    "name": lambda hub, value: hub.register_classification_head(value, num_classes=2),
    "num_classes": lambda hub, value: hub.register_classification_head("new", num_classes=value),
    "folder": lambda hub, value: hub.from_pretrained(value),
    "data": lambda hub, value: hub.from_pretrained("nowhere", data=value),
    "tokenizer": lambda hub, value: hub.extract_features_aligned_to_words("good", tokenizer=value),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_arguments_of_other_types_are_refused_in_a_sentence(heads_hub, call):
    check_refusals(heads_hub, call)


def test_pairs_are_refused_where_one_text_is_meant_and_a_text_where_several_are(heads_hub):
    hub = heads_hub
    for call in (hub.score, hub.fill_mask):
        with pytest.raises(ValueError, match=r"The texts given: text 2 must be a text, found \('bad', '<mask>'\)"):
            call(["good <mask>", ("bad", "<mask>")])
    with pytest.raises(ValueError, match=r"Text 1 is \['a', 'b', 'c'\], but at most 2 texts are read as one"):
        hub.predict("task", [("a", "b", "c")])
    with pytest.raises(ValueError, match=r"one list of texts and pairs; got both: \('bad',\)"):
        hub.encode(["good"], "bad")  # which was left out without a word
    padded = torch.tensor([[0, 5, 6, 2], [1, 0, 5, 2]])
    with pytest.raises(ValueError, match="padded on the left"):
        hub.predict("task", padded)
    hub.extract_features(padded)


def test_any_ordered_iterable_is_a_list_of_texts(heads_hub):
    expected = heads_hub.predict("task", PIECES)
    for texts in (tuple(PIECES), (text for text in PIECES), np.array(PIECES), np.array(PIECES, dtype=object)):
        assert torch.equal(heads_hub.predict("task", texts), expected)
    assert torch.equal(heads_hub.encode(np.str_("good")), heads_hub.encode("good"))
    pairs = [("good", "bad"), ("bad", "good")]
    assert torch.equal(heads_hub.predict("task", np.array(pairs)), heads_hub.predict("task", pairs))
    ids = heads_hub.encode("good")
    assert torch.equal(heads_hub.predict("task", ids.to(torch.int16)), heads_hub.predict("task", ids))


def test_fairseqs_arguments_and_a_checkpoints_path_are_understood(tmp_path, tokenizer_folder):
    shutil.copytree(tokenizer_folder, tmp_path / "files")
    torch.save(state_of(tokenizer_folder), tmp_path / "model.pt")
    by_name = RobertaHub.from_pretrained(tmp_path, "model.pt", data_name_or_path="./files", bpe="gpt2")
    by_path = RobertaHub.from_pretrained(tmp_path / "model.pt", data=tmp_path / "files")
    tokens = by_name.encode("good")
    assert torch.equal(by_name.extract_features(tokens), by_path.extract_features(tokens))
    opening, given = RobertaHub.from_pretrained, {"data": tokenizer_folder}
    message = "bpe='sentencepiece' is not the tokenizer of this model, which is byte"
    refused(message, opening, tmp_path, **given, bpe="sentencepiece")
    refused("two names of the same argument", opening, tmp_path, **given, data_name_or_path=".")
    message = r"No checkpoint in .*nowhere, which does not exist"
    refused(message, opening, tmp_path / "nowhere", error=FileNotFoundError)


@pytest.mark.parametrize("arch", ["fast_roberta_base", "roberta_base"])
def test_a_loaded_model_is_tied_in_fp32_and_complete(tmp_path, tokenizer_folder, arch):
    state = state_of(tokenizer_folder, arch=arch)
    state["model"] = {name: value.half() for name, value in state["model"].items()}
    hub = RobertaHub.from_pretrained(save(state, tmp_path), data=tokenizer_folder)
    encoder = hub.model.encoder
    assert encoder.lm_head.weight is encoder.sentence_encoder.embed_tokens.weight
    assert {parameter.dtype for parameter in hub.parameters()} == {torch.float32}
    assert not any(each.is_meta for each in (*hub.parameters(), *hub.buffers()))
    assert all(parameter.requires_grad for parameter in hub.parameters())
    for name, value in hub.model.state_dict().items():
        if value.is_floating_point() and name in state["model"]:
            assert torch.equal(value, state["model"][name].float()), name
    (tmp_path / "model.pt").write_bytes(b"")  # the memory of the model is not the file's
    assert hub.extract_features(["good"])[0].isfinite().all()


@pytest.mark.parametrize("more", ["", "<mask> 3\n", "b 2 #fairseq:overwrite\n", "<unk> 4 #fairseq:overwrite\n"])
def test_the_dictionary_is_the_one_that_fairseq_reads(tmp_path, more):
    path = tmp_path / "dict.txt"
    path.write_text(f"a 7\nb 5\nwith space 3\n{more}madeupword0000 0\n")
    expected = Dictionary.load(str(path))
    expected.add_symbol("<mask>")
    found = fairseq_dictionary(Vocabulary.load(path))
    assert vars(found) == vars(expected)


@pytest.mark.parametrize("character", ["\x1c", "\x1f"])
def test_what_is_white_space_for_python_alone_is_a_character_before_a_mask(hub, character):
    ids = hub.encode(f"a {character} <mask> b").tolist()
    assert ids == [*hub.encode(f"a {character}").tolist()[:-1], hub.vocabulary.mask_id, *hub.encode(" b").tolist()[1:]]
    assert hub.encode("a \u2003 <mask>").tolist() == hub.encode("a <mask>").tolist()
