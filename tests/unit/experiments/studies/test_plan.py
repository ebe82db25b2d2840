"""A study's file and its plan."""

from pathlib import Path

import pytest

from roberta_plugin.experiments.studies.plan import notes_on, plan_study
from roberta_plugin.experiments.studies.settings import (
    PAPER,
    PERPLEXITY,
    PerplexityProbe,
    RateRule,
    TuningProbe,
    paper_row,
    read_study,
)
from roberta_plugin.experiments.sweeps.grid import read_grid
from roberta_plugin.finetuning.benchmarks import all_tasks
from roberta_plugin.launch.options_file import to_arguments
from tests.conftest import REPOSITORY
from tests.tiny_corpus import write_data_bin
from tests.tiny_study import write_study

TEXT = """\
title: Masks
base: {data: data-bin, lr: 1e-3, task: roberta_masked_lm}
variants:
  static: {num-static-masks: 10, paper: table1/static}
  dynamic: {lr: 2e-3, paper: table1/dynamic}
seeds: [1, 2]
reference: static
budget: {equal: tokens, amount: 1e6, warm-up: 0.1}
learning-rate: {rule: linear, batch-of: static}
probes:
  held-out: {kind: perplexity, passes: 2}
  sentiment:
    kind: fine-tuning
    task: SST-2
    raw: glue
    tokenizer: tokenizer
    max-length: 64
    epochs: 3
    seeds: [7, 8]
    grid: {lr: [1e-4, 3e-4], batch: 32}
    train: {max-update: 100}
"""


def study_of(tmp_path, text=TEXT):
    path = tmp_path / "masks.yaml"
    path.write_text(text)
    return read_study(path)


def test_a_study_is_read(tmp_path):
    study = study_of(tmp_path)
    static, dynamic = study.variants
    assert static.options == {"data": "data-bin", "lr": "1e-3", "task": "roberta_masked_lm", "num-static-masks": "10"}
    assert (static.own_options, static.paper) == (("num-static-masks",), "table1/static")
    assert dynamic.options["lr"] == "2e-3"
    assert study.seeds == ("1", "2")
    assert (study.budget.equal, study.budget.amount, study.budget.warm_up) == ("tokens", 1e6, 0.1)
    assert study.rate is not None
    assert (study.rate.rule, study.rate.batch_of) == ("linear", "static")
    held_out, sentiment = study.probes
    assert held_out == PerplexityProbe(name="held-out", passes=2)
    assert isinstance(sentiment, TuningProbe)
    assert (sentiment.raw, sentiment.max_length, sentiment.epochs) == (Path("glue"), 64, 3)
    assert sentiment.seeds == ("7", "8")
    assert sentiment.grid == {"lr": "1e-4,3e-4", "batch": "32"}
    assert sentiment.train == {"max-update": "100"}


def test_a_study_and_a_grid_have_one_schema(tmp_path):
    """The cells of a grid file's options, axes and seeds are the variants of a study with the same sections."""
    common = "train: {data: d, task: masked_lm}\naxes: {lr: [1e-3, 2e-3], mask: {few: {mask-prob: 0.1}, many:}}\nseeds: [1]\n"
    (tmp_path / "grid.yaml").write_text(common + "metric: {log: valid, value: ppl, goal: min}\n")
    grid = read_grid(tmp_path / "grid.yaml")
    study = study_of(tmp_path, common + "probes: {ppl: {kind: perplexity}}\n")
    assert [variant.name for variant in study.variants] == [cell.replace("_", "+") for cell in grid.cells]
    for variant, run in zip(study.variants, grid.runs, strict=True):
        assert tuple(to_arguments(variant.options, where="")) == run.arguments
    assert study.variants[2].own_options == ("lr", "mask-prob") and study.reference == "lr-1e-3+mask-few"
    of_variants = common.replace("axes: {lr: [1e-3, 2e-3], mask: ", "variants: ").replace("many:}}", "many:}")
    (tmp_path / "grid.yaml").write_text(of_variants + "metric: {log: valid, value: ppl, goal: min}\n")
    assert read_grid(tmp_path / "grid.yaml").cells == ["variant-few", "variant-many"]


