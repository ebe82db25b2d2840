"""The dataset: batches with the right tokens, orders that change, errors that name the file."""

from collections import Counter

import numpy as np
import pytest
import torch

from roberta_plugin.data.blocks import make_blocks
from roberta_plugin.data.masked_lm_dataset import MaskedLMDataset, SplitFile
from tests.refusals import refused
from tests.tiny_tokens import PAD, masker_of, original, write_items

V = 60


def write_source(prefix, *, num_items=80, seed=0, bad_id=None):
    rng = np.random.default_rng(seed)
    items = [[*rng.integers(4, V - 1, rng.integers(1, 12)), 2] for _ in range(num_items)]
    if bad_id is not None:
        items[41][0] = bad_id
    tokens = write_items(prefix, items)
    return SplitFile(tokens, make_blocks(tokens.sizes, block_length=15, break_mode="complete"))


def make_dataset(*sources, **options):
    return MaskedLMDataset(sources, masker_of(V), bos_id=0, pad_id=PAD, vocab_size=V, seed=7, **options)


@pytest.fixture
def source(tmp_path):
    return write_source(tmp_path / "train")


def test_a_batch_holds_its_blocks(source):
    dataset = make_dataset(source)
    seen = 0
    for addresses in dataset.batches(1, max_sentences=4):
        batch = dataset.__getitems__(addresses)
        starts, lengths = source.blocks.bounds(batch["id"].numpy())
        tokens = original(batch)
        for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            expected = [0, *source.tokens.tokens[start : start + length].tolist()]
            assert tokens[row].tolist() == expected + [PAD] * (tokens.size(1) - len(expected))
        assert batch["net_input"]["src_lengths"].tolist() == (lengths + 1).tolist()
        assert batch["ntokens"] == tokens.ne(PAD).sum()
        assert batch["nsentences"] == len(addresses) == len(tokens)
        assert batch["net_input"]["has_padding"] == bool(tokens.eq(PAD).any())
        seen += len(addresses)
    assert seen == len(dataset) > 20


def test_orders_and_masks_change_with_the_epoch_and_repeat_by_seed(source):
    dataset, other = make_dataset(source), make_dataset(source)
    epochs = [[b.indices.tolist() for b in dataset.batches(epoch, max_sentences=4)] for epoch in (1, 2, 3)]
    for batches in epochs:
        assert Counter(index for batch in batches for index in batch) == Counter(range(len(dataset)))
    compositions = [{tuple(sorted(batch)) for batch in batches} for batches in epochs]
    assert compositions[0] != compositions[1] != compositions[2], "the same blocks meet in every epoch"
    assert epochs[1] == [b.indices.tolist() for b in other.batches(2, max_sentences=4)]
    first, second = (dataset.__getitems__([(number, index) for index in range(20)]) for number in (1, 2))
    assert torch.equal(original(first), original(second))
    assert not torch.equal(first["target"], second["target"])


def test_workers_that_outlive_an_epoch_make_the_masks_of_the_new_one(source):
    dataset = make_dataset(source)
    batches = [*dataset.batches(1, max_sentences=8), *dataset.batches(2, max_sentences=8)]
    loader = torch.utils.data.DataLoader(
        dataset, collate_fn=dataset.collater, batch_sampler=batches, num_workers=1, persistent_workers=True
    )
    for _ in range(2):
        for addresses, batch in zip(batches, loader, strict=True):
            assert torch.equal(batch["target"], dataset.__getitems__(addresses)["target"])


def test_single_blocks_are_joined_to_the_same_batch(source):
    """fairseq makes its dummy batch from single blocks."""
    dataset = make_dataset(source)
    addresses = dataset.batches(3, max_sentences=6)[2]
    whole, joined = dataset.__getitems__(addresses), dataset.collater([dataset[address] for address in addresses])
    for key in ("id", "target", "ntokens", "nsentences"):
        assert torch.equal(torch.as_tensor(whole[key]), torch.as_tensor(joined[key]))
    for key, value in whole["net_input"].items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(joined["net_input"][key]))
    assert dataset.collater([]) == {} == dataset.__getitems__([])
    dataset.set_epoch(3)
    index = int(addresses.indices[0])
    assert torch.equal(dataset[index]["target"], dataset[(3, index)]["target"])


def test_several_files_are_one_dataset(tmp_path):
    sources = [write_source(tmp_path / name, seed=seed, num_items=n) for name, seed, n in (("a", 1, 50), ("b", 2, 9))]
    dataset = make_dataset(*sources)
    assert len(dataset) == sum(len(source.blocks) for source in sources)
    mixed = 0
    for addresses in dataset.batches(1, max_sentences=6):
        batch = dataset.__getitems__(addresses)
        which = batch["id"].numpy() >= len(sources[0].blocks)
        mixed += 0 < which.sum() < len(which)
        for row, index in enumerate(batch["id"].tolist()):
            source = sources[int(which[row])]
            start, length = source.blocks.bounds(np.array([index - which[row] * len(sources[0].blocks)]))
            expected = source.tokens.tokens[start[0] : start[0] + length[0]]
            assert original(batch)[row, 1 : 1 + length[0]].tolist() == expected.tolist()
    assert mixed > 0


