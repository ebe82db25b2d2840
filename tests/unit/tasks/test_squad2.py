"""The SQuAD task: its head, its batches through the model and the criterion, and what it refuses."""

from argparse import Namespace

import pytest
import torch

from roberta_plugin.criterions.finetuning import Squad2Criterion, Squad2CriterionConfig
from roberta_plugin.experiments.inference import run_model
from roberta_plugin.tasks.finetuning import Squad2Config, Squad2Task
from tests.tiny_squad import question, write_json, write_prepared, write_raw

SIZES = {"encoder_layers": 1, "encoder_embed_dim": 8, "encoder_ffn_embed_dim": 8, "encoder_attention_heads": 2}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("squad2"))


def make_task(prepared, **options):
    return Squad2Task.setup_task(Squad2Config(data=str(prepared.folder), **{"seed": 3, **options}))


def test_a_batch_goes_through_model_and_criterion(prepared):
    task = make_task(prepared)
    model = task.build_model(Namespace(arch="fast_roberta_tiny", **SIZES))
    task.load_dataset("train")
    dataset = task.dataset("train")
    batch = dataset.__getitems__(dataset.batches(1, max_sentences=len(dataset))[0])
    assert 0 < batch["columns"]["has_answer"].sum() < len(dataset)
    scores = task.outputs(model, batch)
    assert scores.start.shape == scores.end.shape == batch["net_input"]["src_tokens"].shape
    assert scores.answerable.shape == (len(dataset),)
    loss, sample_size, _ = Squad2Criterion.build_criterion(Squad2CriterionConfig(), task)(model, batch)
    loss.backward()
    assert sample_size == len(dataset)
    assert model.heads["span_head"].span.weight.grad.abs().sum() > 0
    assert model.heads["span_head"].answerable.dense.weight.grad.abs().sum() > 0


def test_parameters_know_their_layer(prepared):
    model = make_task(prepared).build_model(Namespace(arch="fast_roberta_tiny", **SIZES))
    above = {name: parameter.optim_overrides["layers_above"] for name, parameter in model.named_parameters()}
    assert above["heads.span_head.span.weight"] == 0
    assert above["encoder.sentence_encoder.embed_tokens.weight"] == 2


def test_raw_outputs_of_a_split_are_those_of_its_batches(prepared):
    task = make_task(prepared)
    model = task.build_model(Namespace(arch="fast_roberta_tiny", **SIZES)).eval()
    split = prepared.split("valid")
    found = run_model(model, task, split, max_tokens=100)
    assert len(found.start_logits) == len(found.end_logits) == len(found.answerable_logits) == len(split)
    for window in (0, len(split) - 1):
        tokens = torch.from_numpy(split.sequences[window].astype("int64"))[None]
        with torch.no_grad():
            expected, _ = model(tokens, **task.head_arguments)
        assert torch.allclose(torch.from_numpy(found.start_logits[window]), expected.start[0], atol=1e-5)
        assert torch.allclose(torch.from_numpy(found.end_logits[window]), expected.end[0], atol=1e-5)
        assert found.answerable_logits[window] == pytest.approx(expected.answerable.item(), abs=1e-5)


def test_fairseqs_own_model_has_no_such_head(prepared):
    with pytest.raises(ValueError, match="RobertaModel has no span heads: use --arch fast_roberta_base"):
        make_task(prepared).build_model(Namespace(arch="roberta_base", **SIZES))


def test_packed_rows_are_refused(prepared):
    with pytest.raises(ValueError, match="--pack-sequences does not go with --task squad2"):
        make_task(prepared, pack_sequences=True)


def test_a_split_without_answers_is_refused(tmp_path):
    raw = write_raw(tmp_path / "raw")
    write_json(raw / "test-v2.0.json", [{"context": "xx good", "qas": [question("squad2", "q", None)]}])
    task = make_task(write_prepared(tmp_path, raw=raw))
    task.load_dataset("valid")
    with pytest.raises(ValueError, match="split 'test' has questions without `answers`"):
        task.load_dataset("test")