def test_the_base_may_name_a_recipe_whose_options_it_changes(tmp_path):
    (tmp_path / "common.yaml").write_text("train: {lr: 1e-4, clip-norm: 0.0}\n")
    (tmp_path / "recipe.yaml").write_text("base: common.yaml\ntrain: {lr: 5e-4, arch: fast_roberta_base}\n")
    text = TEXT.replace("{data: data-bin, lr: 1e-3,", "{recipe: recipe.yaml, data: data-bin,")
    options = study_of(tmp_path, text).variants[0].options
    assert (options["lr"], options["clip-norm"], options["arch"]) == ("5e-4", "0.0", "fast_roberta_base")
    assert "recipe" not in options
    (tmp_path / "recipe.yaml").write_text("train: {recipe: base, sample-break-mode: , max-tokens: 4096}\n")
    options = study_of(tmp_path, text).variants[0].options
    assert (options["lr"], options["max-tokens"], options["weight-decay"]) == ("6e-4", "4096", "0.01")
    assert not options.keys() & {"recipe", "sample-break-mode", "batch-size"}
    with pytest.raises(ValueError, match=r"masks\.yaml, line 2: base: recipe bsae: there is no such recipe.*base"):
        study_of(tmp_path, text.replace("recipe.yaml", "bsae"))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("reference: static", "reference: statik", "line 7: reference must be static or dynamic, got 'statik'"),
        (
            "batch-of: static",
            "batch-of: other",
            "line 9: learning-rate, batch-of must be static or dynamic, got 'other'",
        ),
        (
            "kind: perplexity",
            "kind: perplexiti",
            "line 11: probes, held-out: kind must be perplexity or fine-tuning, got 'perplexiti'",
        ),
        ("task: SST-2", "task: SST2", "line 14: probes, sentiment: task must be CoLA or .*, got 'SST2'"),
        (
            "paper: table1/static",
            "paper: table9/static",
            "line 4: variants, static: paper: the paper has no row 'table9/static'",
        ),
        ("equal: tokens", "equal: epochs", "line 8: budget: equal must be tokens or updates or flops, got 'epochs'"),
        ("warm-up: 0.1", "warm-up: 2", "line 8: budget: warm-up must be from 0 to 0.99, got 2"),
        ("rule: linear", "rule: cubic", "line 9: learning-rate: rule must be sqrt or linear, got 'cubic'"),
        ("kind: perplexity", "kind: [perplexity]", "line 11: probes, held-out: kind must be"),
        ("kind: perplexity", "name: mine, kind: perplexity", "line 11: probes, held-out: name is what stands before"),
        ("passes: 2", "passes: two", "probes, held-out: passes is 'two', which is not a whole number"),
        ("passes: 2", "passis: 2", "line 11: probes, held-out has the unknown key 'passis'"),
        ("    raw: glue\n", "", "line 12: probes, sentiment: raw is missing"),
        ("seeds: [1, 2]", "seeds: [1, 1]", "line 6: seeds must be a list of different whole numbers"),
        ("seeds: [1, 2]", "seeds: [a]", "seeds must be whole numbers below .*, got a"),
        ("seeds: [1, 2]", "seeds: [1, 01]", "without leading zeros, got 1, 01"),
        ("seeds: [1, 2]", "seeds: [4294967296]", "below 2.32"),
        ("seeds: [1, 2]", "seeds: [[1]]", "seeds must be a list of different whole numbers"),
        ("passes: 2", "max-tokens: 0", "probes, held-out: max-tokens must be 1 or more, got 0"),
        ("passes: 2", "tokens-per-sample: 2", "probes, held-out: tokens-per-sample must be 3 or more, got 2"),
        ("raw: glue", "raw:", "probes, sentiment: raw is missing"),
        (
            "lr: [1e-4, 3e-4]",
            "lr: [[1e-4]]",
            "line 20: probes, sentiment: grid: lr must be a value or a list of values",
        ),
        ("epochs: 3", "epochs: 0", "probes, sentiment: epochs must be 1 or more, got 0"),
        ("{rule: linear, batch-of: static}", "linear", "line 9: learning-rate must be options and their values"),
        ("lr: 2e-3,", "lr: 2e-3, --lr: 2,", "line 5: variants, dynamic: lr is given twice"),
        (
            "train: {max-update: 100}",
            "train: {save_dir: x, save-dir: y}",
            "line 21: probes, sentiment, train: save-dir is",
        ),
        ("lr: 1e-3, task", "seed: 1, task", "line 2: seed is set by the sweep itself: list the seeds under"),
        ("seeds: [1, 2]", "seeds: [1]\naxes: {variant: [a]}", "line 3: variants is another name for the axis variant"),
        (", batch-of: static", "", "line 9: learning-rate: batch-of is missing"),
        ("data: data-bin, ", "", "base must hold `data`"),
        ("  static: {num", "  sta/tic: {num", "line 4: variants, sta/tic: the name 'sta/tic' may have letters, digits"),
        ("seeds: [1, 2]\n", "", "the section seeds is missing"),
        ("title:", "titel:", "line 1: the file has the unknown key 'titel'.* The nearest is title"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, before, after, message):
    assert before in TEXT
    with pytest.raises(ValueError, match=message) as error:
        study_of(tmp_path, TEXT.replace(before, after, 1))
    assert "masks.yaml" in str(error.value) and "--" not in str(error.value)  # the file has keys and no options


