"""What all our tasks know of fairseq's options beside their own."""

from types import SimpleNamespace

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from roberta_plugin.tasks.block_task import BlockTask


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
