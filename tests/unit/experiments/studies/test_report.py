"""The report as a whole: cells, the paper's numbers beside ours, counts, tests, the plan, failures, the plot."""

import math
import warnings

import pytest

from roberta_plugin.experiments.studies.report import show, write_report
from roberta_plugin.experiments.studies.settings import read_study
from tests.tiny_study import write_study

REPORT = """\
# A tiny study

3 variants x 2 seeds at equal tokens; 6 of 6 pretrainings done. Each entry: median (smallest to largest), n seeds of \
pretraining; for a fine-tuning task the value of a pretraining is the median of its seeds of fine-tuning. The paper's \
numbers are those of its own models and data.

| variant | held-out (perplexity) | sentiment (accuracy) | paper |
| --- | --- | --- | --- |
| dynamic | - | 80.5 (80.0 to 81.0), n = 2 | 92.9 |
| fixed | 25.0 (20.0 to 30.0), n = 2 | 90.5 (90.0 to 91.0), n = 2 | 92.5 |
| own | - | 92.5 (92.5 to 92.5), n = 1 |  |
| unigram baseline of the training text | 22.6 |  |  |
| bigram baseline of the training text | 16.0 |  |  |

## What exceeds the seeds' noise

- held-out: fixed has a loss of 4.616 bits per token (ppl 24.52), not below the unigram baseline (4.500, \
ppl 22.63): so far it has learned token frequencies at most.
- held-out: noise can be estimated once two variants have the values of two seeds each.
- sentiment: the standard deviation between seeds is 0.707 (dynamic), 0.707 (fixed) points. The permutation test of \
all variants together gives p = 0.333.
- Differences that exceed the seeds' noise (Games-Howell over 1 pair, p < 0.05): fixed is better than dynamic by \
10 points (95 % interval 6.96 to 13, p = 0.005).

| probe | pair | difference of means | 95 % interval | p (Games-Howell) | paper's difference |
| --- | --- | --- | --- | --- | --- |
| sentiment (points) | dynamic - fixed | -10 | -13 to -6.96 | 0.005 | +0.4 |
| sentiment (points) | dynamic - own | -12 | - | - |  |
| sentiment (points) | fixed - own | -2 | - | - |  |

## Loss

![loss curves](curves.png)

## Each pretraining

| variant | updates | tokens/update | tokens | epochs | lr | FLOPs |
| --- | --- | --- | --- | --- | --- | --- |
| dynamic | 9 | 100 | 900 | 1 | 0.001 | 1e+09 |
| fixed | 9 | 100 | 900 | 1 | 0.001 | 1e+09 |
| own | 9 | 100 | 900 | ? | 0.001 | 1e+09 |

All pretrainings together: 6e+09 FLOPs. Data: bin/train.bin (9 bytes).

## Failed; the same command tries them again

- runs/a: out of memory
"""


@pytest.fixture
def study(tmp_path):
    variants = {"fixed": {"paper": "table1/static"}, "own": None, "dynamic": {"paper": "table1/dynamic"}}
    tuning = {"kind": "fine-tuning", "task": "SST-2", "raw": "glue", "tokenizer": "tokenizer", "max-length": "64"}
    probes = {"held-out": {"kind": "perplexity"}, "sentiment": tuning}
    return read_study(write_study(tmp_path / "study.yaml", data=tmp_path, variants=variants, probes=probes))


def values(*numbers, **more):
    return {str(seed): {"value": value, **more} for seed, value in enumerate(numbers, start=1)}


def test_a_report_as_a_whole_is_the_same_each_time(study, tmp_path):
    """And matplotlib warns of nothing, also where a loss is not a number."""
    facts = {"num_updates": 9, "tokens_per_update": 100.0, "tokens": 900, "lr": 1e-3, "flops": 1e9}
    facts |= {"pretrainings_done": 2}
    results = {
        "variants": {each.name: {**facts, "epochs": None if each.name == "own" else 1.0} for each in study.variants},
        "values": {
            "held-out": {"fixed": values(20.04, 30.0)},
            "sentiment": {
                "fixed": values(90.0, 91.0, metric="accuracy"),
                "own": values(92.5),
                "dynamic": values(80.0, 81.0),
            },
        },
        "baselines": {"held-out": {"unigram_loss": 4.5, "bigram_loss": 4.0}},
        "seeds": ["1", "2"],
        "budget": {"equal": "tokens"},
        "data": {"bin/train.bin": "9 bytes", "bin/train.idx": "9 bytes"},
        "flops": 6e9,
        "curves": {"variant-fixed/seed-1": {"updates": [1, 2], "values": [12.0, math.nan]}},
        "failures": {"runs/a": "out of memory"},
    }
    for folder in ("first", "again"):
        (tmp_path / folder).mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            assert write_report(study, results, tmp_path / folder)[1] == REPORT
    for name in ("report.md", "results.json", "curves.png"):
        first, again = ((tmp_path / folder / name).read_bytes() for folder in ("first", "again"))
        assert first == again, name


def test_a_cell_is_median_range_and_number():
    assert show([30.0, 20.04, 25.0]) == "25.0 (20.0 to 30.0), n = 3"
    assert show([1.23456]) == "1.235 (1.235 to 1.235), n = 1"