def test_an_epoch_takes_the_counts_and_passes_go_on(tmp_path):
    sources = [write_source(tmp_path / name, seed=seed) for name, seed in (("a", 1), ("b", 2))]
    first, second = (len(source.blocks) for source in sources)
    counts = [first // 2, second + second // 2]
    dataset = make_dataset(*sources, mixture=[(first, counts[0]), (second, counts[1])])
    addresses = [address for epoch in (1, 2) for batch in dataset.batches(epoch, max_sentences=5) for address in batch]
    seen = Counter(index for _, index in addresses)
    assert {seen[index] for index in range(first - first % 2)} <= {0, 1}, "without replacement within a pass"
    assert {seen[index] for index in range(first, first + second)} <= {2, 3}
    assert {number for number, index in addresses if index >= first} == {1, 2, 3}
    assert len(set(addresses)) == len(addresses), "no block comes twice with the same mask"


def test_folders_that_take_turns_count_their_own_visits(source):
    dataset = make_dataset(source, shard=1, num_shards=3)
    assert {number for batch in dataset.batches(2, max_sentences=5) for number, _ in batch} == {1}
    assert {number for batch in dataset.batches(5, max_sentences=5) for number, _ in batch} == {2}


def test_widths_are_padded_to_the_multiple(source):
    dataset = make_dataset(source, pad_to_multiple=8)
    widths = {dataset.__getitems__(batch)["target"].size(1) for batch in dataset.batches(1, max_sentences=3)}
    assert widths <= {8, 16}
    assert len(widths) == 2


def test_an_id_outside_the_vocabulary_is_named_with_file_and_line(tmp_path):
    dataset = make_dataset(write_source(tmp_path / "train", bad_id=V))
    message = rf"train\.bin holds the token id {V} in item 41 \(line 42 .*dict\.txt does not"
    refused(message, lambda: [dataset.__getitems__(batch) for batch in dataset.batches(1, max_sentences=8)])


def test_packed_batches_hold_the_same_blocks_and_masks(source):
    padded, packed = make_dataset(source), make_dataset(source, pack=True, pad_to_multiple=64, max_length=16)
    seen = []
    for addresses in packed.batches(1, max_tokens=128):
        batch = packed.__getitems__(addresses)
        assert batch["net_input"]["src_tokens"].shape == (1, 64 * -(-batch["ntokens"] // 64))
        assert batch["ntokens"] <= 128
        cu_seqlens = batch["net_input"]["packing"]["cu_seqlens"].tolist()
        for block, address in enumerate(addresses):
            alone = padded[address]
            mine = slice(cu_seqlens[block], cu_seqlens[block + 1])
            assert torch.equal(batch["net_input"]["src_tokens"][:, mine], alone["net_input"]["src_tokens"])
            assert torch.equal(batch["target"][:, mine], alone["target"])
        assert batch["predicted"]["number"] == batch["target"].ne(PAD).sum()
        seen += batch["id"].tolist()
    assert sorted(seen) == list(range(len(packed)))
    filled = [packed.lengths(batch.indices).sum() for batch in packed.batches(1, max_tokens=128)]
    assert np.mean(filled[:-1]) > 0.9 * 128


@pytest.mark.parametrize("pack", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("multiple", [8, 16, 50])
def test_batches_keep_to_max_tokens_with_their_padding(source, multiple, pack):
    dataset = make_dataset(source, pack=pack, pad_to_multiple=multiple, max_length=16)
    sizes = []
    for addresses in dataset.batches(1, max_tokens=127):
        batch = dataset.__getitems__(addresses)
        sizes.append(batch["net_input"]["src_tokens"].numel())
        assert batch["net_input"]["src_tokens"].size(1) % multiple == 0
    assert 80 < max(sizes) <= 127
    unlimited = make_dataset(source, pack=pack, pad_to_multiple=50)
    refused(r"--max-tokens \(40\) .* --pad-to-multiple 50 rounds up", unlimited.batches, 1, max_tokens=40)


def test_no_sequence_of_a_packed_row_is_longer_than_the_model_is_told(source):
    """Attention kernels go by that number and leave what lies beyond it uninitialized."""
    dataset = make_dataset(source, pack=True, pad_to_multiple=512, max_length=16)
    batch = dataset.__getitems__([(1, 0), (1, 1)])
    packing, predicted = batch["net_input"]["packing"], batch["predicted"]
    assert batch["net_input"]["src_tokens"].shape == (1, 512)
    assert batch["ntokens"] < 40
    assert packing["max_seqlen"] == 16 >= packing["cu_seqlens"].diff().max()
    assert predicted["max_seqlen"] >= predicted["cu_seqlens"].diff().max()


def test_packing_masks_blocks_of_their_own_width_whatever_the_row_is_rounded_to(source):
    """Blocks as wide as the row would make the loader slower in proportion."""
    dataset = make_dataset(source, pack=True, pad_to_multiple=4096, max_length=16)
    tokens, lengths = dataset._gather(np.arange(20))
    assert tokens.shape == (20, lengths.max())
