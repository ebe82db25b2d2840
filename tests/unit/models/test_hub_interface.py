"""RobertaHub: text in, ids, features and filled masks out, and errors that say what is missing."""

from types import SimpleNamespace

import pytest
import torch

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.tokenizers.training import train_byte_level_bpe
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.models.hub_interface import RobertaHub, find_checkpoint, find_data_folder
from roberta_plugin.models.roberta import FastRobertaModel
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
        ("runs/books", None, None),
        ("runs/books", "a.pt", "data-bin"),
        ("runs/books", None, "runs/books/."),
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
        find_data_folder(tmp_path / "model.pt", state, None)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "dict.txt").touch()
    assert find_data_folder(tmp_path / "model.pt", state, None) == tmp_path / "a"
