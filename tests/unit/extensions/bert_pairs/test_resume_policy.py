"""What may change of the options of pairs when a run resumes."""

from roberta_plugin.launch.arguments import parse
from roberta_plugin.launch.resume_policy import SAME, policies


def test_segments_stay_as_they_are():
    words = ["data", "--task", "roberta_masked_lm", "--criterion", "roberta_masked_lm", "--arch", "fast_roberta_base"]
    words += ["--optimizer", "roberta_adamw", "--lr-scheduler", "linear_stages", "--lr-stages", "1:1"]
    assert policies(parse(words))["no_segment_embeddings"] == SAME