def test_the_paper_s_columns_are_tasks_or_perplexity():
    columns = {column for rows in PAPER.values() for row in rows.values() for column in row}
    assert columns - {PERPLEXITY} <= set(all_tasks()) and PERPLEXITY in columns
    assert paper_row("table3/2K") == {"perplexity": 3.68, "MNLI": 85.2, "SST-2": 92.9}


def test_the_paper_s_learning_rate_for_2k_lies_between_the_rules():
    linear, sqrt = (RateRule(rule=rule, batch_of="256").scaled(1e-4, 256, 2048) for rule in ("linear", "sqrt"))
    assert sqrt < 7e-4 < linear


FIXED = {"lr-scheduler": "fixed"}  # the polynomial one needs total-num-update
FORMATS = {
    "full": {"sample-break-mode": "none", "input-format": "full-sentences"},
    "pairs": {"sample-break-mode": "none", "input-format": "sentence-pair", "next-sentence-prediction": "true"},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Without a validation split, which would be measured for every variant: `test_probes` has what is refused of it."""
    folder = write_data_bin(tmp_path_factory.mktemp("plan") / "data")
    for suffix in ("bin", "idx"):
        (folder / f"valid.{suffix}").unlink()
    return folder


def plans_of(tmp_path, data, **content):
    study = read_study(write_study(tmp_path / "study.yaml", data=data, **content))
    return {plan.variant.name: plan for plan in plan_study(study, num_ranks=1).plans}


def test_shorter_sequences_get_more_updates_for_the_same_tokens(tmp_path, data):
    plans = plans_of(tmp_path, data, variants=FORMATS, budget={"equal": "tokens", "amount": "50000"})
    assert plans["pairs"].size.tokens < 0.9 * plans["full"].size.tokens
    assert plans["pairs"].num_updates > 1.1 * plans["full"].num_updates
    for plan in plans.values():
        assert plan.tokens == pytest.approx(50000, rel=0.01)
        assert plan.options["max-update"] == plan.options["total-num-update"] == str(plan.num_updates)
        assert int(plan.options["warmup-updates"]) == round(0.06 * plan.num_updates)


def test_equal_flops_are_not_equal_tokens(tmp_path, data):
    variants = {"narrow": None, "wide": {"encoder-ffn-embed-dim": "256"}}
    narrow, wide = plans_of(tmp_path, data, variants=variants, budget={"equal": "flops", "amount": "1e10"}).values()
    assert narrow.flops == pytest.approx(wide.flops, rel=0.02)
    assert narrow.flops == pytest.approx(1e10, rel=0.02)
    assert narrow.tokens > 1.2 * wide.tokens


def test_shared_layers_are_an_axis_of_equal_flops_and_fewer_parameters(tmp_path, data):
    options = {"none": {}, "groups": {"share-layers": "groups:2"}, "ffn": {"share-layers": "all", "share-parts": "ffn"}}
    common = {"variants": None, "base": {"encoder-layers": "4"}, "budget": {"equal": "flops", "amount": "1e10"}}
    plans = plans_of(tmp_path, data, axes={"sharing": options}, **common)
    assert len({plan.num_updates for plan in plans.values()}) == 1, "a shared layer costs as often as it runs"
    none, groups, ffn = (plans[f"sharing-{name}"].shape.num_parameters for name in options)
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
    of_head = plans["with"].flops - plans["without"].flops
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
    assert plans["8K"].tokens / plans["2K"].tokens == pytest.approx(0.992)
    with pytest.raises(ValueError, match=r"equal tokens, and .* would get .* 0\.8 % more \(tolerance 0\.5 %\)"):
        plans_of(tmp_path, data, variants=variants, base=base, budget={"equal": "tokens", "tolerance": "0.005"})


def test_batches_of_more_than_an_epoch_are_not_equal(tmp_path, data):
    """The last update of an epoch has the batches that are left: here it has all of them."""
    variants = {"4": {"update-freq": "1", "max-update": "3200"}, "128": {"update-freq": "32", "max-update": "100"}}
    with pytest.raises(ValueError, match="equal tokens, and 4 would get"):
        plans_of(tmp_path, data, variants=variants, base=FIXED, budget={"equal": "tokens"})
    plans = plans_of(tmp_path, data, variants={"whole": {"update-freq": "1000"}})
    assert plans["whole"].size.tokens == pytest.approx(plans["whole"].size.tokens_in_epoch)


def test_on_the_cpu_a_run_has_one_process_whatever_the_gpus(tmp_path, data):
    study = read_study(write_study(tmp_path / "study.yaml", data=data, variants={"a": None}))
    (on_gpus,), (without) = (plan_study(study, num_ranks=number).plans for number in (8, 1))
    assert on_gpus.size == without[0].size and on_gpus.num_ranks == 1


def test_unequal_budgets_are_refused(tmp_path, data):
    variants = {"a": {"max-update": "100"}, "b": {"max-update": "130"}}
    with pytest.raises(ValueError, match=r"at equal updates, and b would get 130 where a gets 100, 30\.0 % more"):
        plans_of(tmp_path, data, variants=variants, base=FIXED, budget={"equal": "updates"})


@pytest.mark.parametrize(("rule", "expected"), [("linear", 4e-3), ("sqrt", 2e-3)])
def test_the_learning_rate_follows_the_batch_unless_it_is_given(tmp_path, data, rule, expected):
    variants = {"small": None, "large": {"update-freq": "4"}, "own": {"update-freq": "4", "lr": "5e-4"}}
    base = {"data": "nowhere"}  # so blocks are taken to be full
    plans = plans_of(
        tmp_path, data, variants=variants, base=base, **{"learning-rate": {"rule": rule, "batch-of": "small"}}
    )
    assert [plans[name].learning_rate for name in variants] == pytest.approx([1e-3, expected, 5e-4])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"variants": {"a": {"lrr": "1"}}}, "--lrr is unknown: the nearest is --lr"),
        (
            {"variants": {"a": {"max-update": "5"}}},
            "max-update is set, .* amount under budget of .*: leave out one of them; an empty",
        ),
        (
            {"variants": {"a": {"lr-scheduler": "fixed"}}, "budget": {"equal": "tokens"}},
            "the variant a: it has no end: give max-update",
        ),
        ({"variants": {"a": None}, "budget": {"equal": "tokens"}}, "the variant a: it has no end: give max-update"),
        ({"variants": {"a": {"max-epoch": "1"}}}, "variant a: it sets --max-epoch, with which a run would not"),
        (
            {"variants": {"a": {"grow-tokens-per-sample": "0:16 9:32"}}},
            "variant a: it sets --grow-tokens-per-sample, .*planned updates or tokens.*: leave it out",
        ),
        ({"variants": {"a": {"patience": "1"}}}, "variant a: it sets --patience"),
        ({"variants": {"a": {"no-save": "true"}}}, "variant a: it sets --no-save"),
        ({"variants": {"a": {"disable-validation": "true"}}}, "variant a: it sets --disable-validation"),
        ({"variants": {"a": {"update-freq": "0"}}}, "variant a: --update-freq must be 1 or more, got 0"),
        ({"variants": {"a": {"update-freq": "1,8"}}}, "variant a: it sets --update-freq to 1,8"),
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
    with pytest.raises(ValueError, match=r"the variant|is set, and") as refused:
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
    plans = plan_study(study, num_ranks=1 if is_small else 8).plans
    table = path.stem.removesuffix("_small")
    rows = [variant.paper for variant in study.variants if variant.paper]
    assert set(rows) <= {f"{table}/{row}" for row in PAPER[table]}
    assert len(set(rows)) == len(rows) >= 2
    if table == "table3" and not is_small:
        assert [plan.size.sequences for plan in plans] == [256, 2048, 8192]
        assert [plan.num_updates for plan in plans] == pytest.approx([1e6, 125e3, 31250], rel=1e-3)
    if not is_small:
        assert study.resources({}).gpus_per_node == 8
        assert all(plan.shape.num_layers == 12 and plan.tokens == pytest.approx(1.31e11, rel=1e-3) for plan in plans)


def test_static_masks_that_never_come_back_are_noted_and_pretraining_is_counted_for_every_seed(tmp_path):
    variants = {"few": {"num-static-masks": "2"}, "many": {"num-static-masks": "1000"}, "dynamic": None}
    data = write_data_bin(tmp_path / "data")
    study = read_study(write_study(tmp_path / "study.yaml", data=data, variants=variants, budget={"amount": "1e5"}))
    planned = plan_study(study, num_ranks=1)
    (note,) = notes_on(planned)
    assert note.startswith("Note: many has 1000 static masks a block")
    assert planned.flops == 2 * sum(plan.flops for plan in planned.plans)
