"""Dynamic masking: a pure function with the paper's shares, which leaves special tokens alone."""

import numpy as np
import pytest

from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe
from tests.refusals import refused

V = 1000
BOS, PAD, EOS, UNK, MASK = 0, 1, 2, 3, V - 1
MADE_UP = [996, 997, 998]
SPECIAL = np.zeros(V, dtype=bool)
SPECIAL[[BOS, PAD, EOS, UNK, MASK, *MADE_UP]] = True
WORD_STARTS = np.arange(V) % 3 == 0


def make_masker(*, word_starts=None, counts=None, **recipe):
    ids = {"mask_id": MASK, "pad_id": PAD, "never_masked": SPECIAL, "never_drawn": SPECIAL}
    return Masker(MaskingRecipe(**recipe), **ids, word_starts=word_starts, counts=counts)


def make_tokens(num_blocks=64, width=128, seed=0):
    """Blocks of different lengths with specials of every kind inside."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(4, MADE_UP[0], (num_blocks, width))
    tokens[:, 0] = BOS
    tokens[:, 10::20] = EOS
    tokens[:, 15] = UNK
    tokens[::2, 17] = MASK
    tokens[:, 18] = MADE_UP[0]
    for row, length in enumerate(rng.integers(width // 2, width + 1, num_blocks)):
        tokens[row, length:] = PAD
    return tokens


def mask(masker, tokens, *, seed=1, passes=1, indices=None):
    indices = np.arange(len(tokens)) if indices is None else np.asarray(indices)
    masked = masker.mask(tokens, seed=seed, passes=np.broadcast_to(passes, len(tokens)), indices=indices)
    assert_gathered(masked)
    return masked.tokens, masked.targets


def assert_gathered(masked):
    """The gathered form tells the same as the one in place."""
    num_predicted = (masked.targets != PAD).sum(axis=1)
    assert masked.num_predicted == num_predicted.sum() == (masked.labels != PAD).sum()
    for row, count in enumerate(num_predicted):
        positions = np.flatnonzero(masked.targets[row] != PAD)
        assert masked.positions[row].tolist() == positions.tolist() + [0] * (masked.positions.shape[1] - count)
        assert masked.labels[row, :count].tolist() == masked.targets[row, positions].tolist()


def test_spans_count_maskable_tokens_or_whole_words_and_end_with_the_block():
    def found(tokens, **recipe):
        _, targets = mask(make_masker(mask_prob=0.5, **recipe), np.array([tokens] * 400))
        return {tuple(row[row != PAD].tolist()) for row in targets}

    spans = found([BOS, 4, 5, EOS, 6, 7, 8, EOS, PAD, PAD], multiple_length=3)  # of 5 tokens, one span or none
    assert spans == {(), (4, 5, 6), (5, 6, 7), (6, 7, 8), (7, 8), (8,)}
    tokens = [BOS, 3 * 2, 7, 8, 3 * 4, 13, 3 * 6, EOS]  # words of 3, 2 and 1 tokens
    spans = found(tokens, multiple_length=2, whole_words=True, word_starts=WORD_STARTS)
    assert spans == {(), (6, 7, 8, 12, 13), (12, 13, 18), (18,)}


def test_forty_percent_are_masked_on_request_and_keep_their_place_among_static_masks():
    """The rate that later work found, with the paper's ten static masks: four times each in forty passes."""
    tokens = make_tokens(200, 256)
    masker = make_masker(mask_prob=0.4, num_static_masks=10)
    seen = {}
    for number in range(1, 41):
        _, targets = mask(masker, tokens, passes=number)
        seen.setdefault((targets != PAD).tobytes(), []).append(number)
        assert abs((targets != PAD).sum() / (~SPECIAL[tokens]).sum() - 0.4) < 0.005
    assert sorted(seen.values()) == [[first + 10 * turn for turn in range(4)] for first in range(1, 11)]


