"""RobertaHub: text in, ids, features and filled masks out, and errors that say what is missing."""

import shutil
from types import SimpleNamespace

import pytest
import torch

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.tokenizers.training import train_byte_level_bpe
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.hub import RobertaHub, find_checkpoint, find_dictionary
from roberta_plugin.models.roberta import FastRobertaModel
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_checkpoints import state_of
from tests.tiny_models import options

TEXT = "The quick brown fox jumps over the lazy dog, and the dog does not mind it at all.\n" * 20


class FixedScores(torch.nn.Module):
    """A model whose scores are known: symbol number `favourite + position` is the most probable everywhere."""

    def __init__(self, vocab_size: int, favourite: int) -> None:
        super().__init__()
        self.vocab_size, self.favourite = vocab_size, favourite
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def max_positions(self) -> int:
        return 30

    def forward(self, tokens, masked_tokens):
        scores = torch.zeros(*tokens.shape, self.vocab_size)
        for position in range(tokens.size(1)):
            scores[:, position, self.favourite + position] = 9.0
        return scores[masked_tokens], {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    (folder / "text.txt").write_text(TEXT)
    train_byte_level_bpe([folder / "text.txt"], vocab_size=300, folder=folder)
    return folder


@pytest.fixture
def hub(folder):
    vocabulary = Vocabulary.load(folder / "dict.txt")
    dictionary = type("D", (), {"pad": lambda self: 1, "__len__": lambda self: len(vocabulary)})()
    task = SimpleNamespace(source_dictionary=dictionary, max_positions=lambda: 30)
    torch.manual_seed(0)
    model = FastRobertaModel.build_model(options(max_positions=30), task)
    return RobertaHub(model, tokenizer=load_tokenizer(folder), vocabulary=vocabulary).eval()


def test_the_model_class_hands_out_the_hub_and_refuses_what_it_cannot_follow(monkeypatch):
    calls = []
    monkeypatch.setattr(RobertaHub, "from_pretrained", lambda *arguments: calls.append(arguments) or "hub")
    assert FastRobertaModel.from_pretrained("runs/books") == "hub"
    FastRobertaModel.from_pretrained("runs/books", checkpoint_file="a.pt", data_name_or_path="data-bin")
    FastRobertaModel.from_pretrained("runs/books", data_name_or_path=".")
    assert calls == [
        ("runs/books", None, None, None),
        ("runs/books", "a.pt", "data-bin", None),
        ("runs/books", None, "runs/books/.", None),
    ]
    with pytest.raises(TypeError, match="does not take bpe"):
        FastRobertaModel.from_pretrained("runs/books", bpe="gpt2")


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
    with pytest.raises(ValueError, match="needs at least one <mask>"):
        hub.fill_mask("No hole here.")
    with pytest.raises(ValueError, match="topk must be 1 or more, got 0"):
        hub.fill_mask("A <mask>.", topk=0)
    with pytest.raises(ValueError, match=r"has \d+ tokens, and this model reads at most 30"):
        hub.extract_features(hub.encode(TEXT))


def test_a_missing_checkpoint_or_vocabulary_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"No checkpoint in .*checkpoint_best\.pt.*--save-dir"):
        find_checkpoint(tmp_path, None)
    (tmp_path / "model.pt").touch()
    assert find_checkpoint(tmp_path, None).name == "model.pt"
    state = {"cfg": {"task": {"data": f"{tmp_path}/a@2,{tmp_path}/b@1"}}}
    with pytest.raises(FileNotFoundError, match=r"No dict\.txt for .*model\.pt: looked in .*/a\. Name the folder"):
        find_dictionary(tmp_path / "model.pt", state, None)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "dict.txt").touch()
    assert find_dictionary(tmp_path / "model.pt", state, None) == tmp_path / "a" / "dict.txt"


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


def test_a_head_that_finds_spans_is_there(tmp_path, tokenizer_folder):
    state = state_of(tokenizer_folder)
    model = RobertaHub.from_pretrained(save(state, tmp_path), data=tokenizer_folder).model
    model.register_span_head("spans")
    state["model"] = model.state_dict()
    hub = RobertaHub.from_pretrained(save(state, tmp_path), data=tokenizer_folder)
    found, _ = hub.model(hub.encode("good")[None], span_head_name="spans")
    expected, _ = model(hub.encode("good")[None], span_head_name="spans")
    assert torch.equal(found.start, expected.start)


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
    with pytest.raises(FileNotFoundError, match=r"No tokenizer for .*encoder\.json and vocab\.bpe .*tokenizer=\.\.\."):
        RobertaHub.from_pretrained("checkpoints", data=data)
    hub = RobertaHub.from_pretrained("checkpoints", data=data, tokenizer=tokenizer_folder)
    assert hub.predict("sentence_classification_head", hub.encode("good", "bad")).shape == (1, 2)


def test_from_pretrained_of_the_model_is_the_hub(tmp_path, tokenizer_folder):
    hub = FastRobertaModel.from_pretrained(
        str(save(state_of(tokenizer_folder), tmp_path)), data_name_or_path=str(tokenizer_folder)
    )
    assert len(hub.fill_mask("good <mask>", topk=3)) == 3


def test_the_checkpoint_is_read_once(tmp_path, tokenizer_folder, monkeypatch):
    reads = []
    monkeypatch.setattr(
        torch, "load", lambda *args, load=torch.load, **options: reads.append(1) or load(*args, **options)
    )
    RobertaHub.from_pretrained(save(state_of(tokenizer_folder), tmp_path))
    assert len(reads) == 1


def test_an_answer_is_text(hub, folder):
    vocabulary = hub.vocabulary
    fixed = RobertaHub(FixedScores(len(vocabulary), 0), tokenizer=hub.tokenizer, vocabulary=vocabulary)
    fillings = fixed.fill_mask("The <mask> fox.", topk=8)  # the scores favour a special symbol
    assert fixed.encode("The <mask> fox.").tolist().index(vocabulary.mask_id) < 4
    assert all(filling.token for filling in fillings)
    assert all(filling.probability < 0.5 for filling in fillings)
