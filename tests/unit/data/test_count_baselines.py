"""Counts of a data-bin: losses of n-grams beside plain loops, what is kept of them, faults."""

import hashlib
import itertools
import json
import logging
import math
from collections import Counter

import numpy as np
import pytest

from roberta_plugin.data import corpus_statistics, count_baselines, pair_counts
from roberta_plugin.data.corpus_statistics import count_split, find_faults
from roberta_plugin.data.count_baselines import comparison, remedy
from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.neighbor_baseline import (
    KNOWN,
    REPLACED,
    UNKNOWN,
    NeighborScores,
    Score,
    see_neighbors,
)
from roberta_plugin.data.vocabulary import Row, Vocabulary
from roberta_plugin.models.config import FastRobertaConfig
from tests.refusals import refused
from tests.tiny_corpus import write_data_bin
from tests.tiny_tokens import write_items

EOS, UNK = 2, 3
NEVER = {0, 1, EOS, UNK, 9, 12}  # the specials, madeupword0000 and <mask>
SYMBOLS = ["a", "b", "c", "d", "e", "madeupword0000", "f", "g"]  # ids 4 to 11
TEXT = {"train": 4000, "valid": 700, "valid1": 300, "test": 900}


def baselines_of(train, held_out):
    """The baselines of one split."""
    return count_baselines.baselines_of(train, {"it": held_out})["it"]


def write(prefix, lines):
    prefix.parent.mkdir(exist_ok=True)
    Vocabulary([Row(symbol, 1) for symbol in SYMBOLS]).save(prefix.parent / "dict.txt")
    write_items(prefix, [[*line, EOS] for line in lines])


@pytest.fixture
def folder(tmp_path):
    """Text in which tokens depend on those before them, with blank lines, <unk> and a filler word."""
    rng = np.random.default_rng(0)
    for split, num_tokens in TEXT.items():
        ids = rng.choice([UNK, 4, 4, 4, 5, 5, 6, 7, 9, 10, 11], num_tokens)
        follows = rng.random(num_tokens) < 0.4
        ids[1:][follows[1:]] = 4 + (3 * ids[:-1][follows[1:]] + 1) % 5
        write(tmp_path / "bin" / split, np.array_split(ids, 90) + [[]] * 9)
    return tmp_path / "bin"


