"""The paper's epochs in fairseq's updates."""

from roberta_plugin.finetuning.benchmarks.base import Training


def test_the_last_and_smaller_batch_of_an_epoch_is_an_update_too():
    # RTE: 2,490 examples in batches of 16 are 156 updates an epoch; fairseq's own recipe has 2,036 for 13 of them
    found = Training().schedule(2490, 16)
    assert found == {"batch-size": "16", "total-num-update": "1560", "max-update": "1560", "warmup-updates": "94"}
    assert Training().schedule(2490, 32, epochs=1)["max-update"] == "78"
