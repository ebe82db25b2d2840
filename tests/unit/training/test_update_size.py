"""The size of an update is that of the batches that training makes."""

import numpy as np
import pytest

from roberta_plugin.training.arguments import parse, to_config
from roberta_plugin.training.update_size import measured_size, nominal_size
from tests.tiny_corpus import write_data_bin

OPTIONS = ("--task", "roberta_masked_lm", "--criterion", "roberta_masked_lm", "--arch", "fast_roberta_tiny", "--cpu")
OPTIONS += ("--optimizer", "roberta_adamw", "--tokens-per-sample", "64")


@pytest.mark.parametrize(
    "further",
    [
        ("--batch-size", "4", "--sample-break-mode", "complete"),
        ("--batch-size", "4", "--sample-break-mode", "complete_doc", "--update-freq", "3"),
        ("--max-tokens", "200", "--sample-break-mode", "complete_doc"),
        ("--max-tokens", "200", "--input-format", "segment-pair"),
        ("--max-tokens", "200", "--input-format", "sentence-pair"),
    ],
    ids=lambda further: " ".join(further[1::2]),
)
def test_it_is_the_mean_of_the_batches_of_an_epoch(tmp_path, further):
    from fairseq import tasks

    data = write_data_bin(tmp_path / "data")
    parsed = parse([str(data), *OPTIONS, *further])
    size = measured_size(parsed, num_ranks=2)

    config = to_config(parsed)
    task = tasks.setup_task(config.task)
    task.load_dataset("train", combine=True)
    dataset = task.dataset("train")
    limits = {"max_tokens": config.dataset.max_tokens, "max_sentences": config.dataset.batch_size}
    batches = [
        dataset.make_batch(batch.passes, batch.indices)
        for batch in dataset.batches(1, required_batch_size_multiple=8, **limits)
    ]
    assert len(batches) > 5
    scale = len(batches) / -(-len(batches) // (2 * parsed.update_freq[0]))  # the last update takes what is left
    for name, found in (("nsentences", size.sequences), ("ntokens", size.tokens), ("npairs", size.pairs)):
        assert found == pytest.approx(scale * np.mean([batch[name] for batch in batches])), name
    assert size.tokens_in_epoch == sum(batch["ntokens"] for batch in batches)
    predicted = scale * np.mean([batch["predicted"]["number"] for batch in batches])
    assert size.predicted == pytest.approx(predicted, rel=0.15)


def test_without_data_blocks_are_taken_to_be_full(tmp_path):
    data = write_data_bin(tmp_path / "data")
    size = nominal_size(parse([str(data), *OPTIONS, "--batch-size", "32", "--update-freq", "8"]), num_ranks=8)
    assert size[:4] == (2048, 2048 * 64, 2048 * 64 * 64, pytest.approx(0.15 * 2048 * 64))
    assert nominal_size(parse([str(data), *OPTIONS, "--max-tokens", "512"]), num_ranks=1).sequences == 8
    with pytest.raises(ValueError, match="batch size is missing"):
        nominal_size(parse([str(data), *OPTIONS]), num_ranks=1)
