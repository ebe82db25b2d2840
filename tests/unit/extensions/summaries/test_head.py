"""The head and its parameters in checkpoints."""

from fairseq.tasks import TASK_REGISTRY

from roberta_plugin.extensions.summaries.training_options import SummarizationConfig
from tests.fairseq_tasks import check_head_above
from tests.head_checkpoints import IN_LAYER, check_head, linears
from tests.tiny_summaries import write_prepared


def test_the_head_of_a_checkpoint_is_loaded_dropped_or_kept(caplog):
    names = linears(*(f"layers.0.{name}" for name in IN_LAYER), "out_proj")
    check_head("sentence", {"num_layers": 1}, {"num_layers": 2}, names, caplog)


def test_it_is_above_all_layers_and_fairseqs_own_model_has_none(tmp_path):
    cfg = SummarizationConfig(data=str(write_prepared(tmp_path).folder), seed=3)
    check_head_above(TASK_REGISTRY["roberta_summarization"].setup_task(cfg), "summary_head.out_proj", "sentence")
