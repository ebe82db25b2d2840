"""The constant number beside the model's."""

import numpy as np

from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from tests.constant_baselines import drawn, scored
from tests.tiny_benchmarks import prepared_of
from tests.tiny_glue import write_task


def test_a_model_that_gives_one_number_is_named(tmp_path):
    prepared = prepared_of("STS-B", write_task(tmp_path / "raw", "STS-B"), tmp_path / "STS-B")
    numbers = np.asarray(prepared.split("valid").columns["label"])
    _, baseline, found = scored(prepared, RawOutputs(logits=2.5 + 1e-4 * drawn(len(numbers), 1)))
    assert baseline == {"pearson_spearman": 0.0, "pearson": 0.0, "spearman": 0.0}
    assert found[0].startswith("valid: the model gives the same number to every input.")
    assert scored(prepared, RawOutputs(logits=numbers[:, None] + 0.1 * drawn(len(numbers), 1)))[2] == []
