"""The options of input formats: what they make, and which combinations are refused before training."""

import logging

import numpy as np
import pytest

from roberta_plugin.data.mmap_tokens import MmapTokensWriter
from roberta_plugin.tasks.masked_lm import RobertaMaskedLMTask
from roberta_plugin.tasks.masked_lm_options import RobertaMaskedLMConfig
from tests.tiny_models import options
from tests.unit.tasks.test_masked_lm import load


def make_task(data, **settings):
    return RobertaMaskedLMTask.setup_task(
        RobertaMaskedLMConfig(data=str(data), **{"tokens_per_sample": 32, "seed": 3, **settings})
    )


@pytest.mark.parametrize(("name", "mode"), [("full-sentences", "complete"), ("doc-sentences", "complete_doc")])
def test_names_of_the_paper_are_break_modes(name, mode, tiny_data_bin):
    one = load(make_task(tiny_data_bin, input_format=name))
    other = load(make_task(tiny_data_bin, sample_break_mode=mode))
    everything = np.arange(len(one))
    assert len(one) == len(other) > 20
    for mine, theirs in zip(
        one.sources[0].blocks.bounds(everything), other.sources[0].blocks.bounds(everything), strict=True
    ):
        assert np.array_equal(mine, theirs)
    assert load(make_task(tiny_data_bin, input_format=name, sample_break_mode=mode)).longest == one.longest


def test_a_model_has_what_the_pairs_need_and_fairseq_s_is_refused(tiny_data_bin):
    for settings, expected in (
        ({}, {"segment_embeddings"}),
        ({"next_sentence_prediction": True}, {"segment_embeddings", "dense", "out_proj"}),
        ({"no_segment_embeddings": True}, set()),
    ):
        task = make_task(tiny_data_bin, input_format="segment-pair", **settings)
        model = task.build_model(options(arch="fast_roberta_tiny", _name="fast_roberta"))
        names = [name for name in model.state_dict() if "segment" in name or "next" in name]
        assert {name.split(".")[2] for name in names} == expected


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"input_format": "segment-pair", "sample_break_mode": "complete"}, "contradicts --sample-break-mode complete"),
        ({"input_format": "full-sentences", "sample_break_mode": "eos"}, "contradicts --sample-break-mode eos"),
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
    assert "1 sentences are longer than 28 tokens" in caplog.text
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
