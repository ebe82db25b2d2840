"""The metric that chooses checkpoints."""

import pytest
from fairseq.tasks import TASK_REGISTRY

from roberta_plugin.extensions.spans.training_options import Squad2Config
from tests.fairseq_tasks import check_selection
from tests.tiny_benchmarks import write_prepared


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("span_loss", 3), ""),
        (("accuracy",), "--best-checkpoint-metric accuracy is not logged .* loss, span_loss, .* tuned_f1,"),
        (("f1", 0), "f1 is measured on a whole split, but --max-valid-steps 0 .* by the loss"),
        (("f1", 0, "--disable-validation"), ""),
    ],
)
def test_checkpoints_are_chosen_by_what_every_validation_logs(tmp_path, options, sentence):
    prepared = write_prepared(tmp_path / "set", task="squad2")
    cfg = Squad2Config(data=str(prepared.folder), seed=1)
    check_selection(TASK_REGISTRY["squad2"].setup_task(cfg), options, sentence)
