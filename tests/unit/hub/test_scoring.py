"""Scores of sentences against plain loops in float64, and what cannot be scored."""

import numpy as np
import pytest
import torch

from roberta_plugin.hub import RobertaHub, scoring
from tests.tiny_checkpoints import state_of
from tests.tiny_tokenizers import train_tokenizer

TEXT = "The quick brown fox jumps over the lazy dog, and the dog doesn't mind it at all.\n" * 20
TEXTS = [
    "The dog doesn't mind.",
    "jumps",
    "Foxes aren't lazy, dogs are: 12 caf\u00e9s!",
    "The dog doesn't mind.",
    "q q q",
]


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
    words = "".join(
        ("|" if start else "") + hub.codec.token_text(token) for token, start in zip(ids, starts, strict=True)
    )
    assert words == "||Foxes| aren|'t| lazy|,| dogs| are|:| 12| caf\ufffd\ufffds|!|"


def test_what_cannot_be_scored_is_named(hub):
    with pytest.raises(ValueError, match="method must be pll or pll-word-l2r or unmasked, got 'mlm'"):
        hub.score("a", "mlm")
    for text in ("", "The <mask> dog."):
        with pytest.raises(ValueError, match="Text 2 needs at least one token and no <mask>"):
            hub.score(["The dog.", text])
    with pytest.raises(ValueError, match=r"Text 3: .*reads at most 40"):
        hub.score(["a", "a", "q" * 50])
    assert hub.score([]) == []
