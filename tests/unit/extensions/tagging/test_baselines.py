"""The constant tag beside the model's."""

import numpy as np

from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from tests.constant_baselines import drawn, scored
from tests.tiny_tagging import write_prepared as write_tagging


def test_a_model_that_gives_one_tag_is_named(tmp_path):
    prepared = write_tagging(tmp_path)
    split, labels = prepared.split("valid"), prepared.settings["labels"]
    logits = [drawn(len(ids), len(labels)) for ids in split.sequences]
    _, baseline, found = scored(
        prepared, RawOutputs(token_logits=[each + 50 * np.eye(len(labels))[0] for each in logits])
    )
    assert labels[0] == "O"
    assert baseline["f1"] == 0.0 < baseline["accuracy"]
    assert found[0].startswith("valid: the model gives the tag O to every input.")
    assert "to every input" not in " ".join(scored(prepared, RawOutputs(token_logits=logits))[2])
