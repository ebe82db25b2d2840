"""The pretraining task on pairs of texts."""

import logging

import numpy as np
import pytest

from roberta_plugin.data.mmap_tokens import MmapTokensWriter
from roberta_plugin.extensions.bert_pairs.pair_dataset import PairDataset
from tests import tiny_models
from tests.unit.launch.test_arguments import check_size
from tests.unit.tasks.test_masked_lm import check_ranks, check_switch, load, make_task, two_corpora

PAIRS = {"input_format": "segment-pair", "sample_break_mode": "none"}
__all__ = ("two_corpora",)


@pytest.mark.parametrize("name", ["segment-pair", "sentence-pair"])
def test_any_number_of_ranks_sees_the_same_pairs_also_after_a_change(two_corpora, name):
    data = f"{two_corpora[0]}@1,{two_corpora[1]}@1"
    task = make_task(data, **{**PAIRS, "input_format": name, "next_sentence_prediction": True})
    assert isinstance(load(task), PairDataset)
    check_ranks(task)


@pytest.mark.parametrize(
    ("switch", "is_other"),
    [
        ({"num_static_masks": 1}, True),
        ({"short_seq_prob": 0.5}, True),
        ({"input_format": "sentence-pair"}, True),
        ({"no_segment_embeddings": True}, False),
        ({"next_sentence_prediction": True}, False),
    ],
    ids=str,
)
def test_no_pair_is_lost_or_doubled_in_silence_when_an_option_changes_in_mid_epoch(
    two_corpora, caplog, switch, is_other
):
    check_switch(two_corpora, caplog, PAIRS, switch, is_other=is_other)


@pytest.mark.parametrize("name", ["segment-pair", "sentence-pair"])
def test_the_planned_batch_is_the_mean_of_the_batches_of_an_epoch(tmp_path, name):
    check_size(tmp_path, ("--max-tokens", "200", "--input-format", name))


def test_a_model_has_what_the_pairs_need_and_fairseq_s_is_refused(tiny_data_bin):
    for settings, expected in (
        ({}, {"segment_embeddings"}),
        ({"next_sentence_prediction": True}, {"segment_embeddings", "dense", "out_proj"}),
        ({"no_segment_embeddings": True}, set()),
    ):
        task = make_task(tiny_data_bin, input_format="segment-pair", **settings)
        model = task.build_model(tiny_models.options(arch="fast_roberta_tiny", _name="fast_roberta"))
        names = [name for name in model.state_dict() if "segment" in name or "next" in name]
        assert {name.split(".")[2] for name in names} == expected


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"input_format": "segment-pair", "sample_break_mode": "complete"}, "contradicts --sample-break-mode complete"),
        ({"input_format": "segment-pair", "tokens_per_sample": 5}, "must be at least 6 for pairs"),
    ],
)
def test_what_cannot_work_is_refused(settings, sentence, tiny_data_bin):
    with pytest.raises(ValueError, match=sentence):
        make_task(tiny_data_bin, **settings)


def write_lines(folder, source, *documents):
    (folder / "dict.txt").write_bytes((source / "dict.txt").read_bytes())
    with MmapTokensWriter(folder / "train", np.uint16) as writer:
        for sizes in documents:
            for size in (*sizes, 1):
                writer.write(np.array([9] * (size - 1) + [2]), np.array([size]))


def test_the_log_counts_what_does_not_look_like_sentences(tiny_data_bin, tmp_path, caplog):
    write_lines(tmp_path, tiny_data_bin, [5, 6, 90], [7], [8], [4, 5], [6], [], [6], [3])
    with caplog.at_level(logging.INFO):
        load(make_task(tmp_path, input_format="sentence-pair"))
    assert "10 sentences of 130 tokens in 7 documents" in caplog.text
    assert "5 documents are one sentence" in caplog.text and "1 are empty and left out" in caplog.text
    assert "1 sentences are longer than the 28 tokens of a pair" in caplog.text
    assert "only 25.0% of the pairs are consecutive, not half: too many documents are one line. Bin" in caplog.text
    caplog.clear()
    write_lines(tmp_path, tiny_data_bin, [90, 90, 90, 5, 5], [90, 90, 90, 5, 5])
    load(make_task(tmp_path, input_format="segment-pair"))
    assert "not half: too many lines fill a pair alone. Raise --tokens-per-sample, or" in caplog.text
    caplog.clear()
    write_lines(tmp_path, tiny_data_bin, [80] * 8, [90] * 8)
    with caplog.at_level(logging.INFO):
        load(make_task(tmp_path, input_format="segment-pair", tokens_per_sample=128))
    assert "a line has 84 tokens on average" in caplog.text and "--split-sentences" in caplog.text