def test_shares_are_those_of_the_paper():
    tokens = make_tokens(2000, 256)
    masked, targets = mask(make_masker(), tokens)
    predicted = targets != PAD
    maskable = ~SPECIAL[tokens]
    num_predicted, num_maskable = predicted.sum(), maskable.sum()
    assert num_predicted > 40_000
    assert abs(num_predicted / num_maskable - 0.15) < 0.001
    is_mask = masked[predicted] == MASK
    is_same = masked[predicted] == tokens[predicted]
    assert abs(is_mask.mean() - 0.8) < 0.01
    assert abs(is_same.mean() - 0.1 - 0.1 / V) < 0.01
    per_block = predicted.sum(axis=1) - 0.15 * maskable.sum(axis=1)
    assert np.abs(per_block).max() < 1, "a block's number of predictions is exact up to rounding"
    assert predicted[:, 1:].sum(axis=0)[30:40].std() > 0  # every position takes part
    shares = predicted[:, 100:110].sum() / maskable[:, 100:110].sum()
    assert abs(shares - 0.15) < 0.01


def test_special_tokens_are_neither_predicted_nor_drawn():
    tokens = make_tokens(3000)
    masked, targets = mask(make_masker(random_token_prob=0.9, leave_unmasked_prob=0.0), tokens)
    predicted = targets != PAD
    assert not SPECIAL[tokens[predicted]].any()
    drawn = masked[predicted]
    drawn = drawn[drawn != MASK]
    assert len(drawn) > 10_000
    assert not SPECIAL[drawn].any()
    assert len(np.unique(drawn)) > 0.99 * (~SPECIAL).sum()


def test_targets_hold_the_original_and_all_else_stays():
    tokens = make_tokens()
    before = tokens.copy()
    masked, targets = mask(make_masker(), tokens)
    predicted = targets != PAD
    assert np.array_equal(tokens, before)
    assert np.array_equal(targets[predicted], tokens[predicted])
    assert np.array_equal(masked[~predicted], tokens[~predicted])


@pytest.mark.parametrize("options", [{}, {"whole_words": True, "word_starts": WORD_STARTS}])
def test_a_block_is_masked_the_same_in_any_batch_and_width(options):
    tokens = make_tokens()
    masker = make_masker(**options)
    masked, targets = mask(masker, tokens, passes=np.arange(1, 65))
    rows = np.array([40, 3, 17])
    wider = np.full((3, 200), PAD)
    wider[:, :128] = tokens[rows]
    again, again_targets = mask(masker, wider, passes=rows + 1, indices=rows)
    assert np.array_equal(again[:, :128], masked[rows])
    assert np.array_equal(again_targets[:, :128], targets[rows])
    assert (again_targets[:, 128:] == PAD).all()


def test_masks_differ_between_seeds_passes_and_blocks():
    tokens = np.tile(make_tokens(1, 256), (50, 1))
    masker = make_masker()
    results = [mask(masker, tokens, seed=seed, passes=number)[1] != PAD for seed in (1, 2) for number in (1, 2)]
    rows = np.concatenate(results)
    assert len(np.unique(rows, axis=0)) == len(rows)
    overlap = (results[0] & results[1]).sum() / results[0].sum()
    assert abs(overlap - 0.15) < 0.03, "two passes choose independently"


def test_static_masking_repeats_after_n_passes():
    tokens = make_tokens()
    masker = make_masker(num_static_masks=10)
    masks = [mask(masker, tokens, passes=number)[0].tobytes() for number in range(1, 21)]
    assert masks[:10] == masks[10:]
    assert len(set(masks)) == 10
    assert masks[0] == mask(make_masker(), tokens)[0].tobytes()


def test_whole_words_are_predicted_whole():
    tokens = make_tokens(2000)
    _, targets = mask(make_masker(whole_words=True, word_starts=WORD_STARTS), tokens)
    predicted = targets != PAD
    maskable = ~SPECIAL[tokens]
    continues = maskable[:, 1:] & maskable[:, :-1] & ~WORD_STARTS[tokens[:, 1:]]
    assert continues.sum() > 50_000
    assert np.array_equal(predicted[:, 1:][continues], predicted[:, :-1][continues])
    begins = maskable.copy()
    begins[:, 1:] &= ~continues
    words_per_block = (predicted & begins).sum(axis=1) - 0.15 * begins.sum(axis=1)
    assert np.abs(words_per_block).max() < 1
    assert not SPECIAL[tokens[predicted]].any()


