"""The one loop of inference, its texts, and scores of sentences."""

import numpy as np
import pytest
import torch

from roberta_plugin.data.batches import cut_by_length
from roberta_plugin.data.tokenizers.base import LocatedTokens
from roberta_plugin.finetuning.layouts.words import split_words, word_spans
from roberta_plugin.hub import RobertaHub, running, scoring
from roberta_plugin.hub.running import Batch, map_batches, pad
from roberta_plugin.hub.texts import align, features_of_words
from tests.fake_cuda import Watch, fake_cuda, moved
from tests.refusals import refused
from tests.tiny_checkpoints import state_of
from tests.tiny_models import make_batch, our_model
from tests.tiny_tokenizers import train_tokenizer

LENGTHS = (17, 9, 1, 13)
READERS = {
    "features": running.features,
    "first": running.first_features,
    "classes": lambda model, batch: running.head_outputs(model, batch, "task"),
    "tags": lambda model, batch: running.head_outputs(model, batch, "tags"),
}


def sequences(lengths):
    return [np.full(length, number + 5) for number, length in enumerate(lengths)]


@pytest.mark.parametrize("max_tokens", [1, 18, 64, 10_000])
def test_every_sequence_is_in_one_batch_within_the_limit(max_tokens):
    lengths = np.random.default_rng(0).integers(1, 40, 100).tolist()
    batches = list(cut_by_length(lengths, max_tokens=max_tokens, enough=max_tokens))
    assert sorted(number for batch in batches for number in batch) == list(range(100))
    for batch in batches:
        assert len(batch) * max(lengths[number] for number in batch) <= max_tokens or len(batch) == 1
    longest = [lengths[batch[0]] for batch in batches]
    assert longest == sorted(longest, reverse=True)
    assert (len(batches) == 1) == (max_tokens == 10_000)


def test_the_example_of_the_docstring():
    assert list(cut_by_length([3, 9, 2, 8], max_tokens=18, enough=18)) == [[1, 3], [0, 2]]
    assert list(cut_by_length([3, 9, 2, 8], max_tokens=18, enough=9)) == [[1], [3, 0], [2]]
    assert pad([np.array([0, 7, 2]), np.array([0, 2])], pad_id=1).tolist() == [[0, 7, 2], [0, 2, 1]]


def test_batches_that_are_large_enough_have_little_padding():
    """Lengths as of sentences: few long ones."""
    lengths = np.minimum(120, 5 + np.random.default_rng(1).geometric(1 / 30, 400)).tolist()
    batches = list(cut_by_length(lengths, max_tokens=2048, enough=512))
    positions = sum(len(batch) * lengths[batch[0]] for batch in batches)
    assert positions < 1.15 * sum(lengths)
    for batch in batches[:-1]:
        assert len(batch) * lengths[batch[0]] >= 512
    assert sum(len(b) * lengths[b[0]] for b in cut_by_length(lengths, max_tokens=2048, enough=2048)) > positions


