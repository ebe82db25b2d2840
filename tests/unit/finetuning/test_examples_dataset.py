"""Batches of a prepared split: every example once, in its place, with little padding, the same when resumed."""

import pickle

import numpy as np
import pytest
import torch

from roberta_plugin.finetuning.examples_dataset import ExamplesDataset
from tests.tiny_benchmarks import write_prepared

PAD = 1


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("set") / "set", num_examples=150)


def dataset_of(prepared, **options):
    return ExamplesDataset(prepared.split("train"), pad_id=PAD, vocab_size=263, seed=3, **options)


@pytest.mark.parametrize("pack", [False, True])
def test_every_example_is_once_in_an_epoch_with_all_that_belongs_to_it(prepared, pack):
    dataset, split = dataset_of(prepared, pack=pack, pad_to_multiple=4), prepared.split("train")
    seen = []
    for addresses in dataset.batches(1, max_sentences=8):
        batch = dataset.__getitems__(addresses)
        net_input, first = batch["net_input"], batch["offsets"].tolist()
        rows = []
        for place, example in enumerate(batch["id"].tolist()):
            sequences = [split.sequences[i].tolist() for i in range(*split.offsets[example : example + 2])]
            assert first[place + 1] - first[place] == len(sequences)
            rows += sequences
            assert batch["columns"]["label"][place] == split.columns["label"][example]
            assert batch["columns"]["weight"][place] == split.columns["weight"][example]
            seen.append(example)
        assert net_input["src_lengths"].tolist() == [len(row) for row in rows]
        assert batch["ntokens"] == sum(len(row) for row in rows)
        assert batch["npositions"] == net_input["src_tokens"].numel()
        assert net_input["src_tokens"].size(1) % 4 == 0
        if pack:
            cu_seqlens = [*net_input["packing"]["cu_seqlens"].tolist(), len(net_input["src_tokens"][0])]
            (found,) = net_input["src_tokens"].tolist()
            positions = net_input["packing"]["positions"][0].tolist()
            for row, start, stop in zip(rows, cu_seqlens, cu_seqlens[1:], strict=False):
                assert found[start:stop] == row
                assert positions[start:stop] == list(range(len(row)))
            assert found[cu_seqlens[-2] :] == [PAD] * (cu_seqlens[-1] - cu_seqlens[-2])
            assert net_input["packing"]["max_seqlen"] >= max(map(len, rows))
        else:
            for row, found in zip(rows, net_input["src_tokens"].tolist(), strict=True):
                assert found == row + [PAD] * (len(found) - len(row))
            assert net_input["has_padding"] == bool(net_input["src_tokens"].eq(PAD).any())
    assert sorted(seen) == list(range(150))


def test_orders_change_with_the_epoch_and_resume_anywhere(prepared):
    dataset = dataset_of(prepared)
    epochs = [[b.indices.tolist() for b in dataset.batches(epoch, max_sentences=8)] for epoch in (1, 2)]
    assert {tuple(sorted(b)) for b in epochs[0]} != {tuple(sorted(b)) for b in epochs[1]}
    rest = dataset.batches(2, first_block=16, max_sentences=8)
    assert [b.indices.tolist() for b in rest] == epochs[1][2:]


def test_examples_of_similar_length_meet(prepared):
    dataset = dataset_of(prepared)
    batches = [dataset.__getitems__(b) for b in dataset.batches(1, max_sentences=8)]
    random = np.random.default_rng(0).permutation(150)
    plain = [dataset.__getitems__([(1, int(i)) for i in random[start : start + 8]]) for start in range(0, 150, 8)]
    padding, plain_padding = (
        1 - sum(b["ntokens"] for b in some) / sum(b["npositions"] for b in some) for some in (batches, plain)
    )
    assert padding < 0.8 * plain_padding


@pytest.mark.parametrize("multiple", [1, 16])
@pytest.mark.parametrize("pack", [False, True])
def test_batches_keep_to_max_tokens(prepared, pack, multiple):
    dataset = dataset_of(prepared, pack=pack, pad_to_multiple=multiple)
    sizes = [dataset.__getitems__(b)["npositions"] for b in dataset.batches(1, max_tokens=200)]
    assert 140 < max(sizes) <= 200
    with pytest.raises(ValueError, match="--max-tokens"):
        dataset.batches(1, max_tokens=20)


def test_no_sequence_of_a_packed_row_is_longer_than_the_model_is_told(prepared):
    dataset = dataset_of(prepared, pack=True, pad_to_multiple=512, max_length=24)
    packing = dataset.__getitems__(dataset.batches(1, max_sentences=1)[0])["net_input"]["packing"]
    assert packing["cu_seqlens"][-1] == 512
    assert packing["max_seqlen"] == 24 >= packing["cu_seqlens"].diff().max()


def test_batches_and_dataset_reach_the_workers(prepared):
    dataset = dataset_of(prepared)
    batch = dataset.batches(1, max_sentences=8)[3]
    copied, addresses = pickle.loads(pickle.dumps((dataset, batch)))
    one, other = dataset.__getitems__(batch), copied.__getitems__(addresses)
    assert torch.equal(one["net_input"]["src_tokens"], other["net_input"]["src_tokens"])
    joined = dataset.collater([dataset[address] for address in batch])
    assert torch.equal(one["net_input"]["src_tokens"], joined["net_input"]["src_tokens"])


def test_ids_outside_the_vocabulary_are_named(tmp_path):
    prepared = write_prepared(tmp_path / "set", num_examples=4, num_options=1)
    start = int(prepared.split("train").sequences.starts[3])
    np.memmap(tmp_path / "set" / "train.bin", dtype=np.uint16, mode="r+")[start + 1] = 999
    with pytest.raises(ValueError, match=r"token id 999 in item 3"):
        dataset_of(prepared).__getitems__([(1, 3)])


@pytest.mark.parametrize("pack", [False, True])
def test_an_example_above_the_limit_has_a_batch_of_its_own_and_the_others_keep_to_it(prepared, pack):
    """Otherwise one document of hundreds of windows would let every batch of an evaluation be as large as itself."""
    dataset = dataset_of(prepared, pack=pack, most_counted=60)
    batches = [dataset.__getitems__(addresses) for addresses in dataset.batches(1, max_tokens=60)]
    assert sorted(example for batch in batches for example in batch["id"].tolist()) == list(range(150))
    is_large = [batch["npositions"] > 60 for batch in batches]
    assert 0 < sum(is_large) < len(batches)
    assert all(len(batch["id"]) == 1 for batch, large in zip(batches, is_large, strict=True) if large)
    assert pack <= any(len(batch["id"]) > 1 for batch in batches)
