"""The head and its parameters in checkpoints."""

import torch
from fairseq.tasks import TASK_REGISTRY

from roberta_plugin.extensions.spans.training_options import Squad2Config
from tests.fairseq_tasks import check_head_above
from tests.head_checkpoints import check_head, linears
from tests.tiny_models import make_batch, our_model
from tests.tiny_squad import write_prepared


def test_tokens_are_scored_as_begin_and_end_and_the_sequence_as_answerable():
    tokens, _, _ = make_batch((17, 9))
    model = our_model().eval()
    model.register_head("answer", "span")
    features, _ = model(tokens, features_only=True)
    spans, _ = model(tokens, head="answer")
    assert spans.start.shape == spans.end.shape == (2, 17)
    assert spans.answerable.shape == (2,)
    head = model.heads["answer"]
    torch.testing.assert_close(torch.stack([spans.start, spans.end], dim=-1), head.span(features))
    torch.testing.assert_close(spans.answerable, head.answerable(features)[:, 0])


def test_the_head_of_a_checkpoint_is_loaded_dropped_or_kept(caplog):
    check_head("span", {}, None, linears("span", "answerable.dense", "answerable.out_proj"), caplog)


def test_it_is_above_all_layers_and_fairseqs_own_model_has_none(tmp_path):
    cfg = Squad2Config(data=str(write_prepared(tmp_path).folder), seed=3)
    check_head_above(TASK_REGISTRY["squad2"].setup_task(cfg), "span_head.span", "span")
