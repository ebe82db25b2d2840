"""A study file."""

from pathlib import Path

import pytest

from roberta_plugin.experiments.settings import FinetuneSettings
from roberta_plugin.experiments.sweeps.grid import read_grid
from roberta_plugin.extensions.studies.study_file import PAPER, PERPLEXITY, HeldOut, read_study
from roberta_plugin.finetuning.benchmarks import all_tasks
from roberta_plugin.launch.options_file import to_arguments

TEXT = """\
title: Masks
base: {data: data-bin, lr: 1e-3, task: roberta_masked_lm}
variants:
  static: {num-static-masks: 10, paper: table1/static}
  dynamic: {lr: 2e-3, paper: table1/dynamic}
seeds: [1, 2]
reference: static
budget: {equal: tokens, amount: 1e6, warm-up: 0.1}
probes:
  held-out: {kind: perplexity, split: test}
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
    assert static.paper == "table1/static"
    assert dynamic.options["lr"] == "2e-3"
    assert study.seeds == ("1", "2")
    assert (study.budget.equal, study.budget.amount, study.budget.warm_up) == ("tokens", 1e6, 0.1)
    held_out, sentiment = study.probes
    assert held_out.settings == HeldOut(split="test")
    tuning = sentiment.settings
    assert isinstance(tuning, FinetuneSettings)
    assert (tuning.raw, tuning.max_length, tuning.epochs, tuning.seeds) == (Path("glue"), 64, 3, ("7", "8"))
    assert (tuning.only, tuning.train_options) == ({"lr": "1e-4,3e-4", "batch": "32"}, {"max-update": "100"})


def test_a_study_and_a_grid_have_one_schema(tmp_path):
    """The cells of a grid file's options, axes and seeds are the variants of a study with the same sections."""
    common = "train: {data: d, task: masked_lm}\naxes: {lr: [1e-3, 2e-3], mask: {few: {mask-prob: 0.1}, many:}}\nseeds: [1]\n"
    (tmp_path / "grid.yaml").write_text(common + "metric: {log: valid, value: ppl, goal: min}\n")
    grid = read_grid(tmp_path / "grid.yaml")
    study = study_of(tmp_path, common + "probes: {ppl: {kind: perplexity}}\n")
    assert [variant.name for variant in study.variants] == [cell.replace("_", "+") for cell in grid.cells]
    for variant, run in zip(study.variants, grid.runs, strict=True):
        assert tuple(to_arguments(variant.options, where="")) == run.arguments
    assert study.reference == "lr-1e-3+mask-few"
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
            "kind: perplexity",
            "kind: perplexiti",
            "line 10: probes, held-out: kind must be perplexity or fine-tuning, got 'perplexiti'",
        ),
        ("task: SST-2", "task: SST2", "line 13: probes, sentiment: task must be CoLA or .*, got 'SST2'"),
        (
            "paper: table1/static",
            "paper: table9/static",
            "line 4: variants, static: paper: the paper has no row 'table9/static'",
        ),
        ("equal: tokens", "equal: epochs", "line 8: budget: equal must be tokens or updates or flops, got 'epochs'"),
        ("warm-up: 0.1", "warm-up: 2", "line 8: budget: warm-up must be from 0 to 0.99, got 2"),
        ("kind: perplexity", "kind: [perplexity]", "line 10: probes, held-out: kind must be"),
        ("kind: perplexity", "name: mine, kind: perplexity", "line 10: probes, held-out has the unknown key 'name'"),
        ("split: test", "max-tokens: two", "probes, held-out: max-tokens is 'two', which is not a whole number"),
        ("split: test", "passes: 2", "line 10: probes, held-out has the unknown key 'passes'"),
        ("    raw: glue\n", "    rawr: glue\n", "line 14: probes, sentiment has the unknown key 'rawr'"),
        ("    task: SST-2\n", "", "line 11: probes, sentiment: task must be"),
        ("seeds: [1, 2]", "seeds: [1, 1]", "line 6: seeds must be a list of different whole numbers"),
        ("seeds: [1, 2]", "seeds: [a]", "seeds must be whole numbers below .*, got a"),
        ("seeds: [1, 2]", "seeds: [1, 01]", "without leading zeros, got 1, 01"),
        ("seeds: [1, 2]", "seeds: [4294967296]", "below 2.32"),
        ("seeds: [1, 2]", "seeds: [[1]]", "seeds must be a list of different whole numbers"),
        ("split: test", "max-tokens: 0", "probes, held-out: max-tokens must be 1 or more, got 0"),
        ("split: test", "tokens-per-sample: 2", "probes, held-out: tokens-per-sample must be 3 or more, got 2"),
        (
            "lr: [1e-4, 3e-4]",
            "lr: [[1e-4]]",
            "line 19: probes, sentiment: grid: lr must be a value or a list of values",
        ),
        ("epochs: 3", "epochs: 0", "probes, sentiment: epochs must be 1 or more, got 0"),
        ("lr: 2e-3,", "lr: 2e-3, --lr: 2,", "line 5: variants, dynamic: lr is given twice"),
        (
            "train: {max-update: 100}",
            "train: {save_dir: x, save-dir: y}",
            "line 20: probes, sentiment, train: save-dir is",
        ),
        ("lr: 1e-3, task", "seed: 1, task", "line 2: seed is set by the sweep itself: list the seeds under"),
        ("seeds: [1, 2]", "seeds: [1]\naxes: {variant: [a]}", "line 3: variants is another name for the axis variant"),
        ("data: data-bin, ", "", "base must hold `data`"),
        ("  static: {num", "  sta/tic: {num", "line 4: .*the name 'sta/tic' may have letters, digits"),
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
    columns = {column for row in PAPER.values() for column in row}
    assert columns - {PERPLEXITY} <= set(all_tasks()) and PERPLEXITY in columns
    assert PAPER["table3/2K"] == {"perplexity": "3.68", "MNLI": "85.2", "SST-2": "92.9"}
