"""What our tasks have in common: data-loader workers that end with their turn, and fairseq's options beside our own."""

import gc
import multiprocessing
import time
from types import SimpleNamespace

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from roberta_plugin.tasks.block_task import BlockTask
from tests.tiny_corpus import write_data_bin
from tests.unit.tasks.test_masked_lm import load, make_task


@pytest.mark.parametrize("buffer_size", [0, 10])
def test_workers_of_an_earlier_turn_are_gone_when_the_next_begins(tmp_path, buffer_size):
    """As fairseq's trainer goes through `A:B`. Left to the garbage collector, each worker costs 5 s."""
    data = [write_data_bin(tmp_path / name, num_documents=4, seed=seed) for seed, name in enumerate("ab")]
    task = make_task(f"{data[0]}:{data[1]}")
    gc.collect()
    others = set(multiprocessing.active_children())
    iterator = None
    for epoch in (1, 2, 3):
        iterator = task.get_batch_iterator(  # the old iterator lives until here, as in fairseq's main()
            load(task, epoch=epoch),
            max_sentences=4,
            epoch=epoch,
            num_workers=2,
            data_buffer_size=buffer_size,
            disable_iterator_cache=True,
        )
        assert not set(multiprocessing.active_children()) - others
        num_blocks = sum(batch["nsentences"] for batch in iterator.next_epoch_itr())
        assert num_blocks == len(task.dataset("train"))
        assert len(set(multiprocessing.active_children()) - others) == 2
    iterator.close()
    del iterator, task
    start = time.monotonic()
    gc.collect()
    assert time.monotonic() - start < 4, "the collector waited for a worker"
    assert not set(multiprocessing.active_children()) - others


def test_an_iterator_goes_on_after_its_workers_were_ended(tiny_data_bin):
    task = make_task(tiny_data_bin)
    iterator = task.get_batch_iterator(load(task), max_sentences=16, num_workers=1)
    first = [batch["id"].tolist() for batch in iterator.next_epoch_itr()]
    iterator.close()
    second = [batch["id"].tolist() for batch in iterator.next_epoch_itr()]
    iterator.close()
    assert len(first) == len(second) and first != second
    assert iterator.epoch == 2


def test_one_iterator_serves_all_epochs_of_a_folder(tiny_data_bin):
    task = make_task(tiny_data_bin)
    dataset = load(task)
    first = task.get_batch_iterator(dataset, max_sentences=16)
    assert task.get_batch_iterator(dataset, max_sentences=16, update_epoch_batch_itr=True) is first
    assert task.get_batch_iterator(dataset, max_sentences=16, disable_iterator_cache=True) is not first


def config(task, *words):
    parser = options.get_training_parser()
    common = ["data", "--task", task, "--arch", "fast_roberta_tiny", "--optimizer", "adam", *words]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, common)).task


@pytest.mark.parametrize("task", ["roberta_masked_lm", "roberta_sentence_prediction", "squad2", "race"])
def test_every_task_knows_how_many_batches_make_an_update(task):
    cfg = config(task, "--update-freq", "1,2,3", "--ddp-backend", "fully_sharded")
    assert [BlockTask.update_freq(SimpleNamespace(cfg=cfg), epoch) for epoch in (1, 2, 3, 4, 9)] == [1, 2, 3, 3, 3]
    assert str(cfg.ddp_backend) == "fully_sharded"
    cfg = config(task)
    assert BlockTask.update_freq(SimpleNamespace(cfg=cfg), 1) == 1
    assert str(cfg.ddp_backend) != "fully_sharded"