def plain(train, held_out, window):
    """Unigram and bigram losses by loops in float64: one pseudo-count after the other, one token after the other."""

    def pairs(tokens):
        return [(before, token) for before, token in zip([EOS, *tokens], tokens, strict=False) if token not in NEVER]

    def held(place, size):  # the last twentieth of each window
        length = min(window, size - place // window * window)
        return place % window >= length - length // 20

    def loss(scored, of, pseudo_counts):
        tokens, contexts, both = Counter(w for _, w in of), Counter(v for v, _ in of), Counter(of)
        total, num_symbols = len(of), len(SYMBOLS) + 5 - len(NEVER)
        bits = 0.0
        for before, token in scored:
            prob = (tokens[token] + 1) / (total + num_symbols)
            if pseudo_counts is not None:
                prob = (both[before, token] + pseudo_counts * prob) / (contexts[before] + pseudo_counts)
            bits -= math.log2(prob)
        return bits / len(scored)

    fit, rest = [], []
    for place, pair in enumerate(zip([EOS, *train], train, strict=False)):
        if pair[1] not in NEVER:
            (fit if held(place, len(train)) else rest).append(pair)
    best = min((2.0 ** (power / 2) for power in range(48, -9, -1)), key=lambda a: loss(fit, rest, a))
    scored = pairs(held_out)
    return loss(scored, pairs(train), None), loss(scored, pairs(train), best), best, len(scored), len(fit)


@pytest.mark.parametrize("window", [2**21, 1000, 37])
def test_losses_are_those_of_plain_loops(folder, window, monkeypatch):
    monkeypatch.setattr(pair_counts, "WINDOW", window)
    train, valid = (MmapTokens(folder / split).tokens.tolist() for split in ("train", "valid"))
    unigram, bigram, best, num_scored, num_fitted = plain(train, valid, window)
    found = baselines_of([folder / "train"], [folder / "valid"])
    assert (found.unigram, found.bigram) == pytest.approx((unigram, bigram), rel=1e-12)
    assert (found.pseudo_counts, found.num_scored) == (best, num_scored)
    assert num_fitted > 60 and bigram < unigram - 0.2 and num_scored < len(valid) - 99


@pytest.mark.parametrize("window", [2**21, 37])
def test_scores_between_neighbors_are_those_of_plain_loops(folder, window, monkeypatch):
    """Every case over the whole vocabulary in float64: p(w | l) p(w | r) / p(w), normalized."""
    monkeypatch.setattr(pair_counts, "WINDOW", window)
    train, valid = (MmapTokens(folder / split).tokens.tolist() for split in ("train", "valid"))
    found = baselines_of([folder / "train"], [folder / "valid"])
    a = found.pseudo_counts
    text = [EOS, *train, EOS]
    pairs, words = Counter(itertools.pairwise(text)), Counter(w for w in train if w not in NEVER)
    scored = [w for w in range(4, len(SYMBOLS) + 5) if w not in NEVER]
    prior = {w: (words[w] + 1) / (sum(words.values()) + len(scored)) for w in scored}

    def side(numbers, pseudo_counts):
        total = sum(numbers.values())
        return {w: (numbers[w] + pseudo_counts * prior[w]) / (total + pseudo_counts) for w in scored}

    def fit_right():
        held = [(w, r) for w, r, kept in triples(train, window) if kept]
        rest = pairs - Counter((w, r) for w, r in held)
        rest_words = Counter(w for w in train if w not in NEVER) - Counter(held_words(train, window))

        def loss(b):
            total, bits = sum(rest_words.values()), 0.0
            for w, r in held:
                p = (rest_words[w] + 1) / (total + len(scored))
                bits -= math.log2((rest[w, r] + b * p) / (sum(rest[u, r] for u in scored) + b))
            return bits

        return min((2.0 ** (power / 2) for power in range(48, -9, -1)), key=loss)

    b = fit_right()

    def predict(left, right):
        from_left = side({w: pairs[left, w] for w in scored}, a) if left is not None else prior
        from_right = side({w: pairs[w, right] for w in scored}, b) if right is not None else prior
        product = {w: from_left[w] * from_right[w] / prior[w] for w in scored}
        return {w: value / sum(product.values()) for w, value in product.items()}

    text = [EOS, *valid, EOS]
    places = [(text[i - 1], text[i], text[i + 1]) for i in range(1, len(text) - 1) if text[i] not in NEVER]
    for name, hide in {"both": "", "left": "r", "right": "l", "none": "lr"}.items():
        predictions = [
            (w, predict(None if "l" in hide else left, None if "r" in hide else right)) for left, w, right in places
        ]
        score = getattr(found.neighbors, name)
        assert score.loss == pytest.approx(-sum(math.log2(p[w]) for w, p in predictions) / len(places), rel=1e-9), name
        right = sum(p[w] > max(value for u, value in p.items() if u != w) for w, p in predictions)
        assert score.accuracy == pytest.approx(100 * right / len(places), abs=0.5), name  # ties
    assert found.neighbors.both.loss < found.neighbors.left.loss - 0.1 < found.neighbors.none.loss - 0.2
    assert found.neighbors.other_alone.loss > found.neighbors.none.loss
    assert found.neighbors.both.loss < found.neighbors.other_and_known.loss


def held_places(train, window):
    """Places of the text that pseudo-counts are fitted on: the last twentieth of each window."""
    for place in range(len(train)):
        length = min(window, len(train) - place // window * window)
        if place % window >= length - length // 20:
            yield place


def triples(train, window):
    """Pairs in the order of the counting program: the token before a held-out place, that place, if it is kept."""
    for place in held_places(train, window):
        before = train[place - 1] if place else EOS
        yield before, train[place], before not in NEVER


def held_words(train, window):
    return [train[place] for place in held_places(train, window) if train[place] not in NEVER]


@pytest.mark.parametrize("options", [{}, {"mask_prob": 0.4}, {"multiple_length": 3}], ids=["paper", "more", "spans"])
def test_neighbors_are_seen_as_the_masks_leave_them(folder, options):
    vocabulary = Vocabulary.load(folder / "dict.txt")
    masker = Masker.for_vocabulary(vocabulary, MaskingRecipe(**options))
    tokens = MmapTokens(folder / "train")
    seen = see_neighbors(masker, tokens, block_length=33)
    assert seen.sum() == pytest.approx(1) and seen.shape == (3, 3)
    hidden, changed = seen[UNKNOWN].sum(), seen[REPLACED].sum()
    if not options:  # a mask beside a mask is rarer by the fixed number of a block; one place in 32 is the first
        assert hidden == pytest.approx(0.8 * 0.15 * 0.9 + 1 / 32, abs=0.03)
        assert 0.003 < changed < 0.02
    else:
        assert hidden > 0.2


def test_the_expected_score_weighs_the_cases():
    one, other = Score(1.0, 50.0), Score(5.0, 10.0)
    scores = NeighborScores(both=one, left=other, right=other, none=other, other_and_known=other, other_alone=other)
    seen = np.zeros((3, 3))
    seen[KNOWN, KNOWN], seen[UNKNOWN, KNOWN] = 0.75, 0.25
    assert scores.expect(seen) == Score(2.0, 40.0)


def test_several_files_are_one_text(folder, tmp_path):
    """A mixture counts as its concatenation; valid1 belongs to valid where fairseq combines them."""
    whole = tmp_path / "whole"
    lines = {split: [MmapTokens(folder / split)[i][:-1] for i in range(99)] for split in TEXT}
    write(whole / "train", [*lines["train"], *lines["test"]])
    write(whole / "valid", [*lines["valid"], *lines["valid1"]])
    parts = baselines_of([folder / "train", folder / "test"], [folder / "valid", folder / "valid1"])
    joined = baselines_of([whole / "train"], [whole / "valid"])
    assert parts.unigram == pytest.approx(joined.unigram, rel=1e-12)
    assert (parts.num_scored, parts.num_train) == (joined.num_scored, joined.num_train)
    names = sorted(path.name for path in folder.glob("baselines*"))
    assert len(names) == 1 and names[0].startswith("baselines-valid-")
    assert baselines_of([folder / "train"], [folder / "valid"]).num_train < parts.num_train
    assert len(list(folder.glob("baselines*"))) == 2


def test_of_a_large_text_windows_from_all_over_are_counted(folder, monkeypatch):
    full = baselines_of([folder / "train"], [folder / "valid"])
    (folder / "baselines-valid.json").unlink()
    monkeypatch.setattr(pair_counts, "WINDOW", 50)
    for name, value in (("_MOST_COUNTED", 2000), ("_MOST_SCORED", 400)):
        monkeypatch.setattr(count_baselines, name, value)
    part = baselines_of([folder / "train"], [folder / "valid"])
    assert 1900 < part.num_counted <= 2000 < full.num_counted == part.num_train
    assert 300 < part.num_scored < 400 < full.num_scored
    assert part.bigram != full.bigram
    assert (part.unigram, part.bigram) == pytest.approx((full.unigram, full.bigram), rel=0.1)
    windows = pair_counts.spread_windows([MmapTokens(folder / "train")], 2000)
    assert windows[0].start == 0 and windows[-1].stop == MmapTokens(folder / "train").num_tokens


@pytest.fixture
def counting(monkeypatch):
    """How often the text was counted."""
    calls = []
    count = count_baselines.count_baselines
    monkeypatch.setattr(count_baselines, "count_baselines", lambda *args: calls.append(args) or count(*args))
    return calls


def test_they_are_kept_until_the_data_change(folder, tmp_path, counting):
    found = baselines_of([folder / "train"], [folder / "valid"])
    assert baselines_of([str(folder / "train")], [folder / "valid"]) == found
    copy = folder.rename(tmp_path / "moved")
    assert baselines_of([copy / "train"], [copy / "valid"]) == found and len(counting) == 1
    baselines_of([copy / "train"], [copy / "test"])
    assert len(counting) == 2 and (copy / "baselines-test.json").is_file()
    write(copy / "valid", [[4, 5, 6]] * 250)  # as many tokens
    assert baselines_of([copy / "train"], [copy / "valid"]) != found and len(counting) == 3


def test_splits_are_counted_together_and_only_what_is_not_kept(folder, counting, monkeypatch):
    splits = {split: [folder / split] for split in ("test", "valid", "valid1")}
    alone = {split: baselines_of([folder / "train"], splits[split]) for split in ("valid", "test")}
    found = count_baselines.baselines_of([folder / "train"], splits)
    assert list(found) == list(splits) and found["valid"] == alone["valid"] and found["test"] == alone["test"]
    assert len(counting) == 3 and counting[-1][1].keys() == {"valid1"}
    for path in folder.glob("baselines*"):
        path.unlink()
    assert count_baselines.baselines_of([folder / "train"], splits) == found and len(counting) == 4


def test_a_damaged_file_is_made_again(folder, counting):
    found = baselines_of([folder / "train"], [folder / "valid"])
    path = folder / "baselines-valid.json"
    good = path.read_text()
    changed = [json.loads(good) for _ in range(3)]
    changed[0]["baselines"]["unigram"] = math.nan
    changed[1]["baselines"] = {"unigram": 1.0}
    changed[2]["baselines"] = "none"
    for damage in ("", good[:200], "[1]", "{}", *map(json.dumps, changed)):
        path.write_text(damage)
        assert baselines_of([folder / "train"], [folder / "valid"]) == found and path.read_text() == good, damage
    assert len(counting) == 8


def test_a_folder_that_cannot_be_written_is_one_warning(folder, caplog):
    (folder / "baselines-valid.json").mkdir()
    with caplog.at_level(logging.WARNING):
        assert baselines_of([folder / "train"], [folder / "valid"]).unigram > 0
    (warning,) = caplog.messages
    assert "cannot be written" in warning and "--no-baselines" in warning
    assert not list(folder.glob(".*"))


def test_text_without_a_token_to_predict_has_none_and_a_tiny_one_has_unigrams(folder, counting):
    write(folder / "blank", [[], [UNK, UNK], []])
    write(folder / "tiny", [[4]])
    for _ in range(2):
        assert baselines_of([folder / "train"], [folder / "blank"]) is None
    assert len(counting) == 1
    alone = baselines_of([folder / "tiny"], [folder / "valid"])
    assert alone.bigram == pytest.approx(alone.unigram, abs=1e-6)
    assert baselines_of([folder / "blank"], [folder / "valid"]).unigram == pytest.approx(math.log2(7))


def test_an_id_beyond_the_vocabulary_is_named(folder):
    write(folder / "train", [[4, 5], [13, 4]])
    refused(r"token id 13 in item 1", baselines_of, [folder / "train"], [folder / "valid"])


def test_fairseqs_scan_for_validation_splits_ignores_the_file(tmp_path):
    folder = write_data_bin(tmp_path / "data-bin")
    baselines_of([folder / "train"], [folder / "valid"])
    assert not [path for path in folder.iterdir() if path.name.startswith("valid") and "baselines" in path.name]


def test_a_loss_is_placed_among_the_baselines():
    losses = {"unigram_loss": 10.187, "bigram_loss": 7.378}
    for loss in (10.187, 15.6):
        assert "so far it has learned token frequencies at most" in comparison(loss, losses, what="the model")
    for loss, shown in ((math.nan, "nan"), (1244.0, "more than 1e+301"), (900.0, "8.5e+270"), (24.0, "1.7e+07")):
        said = comparison(loss, losses, what="the model")
        assert f"(ppl {shown}), more than an even guess" in said and said.endswith("--clip-norm")
    assert "has diverged" in comparison(13.1, losses, what="the model", num_symbols=2**11)
    assert comparison(8.9129, losses, what="On valid, the model") == (
        "On valid, the model has a loss of 8.913 bits per token (ppl 482): better than the unigram baseline "
        "(10.187, ppl 1,166), and worse than the previous-token baseline (7.378, ppl 166.3)"
    )
    alone = "previous-token baseline"
    assert comparison(5.0, losses, what="it").endswith(f": better than the {alone} (7.378, ppl 166.3)")  # an older log
    losses["neighbors_loss"] = 6.0
    assert comparison(5.0, losses, what="it").endswith(": better than the both-neighbors baseline (6.000, ppl 64)")
    assert comparison(6.4, losses, what="it").endswith(
        f": better than the {alone} (7.378, ppl 166.3), and worse than the both-neighbors baseline (6.000, ppl 64)"
    )


def test_the_remedy_of_a_model_above_the_unigram_baseline_has_options_that_it_lacks():
    options = {word[2:].rstrip(",").replace("-", "_") for word in remedy().split() if word.startswith("--")}
    assert len(options) == 4 and options <= vars(FastRobertaConfig()).keys()
    assert "`roberta pretrain`" in remedy()
    model = FastRobertaConfig(encoder_normalize_before=True, init_std="width")
    assert "more by --init-attention counts --zero-init-residual, which" in remedy(model)
    model.init_attention, model.zero_init_residual = "counts", True
    assert remedy(model) == "More updates help (`roberta pretrain --hours`), and smaller batches"


ITEMS = [[5, 6, 2], [2], [5, 3, 3, 7, 2], [6, 2], [2], [2], [7, 2]]  # three documents of 3, 7 and 2 tokens
VOCABULARY = Vocabulary([Row(symbol, 1) for symbol in "abcdefg"])


def write_split(folder, items):
    VOCABULARY.save(folder / "dict.txt")
    return write_items(folder / "train", items)


@pytest.fixture(params=[2**20, 2], ids=["one window", "many windows"])
def _windows(request, monkeypatch):
    for name in ("_ITEMS_IN_WINDOW", "_TOKENS_IN_WINDOW"):
        monkeypatch.setattr(corpus_statistics, name, request.param)


@pytest.mark.usefixtures("_windows")
def test_counts(tmp_path):
    counts = count_split(write_split(tmp_path, ITEMS), VOCABULARY)
    assert (counts.num_items, counts.num_blank, counts.num_tokens, counts.num_documents) == (7, 3, 15, 3)
    assert (counts.num_unknown, counts.unknown_rate, counts.num_symbols_used) == (2, 2 / 8, 5)


def test_no_items(tmp_path):
    counts = count_split(write_split(tmp_path, []), VOCABULARY)
    assert (counts.num_items, counts.num_blank, counts.unknown_rate) == (0, 0, 0)
    assert counts.num_documents == 0
    assert find_faults(tmp_path, "train", VOCABULARY, None) == []


@pytest.mark.usefixtures("_windows")
@pytest.mark.parametrize(
    ("items", "fault"),
    [
        ([[5, 2], [6, 6], [7, 2]], "item 1 does not end with </s>"),
        ([[5, 2], [2], [6, 2, 7, 2]], "1 </s> inside of items"),
        ([[5, 2], [6, 200, 2]], "token id 200 in item 1"),
    ],
)
def test_faults_in_the_tokens_are_found(tmp_path, items, fault):
    write_split(tmp_path, items)
    (found,) = find_faults(tmp_path, "train", VOCABULARY, None)
    assert fault in found


@pytest.mark.usefixtures("_windows")
@pytest.mark.parametrize(
    ("begin", "content", "fault"),
    [  # before four positions, the third of four sizes; the third position
        (-4 * 8 - 2 * 4, (2**22).to_bytes(4, "little"), "train.idx: item 2 ends behind the end of the .bin"),
        (-2 * 8, (2).to_bytes(8, "little"), "item 2 does not begin where the item before it ends"),
    ],
)
def test_faults_in_the_sizes_and_offsets_are_found(tmp_path, begin, content, fault):
    write_split(tmp_path, [[5, 2], [6, 2], [7, 2], [8, 2]])
    assert find_faults(tmp_path, "train", VOCABULARY, None) == []
    index = (tmp_path / "train.idx").read_bytes()
    (tmp_path / "train.idx").write_bytes(index[:begin] + content + index[begin + len(content) :])
    (found,) = find_faults(tmp_path, "train", VOCABULARY, None)
    assert fault in found


def test_missing_and_cut_off_files_are_faults(tmp_path):
    write_split(tmp_path, ITEMS)
    content = (tmp_path / "train.bin").read_bytes()
    (tmp_path / "train.bin").write_bytes(content[:-2])
    assert "bytes" in find_faults(tmp_path, "train", VOCABULARY, None)[0]
    (tmp_path / "train.bin").unlink()
    assert "does not exist" in find_faults(tmp_path, "train", VOCABULARY, None)[0]


def test_hashes_are_compared_with_the_manifest(tmp_path):
    write_split(tmp_path, ITEMS)

    def record(name):
        content = (tmp_path / name).read_bytes()
        return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    manifest = {
        "dict_sha256": record("dict.txt")["sha256"],
        "splits": {"train": {"outputs": {name: record(name) for name in ("train.bin", "train.idx")}}},
    }
    assert find_faults(tmp_path, "train", VOCABULARY, manifest) == []
    write_split(tmp_path, [[6, *ITEMS[0][1:]], *ITEMS[1:]])
    (tmp_path / "dict.txt").write_text("a 1\n")
    faults = find_faults(tmp_path, "train", VOCABULARY, manifest)
    assert [fault.split(" ")[0].rsplit("/", 1)[1] for fault in faults] == ["train.bin", "dict.txt"]
    assert all(str(tmp_path / "manifest.json") in fault for fault in faults)
