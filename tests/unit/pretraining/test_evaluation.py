"""Scores of models whose accuracy and perplexity are known beforehand; filled masks."""

import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from roberta_plugin.data.count_baselines import count_baselines, count_tokens, unigram_probs
from roberta_plugin.data.mmap_tokens import MmapTokens, MmapTokensWriter
from roberta_plugin.data.neighbor_baseline import NeighborCounts
from roberta_plugin.data.pair_counts import Window, count_pairs
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.hub import Filling
from roberta_plugin.pretraining import evaluation
from roberta_plugin.pretraining.evaluation import (
    MAX_WORDS,
    choose_clozes,
    evaluate,
    fill,
    masked_batches,
    summary,
    unigram_log_probs,
    write_report,
)
from tests.tiny_corpus import write_data_bin

BLOCKS = {"length": 32, "break_mode": "none"}
OPTIONS = {"split": "test", **BLOCKS}
EVALUATION = {
    "model": {"accuracy": 30.0, "perplexity": 90.0},
    "unigram": {"accuracy": 5.0, "perplexity": 700.0},
    "bigram": {"accuracy": 16.0, "perplexity": 210.5},
    "neighbors": {"accuracy": 27.0, "perplexity": 66.5},
    "num_predictions": 12345,
    "split": "test",
    "answers": [
        {"text": "A <mask> of strings.", "word": "list", "words": ["list", "set"], "probabilities": [0.5, 0.25]}
    ],
}
LOG = [
    f'x | INFO | train_inner | {{"num_updates": "{update}", "loss": "{12 - update / 10}", "wps": "{1000 + update}"}}\n'
    for update in (10, 20, 30, 40)
] + ['x | INFO | valid | {"valid_num_updates": "40", "valid_loss": "8.5"}\n']


@pytest.fixture
def data_bin(tmp_path):
    folder = write_data_bin(tmp_path / "data-bin")
    for end in (".bin", ".idx"):
        shutil.copy(folder / f"valid{end}", folder / f"test{end}")
    return folder


@pytest.fixture
def vocabulary(data_bin):
    return Vocabulary.load(data_bin / "dict.txt")


