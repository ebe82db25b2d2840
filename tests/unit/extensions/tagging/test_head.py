"""The head and its parameters in checkpoints."""

import torch
from fairseq.tasks import TASK_REGISTRY

from roberta_plugin.extensions.tagging.training_options import RobertaTaggingConfig
from tests.fairseq_tasks import check_head_above
from tests.head_checkpoints import check_head, linears
from tests.tiny_models import make_batch, our_model
from tests.tiny_tagging import write_prepared


def test_every_token_has_a_score_of_each_class():
    tokens, _, _ = make_batch((17, 9))
    model = our_model().eval()
    model.register_head("tags", "token", num_classes=5)
    tags, _ = model(tokens, head="tags")
    assert tags.shape == (2, 17, 5)
    features, _ = model(tokens, features_only=True)
    torch.testing.assert_close(tags, model.heads["tags"].out_proj(features))


def test_the_head_of_a_checkpoint_is_loaded_dropped_or_kept(caplog):
    check_head("token", {"num_classes": 5}, {"num_classes": 3}, linears("out_proj"), caplog)


def test_it_is_above_all_layers_and_fairseqs_own_model_has_none(tmp_path):
    cfg = RobertaTaggingConfig(data=str(write_prepared(tmp_path).folder), seed=3)
    check_head_above(TASK_REGISTRY["roberta_tagging"].setup_task(cfg), "token_head.out_proj", "token")
