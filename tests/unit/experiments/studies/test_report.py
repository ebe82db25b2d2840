"""The report: cells, the paper's numbers and signs beside ours, and costs by the log of a resumed run."""

import json
from types import SimpleNamespace

import pytest

from roberta_plugin.experiments.studies.report import measured_costs, pair_table, result_table, show
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
        "fixed": {"1": {"value": 90.0}, "2": {"value": 91.0}},
        "own": {"1": {"value": 92.5}},
        "dynamic": {"1": {"value": 80.0}, "2": {"value": 81.0}},
    },
}


def test_a_cell_is_median_range_and_number():
    assert show([30.0, 20.04, 25.0]) == "25.0 (20.0 to 30.0), n = 3"
    assert show([1.23456]) == "1.235 (1.235 to 1.235), n = 1"
    assert show([]) == "-"


def test_the_table_has_the_paper_s_number_of_the_mirrored_row_only(study):
    head, _, *lines = result_table(study, VALUES).splitlines()
    rows = {line.split(" | ")[0]: line for line in lines}
    assert head == "| variant | held-out (perplexity) | sentiment (accuracy) | paper |"
    assert rows["| fixed"] == "| fixed | 25.0 (20.0 to 30.0), n = 2 | 90.5 (90.0 to 91.0), n = 2 | 92.5 |"
    assert rows["| own"] == "| own | - | 92.5 (92.5 to 92.5), n = 1 |  |"
    assert rows["| dynamic"].endswith("| 92.9 |")


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


def test_costs_of_a_resumed_run_count_each_update_once(tmp_path):
    records = [(10, 100, 50), (20, 100, 50), (10, 100, 50), (20, 200, 100)]  # killed, and again from the beginning
    lines = [
        f"| train_inner | {json.dumps({'num_updates': str(update), 'wpb': str(batch), 'wps': str(speed)})}\n"
        for update, batch, speed in records
    ]
    (tmp_path / "log.txt").write_text("".join(lines))
    run = SimpleNamespace(path=tmp_path, result=lambda: {"num_updates": 25})
    found = measured_costs(run)
    assert found["tokens"] == 25 / 20 * (10 * 100 + 10 * 200)
    assert found["hours"] == pytest.approx(25 / 20 * (10 * 2 + 10 * 2) / 3600)
    assert measured_costs(SimpleNamespace(path=tmp_path, result=lambda: None)) is None