def test_frequent_tokens_are_drawn_more_often():
    counts = np.zeros(V, dtype=np.int64)
    counts[10], counts[20] = 300, 100
    tokens = make_tokens(2000)
    frequent = {"freq_weighted_replacement": True, "counts": counts}
    masked, targets = mask(make_masker(**frequent, random_token_prob=1.0, leave_unmasked_prob=0.0), tokens)
    drawn = masked[targets != PAD]
    assert len(drawn) > 10_000
    assert set(np.unique(drawn)) == {10, 20}
    assert abs((drawn == 10).mean() - 0.75) < 0.02


def test_equal_draws_at_the_limit_do_not_change_the_number(monkeypatch):
    """Two equal 32-bit numbers in one block are rare: here all of them are equal."""
    from roberta_plugin.data import dynamic_masking

    monkeypatch.setattr(dynamic_masking, "bits32", lambda keys, width: np.zeros((len(keys), width), dtype=np.uint32))
    tokens = make_tokens()
    _, targets = mask(make_masker(), tokens)
    excess = (targets != PAD).sum(axis=1) - 0.15 * (~SPECIAL[tokens]).sum(axis=1)
    assert np.abs(excess).max() < 1


def test_a_block_of_specials_alone_is_left_alone():
    tokens = np.array([[BOS, EOS, PAD], [BOS, UNK, EOS]])
    masked, targets = mask(make_masker(mask_prob=0.99), tokens)
    assert np.array_equal(masked, tokens)
    assert (targets == PAD).all()


def test_short_blocks_are_predicted_in_their_share_as_well():
    """floor(p n) alone would never predict a token of a block of six."""
    tokens = np.tile(np.array([[BOS, 5, 6, 7, EOS]]), (20_000, 1))
    _, targets = mask(make_masker(), tokens)
    assert abs((targets != PAD).sum() / (3 * 20_000) - 0.15) < 0.006


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"leave_unmasked_prob": 0.6, "random_token_prob": 0.6}, "add up to more than 1"),
        ({"whole_words": True}, "--mask-whole-words needs a tokenizer"),
        ({"freq_weighted_replacement": True, "counts": np.zeros(V, dtype=np.int64)}, "needs counts"),
    ],
)
def test_impossible_recipes_are_refused_by_option(options, message):
    refused(message, make_masker, **options)


class Later(Masker):
    """Predicts a fifth at first and a tenth at last, and prefers tokens with large ids."""

    largest_share = 0.2

    def share(self, updates):
        return 0.1 if updates is None else max(0.1, 0.2 - updates / 100)

    def rank(self, draws, tokens):
        return draws / 2.0**32 - tokens


def test_a_masking_of_ones_own_chooses_how_many_and_which_by_the_number_of_updates():
    masker = Later(MaskingRecipe(), mask_id=MASK, pad_id=PAD, never_masked=SPECIAL, never_drawn=SPECIAL, options="x")
    tokens = np.tile(np.arange(4, 104), (400, 1))
    numbers = np.arange(400)

    def at(updates):
        return masker.mask(tokens, seed=1, passes=np.ones(400, np.int64), indices=numbers, updates=updates)

    assert masker.options == "x"
    for updates, share in {0: 0.2, 5: 0.15, 10: 0.1, 99: 0.1, None: 0.1}.items():
        masked = at(updates)
        assert masked.num_predicted / tokens.size == pytest.approx(share, abs=1e-3)
        assert masked.labels.shape == at(0).labels.shape  # so that shapes do not change during a training
        assert set(masked.labels[masked.labels != PAD].tolist()) == set(range(104 - round(100 * share), 104))
    assert np.array_equal(at(99).tokens, at(None).tokens)
