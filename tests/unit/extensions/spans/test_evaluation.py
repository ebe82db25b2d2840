"""Outputs, evaluation and baseline of questions."""

from argparse import Namespace

import numpy as np
import pytest
import torch

from roberta_plugin.conversion.convert import ExportSettings, ImportSettings, export_model, import_model
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.experiments.inference import load_model, run_model
from roberta_plugin.extensions.spans.head import SpanLogits
from roberta_plugin.extensions.spans.kind import QuestionAnswering
from roberta_plugin.finetuning.examples_dataset import ExamplesDataset
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from tests.constant_baselines import drawn, scored
from tests.refusals import refused
from tests.tiny_benchmarks import write_prepared as write_set
from tests.tiny_conversions import exported, write_checkpoint
from tests.tiny_squad import write_prepared as write_questions


def test_a_model_of_hugging_face_that_answers_questions_is_evaluated_once_it_is_imported(tmp_path):
    """It says nothing of its training but its class."""
    ours = write_checkpoint(tmp_path / "ours", "question_answering")
    theirs = export_model(ExportSettings(checkpoint=ours, to="huggingface", output_dir=tmp_path / "theirs")).folder
    assert "fine_tuned_on" not in (theirs / "config.json").read_text()
    back = import_model(ImportSettings(source=theirs, output_dir=tmp_path / "back")).folder
    outputs = []
    for folder in (ours, back):
        words = {"tokenizer": load_tokenizer(folder), "vocabulary": Vocabulary.load(folder / "dict.txt")}
        prepared = write_questions(tmp_path / f"for-{folder.name}", **words)
        outputs.append(run_model(*load_model(folder / "model.pt", prepared), prepared.split("valid")))
    expected, found = outputs
    assert len(expected.answerable_logits) > 12
    assert np.array_equal(found.answerable_logits, expected.answerable_logits)
    assert all(np.array_equal(*pair) for pair in zip(found.start_logits, expected.start_logits, strict=True))


class Sums(torch.nn.Module):
    """The score of a token is its id; that of a sequence, the sum of its ids."""

    def forward(self, tokens):
        return tokens.masked_fill(tokens.eq(1), 0).float()


@pytest.mark.parametrize("max_tokens", [1, 200, 100_000])
def test_every_sequence_has_its_own_outputs(tmp_path, max_tokens):
    def outputs(model, sample):
        values = model(sample["net_input"]["src_tokens"])
        return SpanLogits(values, -values, values.sum(dim=1))

    split = write_set(tmp_path / "set", num_examples=30).split("valid")
    vocabulary = type("Vocabulary", (), {"pad_id": 1, "__len__": lambda self: 300})()
    training = Namespace(inputs_class=ExamplesDataset)
    task = Namespace(vocabulary=vocabulary, outputs=outputs, training=training, kind=QuestionAnswering({}))
    found = run_model(Sums(), task, split, max_tokens=max_tokens)
    expected = [split.sequences[number] for number in range(len(split.sequences))]
    assert len(expected) > 40
    assert found.logits is None
    assert found.answerable_logits.tolist() == [ids.sum() for ids in expected]
    for ids, starts, ends in zip(expected, found.start_logits, found.end_logits, strict=True):
        assert starts.tolist() == ids.tolist()
        assert ends.tolist() == (-ids.astype(int)).tolist()


def test_the_constant_answer_is_none(tmp_path):
    prepared = write_questions(tmp_path)
    sequences = prepared.split("valid").sequences
    spans = [drawn(len(ids)) for ids in sequences]
    outputs = RawOutputs(start_logits=spans, end_logits=spans, answerable_logits=drawn(len(sequences)) - 99)
    _, baseline, (found,) = scored(prepared, outputs)
    assert (baseline["tuned_HasAns_f1"], baseline["tuned_NoAns_f1"]) == (0.0, 100.0)
    assert "valid: the model is no better than the baseline" in found


def test_a_head_of_spans_is_refused_for_fairseq(tmp_path):
    spans = write_checkpoint(tmp_path / "spans", "question_answering")
    message = r"which fairseq's RoBERTa does not support: use --to huggingface"
    refused(message, exported, spans, tmp_path / "new", "fairseq")
    assert not (tmp_path / "new").exists()