class Model(torch.nn.Module):
    """A model by its function of tokens (B, T) and masked tokens (B, T)."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, tokens, masked_tokens):
        return self.function(tokens, masked_tokens), {}


def constant_model(logits):
    return Model(lambda tokens, masked_tokens: logits.expand(int(masked_tokens.sum()), -1))


def test_a_model_that_knows_only_frequencies_scores_as_the_baseline(data_bin, vocabulary):
    logits = unigram_log_probs(MmapTokens(data_bin / "train"), vocabulary).float()
    scores = evaluate(constant_model(logits), vocabulary, data_bin, **OPTIONS)
    assert scores["num_predictions"] > 500
    assert scores["model"]["accuracy"] == scores["unigram"]["accuracy"] > 0
    assert scores["model"]["perplexity"] == pytest.approx(scores["unigram"]["perplexity"], rel=1e-4)


def test_a_model_that_knows_nothing_has_the_vocabulary_as_its_perplexity(data_bin, vocabulary, capsys):
    scores = evaluate(constant_model(torch.zeros(len(vocabulary))), vocabulary, data_bin, **OPTIONS)
    (share,) = re.findall(r"evaluation: .*?(\d+)%.*\n?$", capsys.readouterr().err)
    assert int(share) == 100, "a bar that ends below looks broken off"
    about = evaluation.num_predictions(data_bin / OPTIONS["split"])
    assert about == pytest.approx(scores["num_predictions"], rel=0.15), "the bar shows how much of the split is done"
    assert scores["model"]["perplexity"] == pytest.approx(len(vocabulary), rel=1e-4)


def test_counts_of_both_neighbors_read_what_the_model_reads(data_bin, vocabulary):
    """The expected score is that of counts on the masked blocks themselves."""
    sides = []
    for batch in masked_batches(data_bin / "test", vocabulary, **BLOCKS):
        seen, targets = batch["net_input"]["src_tokens"].numpy(), batch["target"].numpy()
        nothing = np.full((len(seen), 1), vocabulary.pad_id)
        left, right = np.concatenate([nothing, seen[:, :-1]], 1), np.concatenate([seen[:, 1:], nothing], 1)
        at = targets != vocabulary.pad_id
        sides.append((left[at], targets[at], right[at]))
    left, target, right = (np.concatenate(side) for side in zip(*sides, strict=True))
    left[np.isin(left, (vocabulary.mask_id, vocabulary.bos_id))] = vocabulary.pad_id
    right[right == vocabulary.mask_id] = vocabulary.pad_id
    train, test = MmapTokens(data_bin / "train"), data_bin / "test"
    baselines = count_baselines([train], {"test": [MmapTokens(test)]}, vocabulary)["test"]
    pairs = count_pairs([Window(train, 0, train.num_tokens)], vocabulary)
    probs = unigram_probs(count_tokens(train, vocabulary), vocabulary)
    counts = NeighborCounts(pairs, probs, pseudo_counts=(baselines.pseudo_counts, baselines.pseudo_counts))
    losses, is_right = counts.score(left, target, right)
    score = evaluate(constant_model(torch.zeros(len(vocabulary))), vocabulary, data_bin, **OPTIONS)["neighbors"]
    assert 2 ** losses.mean() == pytest.approx(score["perplexity"], rel=0.15)  # few tokens, four masks
    assert 100 * is_right.mean() == pytest.approx(score["accuracy"], abs=3)
    assert score["perplexity"] < 2**baselines.unigram / 1.2


def test_a_model_that_knows_the_targets_is_always_right(data_bin, vocabulary, monkeypatch):
    batches = list(masked_batches(data_bin / "test", vocabulary, **BLOCKS))
    remaining = iter(batches)

    def clairvoyant(tokens, masked_tokens):
        batch = next(remaining)
        assert torch.equal(tokens, batch["net_input"]["src_tokens"])
        return torch.nn.functional.one_hot(batch["target"][masked_tokens], len(vocabulary)) * 50.0

    scores = evaluate(Model(clairvoyant), vocabulary, data_bin, **OPTIONS)
    assert scores["model"]["accuracy"] == 100.0
    assert scores["model"]["perplexity"] == pytest.approx(1.0, abs=1e-3)
    assert scores["num_predictions"] == sum(int(batch["target"].ne(vocabulary.pad_id).sum()) for batch in batches)


def test_the_masks_are_the_papers_and_differ_from_pass_to_pass(data_bin, vocabulary):
    batches = list(masked_batches(data_bin / "test", vocabulary, **BLOCKS))
    num_tokens = MmapTokens(data_bin / "test").num_tokens
    seen = sum(batch["ntokens"] - batch["nsentences"] for batch in batches)
    assert seen == evaluation.NUM_PASSES * num_tokens
    predicted = sum(int(batch["target"].ne(vocabulary.pad_id).sum()) for batch in batches)
    num_maskable = evaluation.NUM_PASSES * int((MmapTokens(data_bin / "test").tokens > 3).sum())
    assert predicted / num_maskable == pytest.approx(0.15, abs=0.01)
    again = list(masked_batches(data_bin / "test", vocabulary, **BLOCKS))
    assert all(torch.equal(one["target"], other["target"]) for one, other in zip(batches, again, strict=True))
    masks = {}  # block -> targets of its passes
    for batch in batches:
        for block, target in zip(batch["id"].tolist(), batch["target"], strict=True):
            masks.setdefault(block, set()).add(tuple(target[target.ne(vocabulary.pad_id)].tolist()))
    assert np.mean([len(targets) for targets in masks.values()]) > 0.9 * evaluation.NUM_PASSES


def test_the_unigram_never_names_a_special_symbol_and_sums_to_one(data_bin, vocabulary):
    probs = unigram_log_probs(MmapTokens(data_bin / "train"), vocabulary).exp().numpy()
    assert probs.sum() == pytest.approx(1.0)
    assert probs[vocabulary.never_masked()].sum() == 0.0
    tokens = MmapTokens(data_bin / "train").tokens
    assert probs.argmax() == np.bincount(tokens[tokens > 3]).argmax()


def test_a_split_without_a_token_to_mask_is_refused(data_bin, vocabulary):
    with MmapTokensWriter(data_bin / "test", np.dtype("uint16")) as writer:
        writer.write(np.array([2], dtype="uint16"), np.array([1]))
    with pytest.raises(ValueError, match="too few tokens to mask any"):
        evaluate(constant_model(torch.zeros(len(vocabulary))), vocabulary, data_bin, **OPTIONS)


WORDS = {"method", "returns", "values", "sorted", "list"}
LINES = [f"The method returns the {kind} values of a sorted list." for kind in ("first", "second", "third", "fourth")]


def test_one_known_word_is_masked_in_each_sentence_and_the_choice_depends_on_the_sentences_alone():
    clozes = choose_clozes(LINES, WORDS, count=3)
    assert len(clozes) == 3
    for cloze in clozes:
        assert cloze.text.count("<mask>") == 1 and " <mask>" in cloze.text
        assert cloze.word in WORDS and cloze.text.replace("<mask>", cloze.word) in LINES
    assert choose_clozes(LINES, WORDS) == choose_clozes(list(reversed(LINES)) + LINES, WORDS)
    assert len({cloze.word for cloze in choose_clozes(LINES * 2, WORDS)}) > 1


@pytest.mark.parametrize(
    "line",
    [
        "The method returns it.",
        "Returns x[0] of the method and some more values of it.",
        "The method returns 12 of the values and some more of it.",
        "The method returns " + "very " * MAX_WORDS + "many values.",
        "Nothing in this whole sentence is among those that are known.",
        "The method returns values. There is a second sentence in this line.",
    ],
)
def test_other_lines_are_left_out(line):
    assert choose_clozes([line], WORDS) == []


class Hub:
    """One token a word; answers with the words of the alphabet's beginning."""

    max_positions = 12
    tokenizer = SimpleNamespace(encode=str.split)

    def __init__(self, lines):
        self.lines = lines

    def encode(self, text):
        return text.split()

    def decode(self, ids):
        return self.lines[int(ids[0])]

    def fill_mask(self, text, topk):
        assert len(text.split()) <= self.max_positions
        return [Filling(text="", probability=0.1, token=f" {word}") for word in "abcdefgh"[:topk]]


