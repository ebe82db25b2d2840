"""The report of a study: pairs by Games and Howell, medians beside the paper's rows and the baselines."""

import json
from argparse import Namespace

import numpy as np
import pytest

from roberta_plugin.extensions.studies.plan import VariantPlan
from roberta_plugin.extensions.studies.report import games_howell, show, write_report
from roberta_plugin.extensions.studies.study_file import read_study
from roberta_plugin.launch.batch_size import UpdateSize
from tests.tiny_study import write_study

REPORT = """\
# A tiny study

Equal updates, seeds 1, 2. Each entry is the median (smallest to largest) of n seeds of pretraining. The paper's
numbers are for its own models and data. Pairs are tested by Games and Howell 1976, perplexity in bits per token.

| variant | updates | tokens/update | tokens | epochs | lr | FLOPs |
| --- | --- | --- | --- | --- | --- | --- |
| dynamic | 9 | 100 | 900 | 1 | 0.001 | 1e+09 |
| fixed | 9 | 100 | 900 | 1 | 0.001 | 1e+09 |
| own | 9 | 100 | 900 | ? | 0.001 | 1e+09 |

## held-out

| variant | perplexity | paper |
| --- | --- | --- |
| dynamic | - |  |
| fixed | 25.0 (20.0 to 30.0), n = 2 |  |
| own | - |  |
| unigram baseline | 22.6 |  |
| previous-token baseline | 16.0 |  |
| both-neighbors baseline | 11.3 |  |

## sentiment

| variant | accuracy | paper |
| --- | --- | --- |
| dynamic | 80.5 (80.0 to 81.0), n = 2 | 92.9 |
| fixed | 90.5 (90.0 to 91.0), n = 2 | 92.5 |
| own | 92.5 (92.5 to 92.5), n = 1 |  |

| pair | difference of means | 95 % interval | p (Games-Howell) |
| --- | --- | --- | --- |
| dynamic - own | -12 | - | - |
| dynamic - fixed | -10 | -13 to -6.96 | 0.005 |
| own - fixed | +2 | - | - |

- failed: runs/a: out of memory
"""


def plan_of(variant):
    size = UpdateSize(1.0, 100.0, 1.0, 1.0, 0.0 if variant.name == "own" else 900.0)
    totals = {"tokens": 900.0, "updates": 9.0, "flops": 1e9}
    return VariantPlan(variant, {}, Namespace(lr=[1e-3]), size, totals, [], 1)


def test_a_report_as_a_whole(tmp_path):
    """The reference comes last in each pair."""
    variants = {"fixed": {"paper": "table1/static"}, "own": None, "dynamic": {"paper": "table1/dynamic"}}
    tuning = {"kind": "fine-tuning", "task": "SST-2", "raw": "glue", "tokenizer": "tokenizer", "max-length": "64"}
    probes = {"held-out": {"kind": "perplexity"}, "sentiment": tuning}
    path = write_study(tmp_path / "study.yaml", data=tmp_path, variants=variants, probes=probes, reference="fixed")
    study = read_study(path)
    counts = {"baselines": {"unigram_loss": 4.5, "bigram_loss": 4.0, "neighbors_loss": 3.5}}

    def values(*numbers, **more):
        return {str(seed): {"value": value, **more} for seed, value in enumerate(numbers, start=1)}

    found = {
        "held-out": {"fixed": values(20.04, 30.0, **counts)},
        "sentiment": {
            "fixed": values(90.0, 91.0, metric="accuracy"),
            "own": values(92.5, metric="accuracy"),
            "dynamic": values(80.0, 81.0, metric="accuracy"),
        },
    }
    results = write_report(study, list(map(plan_of, study.variants)), found, {"runs/a": "out of memory"}, tmp_path)
    assert (tmp_path / "report.md").read_text() == REPORT
    kept = json.loads((tmp_path / "results.json").read_text(), parse_constant=pytest.fail)
    assert kept["values"] == results["values"] == found
    assert kept["pairs"]["sentiment"][1]["p"] == pytest.approx(0.005, rel=0.01)


def test_a_cell_is_median_range_and_number():
    assert show([30.0, 20.04, 25.0]) == "25.0 (20.0 to 30.0), n = 3"
    assert show([1.23456]) == "1.235 (1.235 to 1.235), n = 1"


def test_one_wild_variant_does_not_blind_the_others():
    """The p of pingouin 0.7.0 for the first published study of masks."""
    raw = {"one-mask": [241862.74, 188478.79], "static": [1476.07, 1439.05], "dynamic": [1234.83, 1222.06]}
    pairs = games_howell({name: np.log2(values) for name, values in raw.items()})
    assert pairs[2]["p"] == pytest.approx(0.0398, abs=1e-3)
    assert pairs[2]["low"] > 0


@pytest.mark.parametrize(
    "samples", [{"a": [1.0], "b": [2.0]}, {"a": [0.1] * 3, "b": [0.2] * 3}, {"a": [1.0, 1.1], "b": [2.0]}]
)
def test_without_noise_there_is_no_test(samples):
    (pair,) = games_howell(samples)
    assert pair.keys() == {"first", "second", "difference"}