def test_results_are_in_the_order_of_the_sequences():
    seen = []

    def mapped(lengths, **options):
        def run(batch):
            seen.append((batch.lengths, batch.has_padding))
            return batch.tokens[:, 0].tolist()

        options |= {"pad_id": 1, "device": torch.device("cpu")}
        return map_batches(torch.nn.Identity(), sequences(lengths), run, **options)

    assert mapped([3, 9, 2, 8, 9, 1], max_tokens=18) == [5, 6, 7, 8, 9, 10]
    assert seen == [([9, 9], False), ([8, 3], True), ([2, 1], True)]
    assert mapped([]) == []
    refused("max_tokens must be 1 or more, got 0", mapped, [2], max_tokens=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("what", READERS)
def test_what_is_read_is_on_the_device_of_the_model(what, dtype):
    model, tokens = our_model(), make_batch(LENGTHS)[0]
    model.register_classification_head("task", num_classes=3)
    model.register_head("tags", "made_token", num_classes=2)
    with fake_cuda() as mode, Watch(may_wait=True), torch.inference_mode():
        batch = Batch(moved(tokens, mode), list(LENGTHS), list(range(4)))
        found = READERS[what](moved(model, mode, dtype).eval(), batch)
    for tensor in found if isinstance(found, tuple | list) else [found]:
        assert tensor.device.type == "cuda"


def located(starts, ends):
    return LocatedTokens(np.arange(len(starts)), np.array(starts), np.array(ends))


def test_words_and_marks_are_apart():
    assert split_words('I said, "hello RoBERTa."') == ["I", "said", ",", '"', "hello", "RoBERTa", ".", '"']
    assert split_words("don't pay 3.14 for caf\u00e9s!") == ["don't", "pay", "3.14", "for", "caf\u00e9s", "!"]


def test_tokens_belong_to_the_words_whose_characters_they_cover():
    text = "don't  go"  # tokens: don | 't | blank | " go"
    found = align(text, located([0, 3, 5, 6], [3, 5, 6, 9]), word_spans(text, ["don't", "go"]))
    assert found == [[0, 1], [3]]
    halves = align("ab", located([0], [2]), word_spans("ab", ["a", "b"]))  # a token over two words
    assert halves == [[0], [0]]


def test_vectors_add_up_to_the_features():
    features = torch.arange(12.0).view(6, 2)
    words = features_of_words(features, [[0, 1], [1], [3]])
    assert torch.equal(words[0], features[0])
    assert torch.equal(words[-1], features[5])
    assert torch.equal(words[1], features[1] + features[2] / 2)
    without_blank = features.sum(dim=0) - features[3]  # token 2, position 3, belongs to no word
    torch.testing.assert_close(words.sum(dim=0), without_blank)


def test_words_of_another_text_are_refused():
    message = "'cat' does not come next in the text, which continues with ' dog sat'"
    refused(message, word_spans, "The dog sat", ["The", "cat", "sat"])
    refused("'sat' does not come next", word_spans, "The dog sat", ["The", "sat"])
    refused("'' does not come next", word_spans, "The dog", [""])


TEXT = "The quick brown fox jumps over the lazy dog, and the dog doesn't mind it at all.\n" * 20
TEXTS = ["The dog doesn't mind.", "jumps", "Foxes aren't lazy, dogs are: 12 caf\u00e9s!", "The dog doesn't mind."]
TEXTS.append("q q q")


@pytest.fixture(scope="module", params=["fast_roberta", "roberta_base"])
def hub(tmp_path_factory, request):
    """A model of ours, and one of fairseq's."""
    folder = tmp_path_factory.mktemp("scoring")
    (folder / "text.txt").write_text(TEXT)
    train_tokenizer("byte_level_bpe", [folder / "text.txt"], vocab_size=300, folder=folder)
    torch.save(state_of(folder, arch=request.param), folder / "model.pt")
    return RobertaHub.from_pretrained(folder).double()


def log_prob(hub, ids, masked, position):
    """The log-probability of the token at `position`, if the positions `masked` are masked: one sequence, one forward."""
    tokens = torch.tensor([hub.vocabulary.mask_id if place in masked else token for place, token in enumerate(ids)])
    with torch.no_grad():
        logits = hub.model(tokens[None])[0][0]
    return float(logits[position].log_softmax(dim=-1)[ids[position]])


def by_loop(hub, text, method):
    ids = hub.encode(text).tolist()
    inner = range(1, len(ids) - 1)
    if method == "unmasked":
        return [log_prob(hub, ids, (), position) for position in range(len(ids))]
    if method == "pll":
        return [log_prob(hub, ids, (position,), position) for position in inner]
    words, number = [], 0  # of each token: the words of the pattern are found again in the text
    ends = np.cumsum([len(word.encode()) for word in hub.tokenizer._find_words(text)])
    for token in ids[1:-1]:
        piece = hub.tokenizer.pieces[int(hub.vocabulary.symbols[token])]
        words.append(int(np.searchsorted(ends, number, side="right")))
        number += len(piece)
    assert number == ends[-1]
    last = {word: place for place, word in enumerate(words, start=1)}
    return [log_prob(hub, ids, range(at, last[words[at - 1]] + 1), at) for at in inner]


@pytest.mark.parametrize("method", ["pll", "pll-word-l2r", "unmasked"])
def test_scores_equal_a_plain_loop_in_float64(hub, method, monkeypatch):
    monkeypatch.setattr(scoring, "_TOKENS_AT_ONCE", 300)  # several parts
    for text, found in zip(TEXTS, hub.score(TEXTS, method, max_tokens=100), strict=True):
        expected = by_loop(hub, text, method)
        np.testing.assert_allclose(found.log_probs, expected, rtol=0, atol=1e-12)
        assert found.score == pytest.approx(np.mean(expected) if method == "unmasked" else np.sum(expected), abs=1e-12)
        assert len(found.tokens) == len(expected)


def test_the_methods_differ_in_words_of_several_tokens_but_for_their_last_one(hub):
    ids = hub.encode(TEXTS[2]).numpy()
    starts = hub.codec.word_starts(ids)
    is_last = starts[2:]  # the next one begins a word
    pll, by_words = (np.array(hub.score(TEXTS[2], method).log_probs) for method in ("pll", "pll-word-l2r"))
    is_equal = np.isclose(pll, by_words, rtol=0, atol=1e-12)
    assert is_equal.tolist() == is_last.tolist() and 5 < is_last.sum() < len(is_last) - 5
    pieces = zip(starts, map(hub.codec.token_text, ids), strict=True)
    words = "".join("|" * bool(start) + text for start, text in pieces)
    assert words == "||Foxes| aren|'t| lazy|,| dogs| are|:| 12| caf\ufffd\ufffds|!|"


def test_what_cannot_be_scored_is_named(hub):
    refused("method must be pll or pll-word-l2r or unmasked, got 'mlm'", hub.score, "a", "mlm")
    for text in ("", "The <mask> dog."):
        refused("Text 2 needs at least one token and no <mask>", hub.score, ["The dog.", text])
    refused(r"Text 3: .*reads at most 40", hub.score, ["a", "a", "q" * 50])
    assert hub.score([]) == []