def test_sentences_of_the_split_are_filled_but_for_those_too_long_for_the_model(tmp_path):
    long = "The method returns all of these very many sorted values of a list that is long."
    lines = [*LINES[:2], f"{LINES[2]} {LINES[3]} {long}"]
    with MmapTokensWriter(tmp_path / "test", np.dtype("uint16")) as writer:
        writer.write(np.arange(len(lines), dtype="uint16"), np.ones(len(lines), dtype=np.int64))
    answers = fill(Hub(lines), tmp_path / "test", count=10)
    assert {answer["text"].replace("<mask>", answer["word"]) for answer in answers} == set(LINES)
    assert all(answer["words"] == ["a", "b", "c", "d", "e"] for answer in answers)


def test_the_report_holds_scores_masks_command_and_curve(tmp_path, monkeypatch):
    log = tmp_path / "train.log"
    log.write_text("".join(LOG))
    write_report(tmp_path, evaluation=EVALUATION, command=["fairseq-train", "two words", "--x"], logs=[log])
    text = (tmp_path / "report.md").read_text()
    said = summary(EVALUATION)
    assert all(number in said for number in ("30.0 %", "5.0 %", "27.0 %", "90.0", "700.0", "210.5", "66.5"))
    assert "predicts worse than counts of both neighbors" in text and "`roberta pretrain --hours`" in text
    assert said in text and "12,345 masked tokens" in text and "(loss.png)" in text
    assert "the last checkpoint, of 40 updates, predicts them" in text
    assert "- A <mask> of strings.: list 50%, set 25% (true: list)" in text
    assert "fairseq-train 'two words' --x" in text
    content = (tmp_path / "loss.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    earlier, shown = tmp_path / "earlier.log", []  # of the run that this one continues from update 10
    earlier.write_text(LOG[0].replace('"10"', '"5"') + LOG[3].replace('"8.0"', '"99"'))
    monkeypatch.setattr(evaluation, "draw", lambda path, curves, **_: shown.append(curves))
    write_report(tmp_path, evaluation=EVALUATION, command=[], logs=[earlier, log])
    assert (
        shown[0]["train_inner", "loss"].updates == [5, 10, 20, 30, 40]
        and 99 not in shown[0]["train_inner", "loss"].values
    )
    monkeypatch.undo()
    log.write_text(LOG[0])
    write_report(tmp_path, evaluation=EVALUATION, command=[], logs=[log])
    assert (tmp_path / "loss.png").read_bytes() != content
