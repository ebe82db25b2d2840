"""The plan of a study: updates, tokens and FLOPs of its variants, and what is refused."""

import pytest

from roberta_plugin.extensions.studies.plan import plan_study
from roberta_plugin.extensions.studies.study_file import PAPER, read_study
from roberta_plugin.launch.estimate import model_shape
from tests.conftest import REPOSITORY
from tests.tiny_corpus import write_data_bin
from tests.tiny_study import write_study

FIXED = {"lr-scheduler": "fixed"}  # the polynomial one needs total-num-update
FORMATS = {
    "full": {"sample-break-mode": "none", "input-format": "full-sentences"},
    "pairs": {"sample-break-mode": "none", "input-format": "sentence-pair", "next-sentence-prediction": "true"},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data_bin(tmp_path_factory.mktemp("plan") / "data")


def plans_of(tmp_path, data, **content):
    study = read_study(write_study(tmp_path / "study.yaml", data=data, **content))
    return {plan.variant.name: plan for plan in plan_study(study, num_ranks=1, needs_data=False)}


def test_shorter_sequences_get_more_updates_for_the_same_tokens(tmp_path, data):
    plans = plans_of(tmp_path, data, variants=FORMATS, budget={"equal": "tokens", "amount": "50000"})
    assert plans["pairs"].size.tokens < 0.9 * plans["full"].size.tokens
    assert plans["pairs"].totals["updates"] > 1.1 * plans["full"].totals["updates"]
    for plan in plans.values():
        assert plan.totals["tokens"] == pytest.approx(50000, rel=0.01)
        assert plan.options["max-update"] == plan.options["total-num-update"] == str(round(plan.totals["updates"]))
        assert int(plan.options["warmup-updates"]) == round(0.06 * plan.totals["updates"])


def test_equal_flops_are_not_equal_tokens(tmp_path, data):
    variants = {"narrow": None, "wide": {"encoder-ffn-embed-dim": "256"}}
    narrow, wide = plans_of(tmp_path, data, variants=variants, budget={"equal": "flops", "amount": "1e10"}).values()
    assert narrow.totals["flops"] == pytest.approx(wide.totals["flops"], rel=0.02)
    assert narrow.totals["flops"] == pytest.approx(1e10, rel=0.02)
    assert narrow.totals["tokens"] > 1.2 * wide.totals["tokens"]


def test_shared_layers_are_an_axis_of_equal_flops_and_fewer_parameters(tmp_path, data):
    options = {"none": {}, "groups": {"share-layers": "groups:2"}, "ffn": {"share-layers": "all", "share-parts": "ffn"}}
    common = {"variants": None, "base": {"encoder-layers": "4"}, "budget": {"equal": "flops", "amount": "1e10"}}
    plans = plans_of(tmp_path, data, axes={"sharing": options}, **common)
    assert len({plan.totals["updates"] for plan in plans.values()}) == 1, "a shared layer costs as often as it runs"
    none, groups, ffn = (model_shape(plans[f"sharing-{name}"].parsed).num_parameters for name in options)
    assert none > ffn > groups
    values = ["none", "all", "groups:2"]
    plans = plans_of(tmp_path, data, axes={"share-layers": values}, **common)
    assert [plan.parsed.share_layers for plan in plans.values()] == values
    with pytest.raises(ValueError, match=r"groups:3"):
        plans_of(tmp_path, data, axes={"share-layers": ["groups:3"]}, **common)


def test_the_head_of_next_sentence_prediction_costs(tmp_path, data):
    without = {name: value for name, value in FORMATS["pairs"].items() if name != "next-sentence-prediction"}
    variants = {"with": FORMATS["pairs"], "without": without}
    plans = plans_of(tmp_path, data, variants=variants, budget={"equal": "updates", "amount": "7"})
    of_head = plans["with"].totals["flops"] - plans["without"].totals["flops"]
    assert of_head == 7 * round(plans["with"].size.sequences) * 6 * (32**2 + 2 * 32)


def test_table_3_is_equal_in_tokens_as_the_paper_has_it(tmp_path, data):
    """256 x 1M = 2K x 125K, and 8K x 31K is 0.8 % less: equal within the tolerance."""
    variants = {
        "256": {"update-freq": "1", "max-update": "1000000"},
        "2K": {"update-freq": "8", "max-update": "125000"},
        "8K": {"update-freq": "32", "max-update": "31000"},
    }
    base = {**FIXED, "data": "nowhere"}  # an epoch here is too short for such batches
    plans = plans_of(tmp_path, data, variants=variants, base=base, budget={"equal": "tokens"})
    assert plans["8K"].totals["tokens"] / plans["2K"].totals["tokens"] == pytest.approx(0.992)
    with pytest.raises(ValueError, match=r"equal tokens, but .* would get .* 0\.8 % more \(tolerance 0\.5 %\)"):
        plans_of(tmp_path, data, variants=variants, base=base, budget={"equal": "tokens", "tolerance": "0.005"})


def test_batches_of_more_than_an_epoch_are_not_equal(tmp_path, data):
    """The last update of an epoch has the batches that are left: here it has all of them."""
    variants = {"4": {"update-freq": "1", "max-update": "3200"}, "128": {"update-freq": "32", "max-update": "100"}}
    with pytest.raises(ValueError, match="equal tokens, but 4 would get"):
        plans_of(tmp_path, data, variants=variants, base=FIXED, budget={"equal": "tokens"})
    plans = plans_of(tmp_path, data, variants={"whole": {"update-freq": "1000"}})
    assert plans["whole"].size.tokens == pytest.approx(plans["whole"].size.tokens_in_epoch)


def test_on_the_cpu_a_run_has_one_process_whatever_the_gpus(tmp_path, data):
    study = read_study(write_study(tmp_path / "study.yaml", data=data, variants={"a": None}))
    (on_gpus,), (without) = (plan_study(study, num_ranks=number) for number in (8, 1))
    assert on_gpus.size == without[0].size and on_gpus.num_ranks == 1


def test_unequal_budgets_are_refused(tmp_path, data):
    variants = {"a": {"max-update": "100"}, "b": {"max-update": "130"}}
    with pytest.raises(ValueError, match=r"at equal updates, but b would get 130 and a 100: 30\.0 % more"):
        plans_of(tmp_path, data, variants=variants, base=FIXED, budget={"equal": "updates"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"variants": {"a": {"lrr": "1"}}}, "--lrr is unknown: the nearest is --lr"),
        (
            {"variants": {"a": {"max-update": "5"}}},
            "max-update is set, .* amount under budget .*: leave out one of them. An empty",
        ),
        (
            {"variants": {"a": {"lr-scheduler": "fixed"}}, "budget": {"equal": "tokens"}},
            "the variant a: it has no end: give max-update",
        ),
        ({"variants": {"a": None}, "budget": {"equal": "tokens"}}, "the variant a: it has no end: give max-update"),
        (
            {"variants": {"a": {"max-epoch": "1"}}},
            "variant a: it sets --max-epoch, with which a run has other updates than planned",
        ),
        (
            {"variants": {"a": {"grow-tokens-per-sample": "0:16 9:32"}}},
            "variant a: it sets --grow-tokens-per-sample, .*planned or no result: omit it",
        ),
        ({"variants": {"a": {"patience": "1"}}}, "variant a: it sets --patience"),
        ({"variants": {"a": {"no-save": "true"}}}, "variant a: it sets --no-save"),
        ({"variants": {"a": {"disable-validation": "true"}}}, "variant a: it sets --disable-validation"),
        ({"variants": {"a": {"update-freq": "0"}}}, "variant a: --update-freq must be 1 or more, got 0"),
        ({"variants": {"a": {"update-freq": "1,8"}}}, "variant a: it sets --update-freq, .*than planned"),
        ({"variants": {"a": None}, "budget": {"amount": "inf"}}, "budget: amount is .*, which is not a finite number"),
        ({"variants": {"a": None}, "budget": {"amount": "nan"}}, "budget: amount is .*, which is not a finite number"),
    ],
)
def test_options_that_cannot_work_are_refused(tmp_path, data, content, message):
    with pytest.raises(ValueError, match=message):
        plans_of(tmp_path, data, **content)


