"""Batches of pairs: the same padded and packed, by any number of passes, with what next-sentence prediction needs."""

import numpy as np
import pytest
import torch

from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe
from roberta_plugin.data.pair_chunks import Targets, open_chunks
from roberta_plugin.data.pair_dataset import PairDataset
from roberta_plugin.data.pairs import PairSource
from tests.unit.data.test_pairs import write_sentences

V, PAD, MASK = 5000, 1, 4999
SPECIAL = np.isin(np.arange(V), [0, 1, 2, 3, MASK])


@pytest.fixture(scope="module", params=["segment-pair", "sentence-pair"])
def sources(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    found = []
    for seed in (0, 1):
        tokens, _ = write_sentences(folder / f"train{seed}", num_documents=40, seed=seed)
        found.append(PairSource(tokens, open_chunks(tokens, pair_format=request.param, targets=Targets(60, 0.0))))
    return found


def make_dataset(sources, *, num_static_masks=0, **options):
    recipe = MaskingRecipe(num_static_masks=num_static_masks)
    masker = Masker(recipe, mask_id=MASK, pad_id=PAD, never_masked=SPECIAL, never_drawn=SPECIAL)
    settings = {"with_segments": True, "with_next_sentence": True, "max_length": 64, **options}
    return PairDataset(sources, masker, eos_id=2, bos_id=0, pad_id=PAD, vocab_size=V, seed=7, **settings)


def original(batch):
    tokens, targets = batch["net_input"]["src_tokens"], batch["target"]
    return torch.where(targets.ne(PAD), targets, tokens)


def test_a_batch_holds_its_pairs(sources):
    dataset = make_dataset(sources)
    seen, following = set(), 0
    for addresses in dataset.batches(1, max_sentences=8):
        batch = dataset.__getitems__(addresses)
        tokens, segments = original(batch), batch["net_input"]["segments"]
        lengths = batch["net_input"]["src_lengths"]
        assert lengths.tolist() == dataset.lengths_of(addresses).tolist() == tokens.ne(PAD).sum(dim=1).tolist()
        assert tokens.eq(2).sum(dim=1).tolist() == [3] * len(tokens)
        for row, length in enumerate(lengths.tolist()):
            ends = tokens[row].eq(2).nonzero()[:, 0].tolist()
            assert tokens[row, 0] == 0 and ends[1] == ends[0] + 1 and ends[2] == length - 1
            assert segments[row].nonzero()[:, 0].tolist() == list(range(ends[1], length))
        positions, labels = batch["predicted"]["positions"], batch["predicted"]["labels"]
        assert positions[:, 0].eq(0).all() and labels[:, 0].eq(PAD).all() and labels.ne(PAD).any()
        assert labels.ne(PAD).sum() == batch["predicted"]["number"] == batch["target"].ne(PAD).sum()
        seen |= set(batch["id"].tolist())
        following += int(batch["next_sentence"].eq(0).sum())
    assert seen == set(range(len(dataset)))
    assert abs(2 * following - len(dataset)) <= 4  # two files


def test_a_packed_row_holds_the_same_as_the_padded_batch(sources):
    padded, packed = make_dataset(sources), make_dataset(sources, pack=True, pad_to_multiple=8)
    addresses = [(2, index) for index in (3, 40, 100, 7)]
    one, row = padded.__getitems__(addresses), packed.__getitems__(addresses)
    is_token = original(one).ne(PAD)
    num_tokens = int(is_token.sum())
    for of_both in ("src_tokens", "segments"):
        assert torch.equal(row["net_input"][of_both][0, :num_tokens], one["net_input"][of_both][is_token])
    assert torch.equal(row["next_sentence"], one["next_sentence"])
    cu_seqlens = row["net_input"]["packing"]["cu_seqlens"]
    first = row["predicted"]["positions"][0, row["predicted"]["cu_seqlens"][:4].long()]
    assert torch.equal(first.int(), cu_seqlens[:4])
    labels = row["predicted"]["labels"]
    assert labels.ne(PAD).sum() == one["predicted"]["number"]
    assert torch.equal(row["target"][0, row["predicted"]["positions"][0]][labels[0].ne(PAD)], labels[labels.ne(PAD)])


def test_static_masks_come_with_the_same_pairs_and_each_is_seen_four_times_in_forty_passes(sources):
    dataset = make_dataset(sources, num_static_masks=10)
    seen = {}
    for number in range(1, 41):
        batch = dataset.__getitems__([(number, 11), (number, 70)])
        key = (batch["net_input"]["src_tokens"].numpy().tobytes(), batch["target"].numpy().tobytes())
        seen[key] = seen.get(key, 0) + 1
    assert list(seen.values()) == [4] * 10
    dynamic = make_dataset(sources)
    first, again = (dynamic.__getitems__([(number, 11)]) for number in (1, 11))
    assert not torch.equal(first["target"], again["target"])


def test_what_is_not_wanted_is_left_out(sources):
    dataset = make_dataset(sources, with_segments=False, with_next_sentence=False)
    batch = dataset.__getitems__([(1, 5), (1, 6)])
    assert "segments" not in batch["net_input"] and "next_sentence" not in batch
    with_both = make_dataset(sources).__getitems__([(1, 5), (1, 6)])
    assert torch.equal(batch["net_input"]["src_tokens"], with_both["net_input"]["src_tokens"])
    assert torch.equal(batch["predicted"]["positions"], with_both["predicted"]["positions"][:, 1:])


def test_batches_by_tokens_keep_their_limit_in_every_epoch(sources):
    for pack in (False, True):
        dataset = make_dataset(sources, pack=pack)
        for epoch in (1, 2):
            seen = []
            for addresses in dataset.batches(epoch, max_tokens=256):
                batch = dataset.__getitems__(addresses)
                assert batch["net_input"]["src_tokens"].numel() <= 256
                seen += batch["id"].tolist()
            assert sorted(seen) == list(range(len(dataset)))
