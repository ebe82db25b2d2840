"""The shipped studies can be planned anywhere: options parse, budgets are equal, every variant has its paper's row."""

import pytest

from roberta_plugin.experiments.studies.plan import plan_variants
from roberta_plugin.experiments.studies.settings import PAPER, read_study
from roberta_plugin.training.resources import Resources, read_resources
from tests.conftest import REPOSITORY

STUDIES = sorted((REPOSITORY / "examples" / "studies").glob("table*.yaml"))


def test_there_are_two_of_each_table():
    assert {path.stem for path in STUDIES} == {f"table{number}{size}" for number in "123" for size in ("", "_small")}


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_shipped_study_can_be_planned(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # without its data
    study = read_study(path)
    is_small = path.stem.endswith("_small")
    plans = plan_variants(study, num_ranks=1 if is_small else 8)
    table = path.stem.removesuffix("_small")
    rows = [variant.paper for variant in study.variants if variant.paper]
    assert set(rows) <= {f"{table}/{row}" for row in PAPER[table]}
    assert len(set(rows)) == len(rows) >= 2
    if table == "table3" and not is_small:
        assert [plan.size.sequences for plan in plans] == [256, 2048, 8192]
        assert [plan.num_updates for plan in plans] == pytest.approx([1e6, 125e3, 31250], rel=1e-3)
    if not is_small:
        assert read_resources(study.slurm, where=path.name, kind=Resources).gpus_per_node == 8
        assert all(plan.shape.num_layers == 12 and plan.tokens == pytest.approx(1.31e11, rel=1e-3) for plan in plans)