@pytest.mark.parametrize(
    ("content", "option"),
    [
        ({"variants": {"a": None, "b": {"lr": "x"}}}, "lr: x"),  # and not the line of all variants' lr
        ({"variants": {"a": None, "b": {"max-update": "5"}}}, "max-update: '5'"),
        ({"variants": {"a": None, "b": {"patience": "1"}}}, "patience: '1'"),
        ({"variants": None, "axes": {"lr": ["1e-3", "x"]}}, "lr:"),
        ({"base": {"lrr": "1"}, "variants": {"a": {"dropout": "0.2"}}}, "lrr: '1'"),
        ({"base": {"recipe": "common.yaml"}, "variants": {"a": {"dropout": "0.2"}}}, None),
    ],
)
def test_what_is_wrong_with_a_variant_is_named_with_its_line(tmp_path, data, content, option):
    (tmp_path / "common.yaml").write_text("train:\n  lrr: 1\n")
    with pytest.raises(ValueError, match=r"the variant|is set, but") as refused:
        plans_of(tmp_path, data, **content)
    if option is None:
        assert str(refused.value).startswith(f"{tmp_path / 'common.yaml'}, line 2: the variant a: ")
        return
    lines = (tmp_path / "study.yaml").read_text().splitlines()
    section = next(iter({"axes", "variants"} & {name for name, part in content.items() if part}))
    inside = 0 if "base" in content else lines.index(f"{section}:")
    expected = next(number for number, line in enumerate(lines, 1) if number > inside and line.strip() == option)
    assert str(refused.value).startswith(f"{tmp_path / 'study.yaml'}, line {expected}: ")


SHIPPED = sorted((REPOSITORY / "examples" / "studies").glob("table*.yaml"))


def test_there_are_two_of_each_table():
    assert {path.stem for path in SHIPPED} == {f"table{number}{size}" for number in "123" for size in ("", "_small")}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_study_can_be_planned(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # without its data
    study = read_study(path)
    is_small = path.stem.endswith("_small")
    plans = plan_study(study, num_ranks=1 if is_small else 8, needs_data=False)
    table = path.stem.removesuffix("_small")
    rows = [variant.paper for variant in study.variants if variant.paper]
    assert set(rows) <= {row for row in PAPER if row.startswith(table)}
    assert len(set(rows)) == len(rows) >= 2
    if table == "table3" and not is_small:
        assert [plan.size.sequences for plan in plans] == [256, 2048, 8192]
        assert [plan.totals["updates"] for plan in plans] == pytest.approx([1e6, 125e3, 31250], rel=1e-3)
    if not is_small:
        assert study.file.subsection("slurm").content["gpus_per_node"] == "8"
        assert all(
            plan.parsed.encoder_layers == 12 and plan.totals["tokens"] == pytest.approx(1.31e11, rel=1e-3)
            for plan in plans
        )
