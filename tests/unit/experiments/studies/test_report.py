"""The report: cells, the paper's numbers and signs beside ours, baselines, plots, and reports of results alone."""

import math
import warnings

import pytest
from matplotlib.figure import Figure

from roberta_plugin.experiments.studies.report import (
    _draw_probe,
    pair_table,
    result_table,
    show,
    standings,
    write_report,
)
from roberta_plugin.experiments.studies.settings import read_study
from roberta_plugin.experiments.studies.statistics import compare
from tests.tiny_study import write_study


@pytest.fixture
def study(tmp_path):
    variants = {"fixed": {"paper": "table1/static"}, "own": None, "dynamic": {"paper": "table1/dynamic"}}
    tuning = {"kind": "fine-tuning", "task": "SST-2", "raw": "glue", "tokenizer": "tokenizer", "max-length": "64"}
    probes = {"held-out": {"kind": "perplexity"}, "sentiment": tuning}
    return read_study(write_study(tmp_path / "study.yaml", data=tmp_path, variants=variants, probes=probes))


VALUES = {
    "held-out": {"fixed": {"1": {"value": 20.04}, "2": {"value": 30.0}}},
    "sentiment": {
        "fixed": {"1": {"value": 90.0, "metric": "accuracy"}, "2": {"value": 91.0, "metric": "accuracy"}},
        "own": {"1": {"value": 92.5}},
        "dynamic": {"1": {"value": 80.0}, "2": {"value": 81.0}},
    },
}


def test_a_cell_is_median_range_and_number():
    assert show([30.0, 20.04, 25.0]) == "25.0 (20.0 to 30.0), n = 3"
    assert show([1.23456]) == "1.235 (1.235 to 1.235), n = 1"
    assert show([]) == "-"


def test_the_table_has_the_paper_s_number_of_the_mirrored_row_only(study):
    head, _, *lines = result_table(study, {"values": VALUES}).splitlines()
    rows = {line.split(" | ")[0]: line for line in lines}
    assert head == "| variant | held-out (perplexity) | sentiment (accuracy) | paper |"
    assert rows["| fixed"] == "| fixed | 25.0 (20.0 to 30.0), n = 2 | 90.5 (90.0 to 91.0), n = 2 | 92.5 |"
    assert rows["| own"] == "| own | - | 92.5 (92.5 to 92.5), n = 1 |  |"
    assert rows["| dynamic"].endswith("| 92.9 |")


def test_variants_at_the_frequencies_of_tokens_are_named(study):
    """In bits: dynamic 10.1, fixed 4.3 to 4.9, own 2."""
    values = {"fixed": [4.3, 4.9], "own": [2.0], "dynamic": [10.1]}
    losses = {"unigram_loss": 10.0, "bigram_loss": 4.5}
    above, between = standings("ppl", values, losses)
    assert above.startswith("Warning: ppl: dynamic: not below 10.00 bits per token")
    assert between.startswith("ppl: fixed: better than the frequencies") and "bigrams (4.50)" in between
    assert not standings("ppl", {"own": [2.0]}, losses) and not standings("ppl", values, {})
    lines = result_table(study, {"values": VALUES, "baselines": {"held-out": losses}}).splitlines()
    assert lines[-2:] == [
        "| unigrams of the training text | 1,024.0 |  |  |",
        "| left bigrams of the training text | 22.6 |  |  |",
    ]


def test_a_pair_that_goes_against_the_paper_is_said_to(study):
    comparison = compare(
        {name: [one["value"] for one in seeds.values()] for name, seeds in VALUES["sentiment"].items()}
    )
    rows = [line.split(" | ") for line in pair_table(study, {"sentiment": comparison}).splitlines()[2:]]
    by_pair = {row[1]: row for row in rows}
    assert by_pair["fixed - dynamic"][2] == "+10" and by_pair["fixed - dynamic"][-1] == "-0.4, other sign |"
    assert by_pair["fixed - own"][4] == "-"  # one seed has no spread
    assert "sign" not in by_pair["fixed - own"][-1]


def test_a_difference_within_the_noise_is_not_said_to_agree_or_to_disagree(study):
    rows = pair_table(study, {"sentiment": compare({"fixed": [90.0, 94.0], "dynamic": [91.0, 92.0]})})
    assert rows.endswith("| -0.4, other sign, ours within the noise |")
    of_one_seed = pair_table(study, {"sentiment": compare({"fixed": [90.0], "dynamic": [91.0]})})
    assert of_one_seed.endswith("| -0.4, same sign, noise unknown |")


@pytest.mark.parametrize("values", [[-3.0, -1.0], [-3.0, 60.0], [90.0, 91.0], [0.5, 20.0], [7.0, 7.0]])
def test_every_value_is_inside_of_the_panel(study, values):
    """Also correlations, which may be negative."""
    axes = Figure().add_subplot()
    _draw_probe(axes, study.probes[1], {"fixed": values[:1], "own": values[1:]}, study)
    low, high = axes.get_ylim()
    assert low < min(values) <= max(values) < high and axes.get_ylabel() == "score (percent)"
    assert not axes.containers, "bars that do not start at 0 exaggerate: dots it is"


def test_equal_results_give_equal_files(study, tmp_path):
    """And matplotlib warns of nothing."""
    facts = {"num_updates": 9, "tokens_per_update": 100.0, "tokens": 900, "measured_tokens": [], "epochs": 1.0}
    facts |= {"lr": 1e-3, "flops": 1e9, "hours": [], "pretrainings_done": 2}
    curve = {"updates": [1, 2], "values": [12.0, math.nan]}
    results = {
        "variants": {variant.name: facts for variant in study.variants},
        "values": VALUES,
        "baselines": {"held-out": {"unigram_loss": 4.5, "bigram_loss": 4.0}},
        "seeds": ["1", "2"],
        "budget": {"equal": "tokens"},
        "machine": {"processor": "a processor", "cores": 2, "gpu": None, "torch": "2"},
        "data": {},
        "cost": {"flops": 1e9, "flops_fine_tuning": 0.0, "fine_tuning_hours": 0.0},
        "curves": {"variant-fixed/seed-1": curve},
        "failures": {},
    }
    for folder in ("first", "again"):
        (tmp_path / folder).mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        _, text = write_report(study, results, tmp_path / "first")
        assert write_report(study, results, tmp_path / "again")[1] == text
    assert "Warning: held-out: fixed: not below 4.50 bits per token" in text and "Games-Howell" in text
    for name in ("report.md", "results.json", "values.png", "curves.png"):
        first, again = ((tmp_path / folder / name).read_bytes() for folder in ("first", "again"))
        assert first == again, name
