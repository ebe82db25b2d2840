"""What a pretraining is made of: recipe, a choice by measurement and documentation strings."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from roberta_plugin.cli import main
from roberta_plugin.launch.arguments import check_data, check_options, parse
from roberta_plugin.launch.estimate import estimate
from roberta_plugin.launch.options_file import RECIPES
from roberta_plugin.models.config import SIZES
from roberta_plugin.models.flops import half_precision_peak
from roberta_plugin.pretraining import docstrings
from roberta_plugin.pretraining.choice import (
    MOST_PASSES,
    Machine,
    as_given,
    choose,
    command,
    fitted,
    hours_on,
    most_factor,
    remarks,
    vocabulary_size,
)
from roberta_plugin.pretraining.docstrings import SPLITS, documents, paragraphs_of, split_of, write_corpus
from roberta_plugin.pretraining.plan import make_plan
from roberta_plugin.pretraining.recipe import load, package_recipes
from roberta_plugin.pretraining.request import Request
from roberta_plugin.pretraining.settings import PretrainSettings
from tests.conftest import REPOSITORY

MINE = "summary: a\nhardware: b\ntext: c\ntrain: {{{}}}\n"
PC = Machine(cores=2, has_bf16=True)
CLUSTER_NODE = Machine(cores=64, has_bf16=True, gpus=8, gpu_memory_gb=80.0, gpu_name="H100")


@pytest.mark.parametrize("name", [path.stem for path in sorted(RECIPES.glob("*.yaml"))])
def test_fairseq_train_takes_the_options_of_every_recipe(name, tiny_data_bin):
    recipe = load(name)
    machine = PC if recipe.device == "cpu" else CLUSTER_NODE
    parsed = parse(command(recipe, machine, str(tiny_data_bin), folder=Path("runs/x")))
    check_data(parsed)
    check_options(parsed)
    assert recipe.updates == parsed.max_update > 0
    assert recipe.tokens() > 1e6
    assert not recipe.run_by_us or (REPOSITORY / recipe.run_by_us).is_file()


@pytest.mark.parametrize("recipe", [recipe for recipe in package_recipes() if recipe.device == "gpu"], ids=str)
def test_recipes_for_gpus_compile_and_have_rows_of_one_length(recipe):
    train = recipe.train
    row = train.get("max-tokens") or int(train["batch-size"]) * int(train["tokens-per-sample"])
    assert train["compile-layers"] == "true" and int(train["pad-to-multiple"]) == int(row)


@pytest.mark.parametrize("recipe", [recipe for recipe in package_recipes() if recipe.device == "gpu"], ids=str)
def test_hours_on_gpus_are_called_estimates_with_their_share_of_the_peak(recipe):
    """And they are a dry run's within a sixth."""
    machine = replace(CLUSTER_NODE, gpus=recipe.gpus, gpu_name=recipe.gpu_name)
    parsed = parse(command(recipe, machine, "no-such-data", folder=Path("runs/x")))
    parsed.distributed_world_size = recipe.gpus
    words = estimate(parsed, gpu=recipe.gpu_name, vocab_size=recipe.vocab_size)
    flops, hours = float(words.split(" FLOPs")[0]), float(re.search(r"([\d.]+) h on", words)[1])
    share = flops / (3600 * recipe.hours * recipe.gpus * half_precision_peak(recipe.gpu_name))
    named = float(
        re.search(r"\(estimate at (?:an assumed )?(\d+) % of (?:its|their) peak.*not measured", recipe.hardware)[1]
    )
    assert named == pytest.approx(100 * share, abs=1)
    assert recipe.hours == pytest.approx(hours, rel=1 / 6)


def test_all_updates_scale_and_nothing_else():
    recipe = load("two-hours")
    half = recipe.scaled(0.5)
    assert half.hours == recipe.hours / 2
    changed = {name for name in recipe.train if recipe.train[name] != half.train[name]}
    assert changed == {"max-update", "lr-stages", "grow-tokens-per-sample", "grow-max-tokens"}
    assert half.train["grow-max-tokens"] == "0:1024 1250:2048 4750:4096"
    assert half.train["lr-stages"] == "500:0.79 1250:0.79 1250:1 5500:1 6750:0"
    assert half.tokens() == pytest.approx(recipe.tokens() / 2)
    assert load("base").scaled(0.1).train["warmup-updates"] == "2400"
    assert load("demo").scaled(1e-9).updates == 20


def test_tokens_are_the_sum_over_growing_batches_and_gpus():
    assert load("two-hours").tokens() == 2500 * 1024 + 7000 * 2048 + 4000 * 4096
    assert load("base").tokens() == 500_000 * 8192 * 512
    growing = {"batch-size": "8", "tokens-per-sample": "128", "grow-tokens-per-sample": "0:64 10:128"}
    assert replace(load("half-hour"), train={**growing, "max-update": "30"}).tokens() == 8 * (10 * 64 + 20 * 128)


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("half_hour", None, ("half_hour", "half-hour")),
        ("x.yaml", None, ("x.yaml",)),
        ("x.yaml", "train: {lr: 1}\n", ("x.yaml", "max-update")),
        ("x.yaml", "train: {max-update: 3}\nhour: 1\n", ("x.yaml", "hour")),
        ("x.yaml", "train: {max-update: 3}\n", ("x.yaml", "summary")),
        ("x.yaml", "train: {max-update: 3.5}\n", ("x.yaml", "max-update", "3.5")),
        ("x.yaml", "train: {max-update: 0}\n", ("x.yaml", "max-update", "'0'")),
        ("x.yaml", MINE.format("max-update: 3") + "\ndevice: tpu\n", ("x.yaml, line 6: device", "tpu")),
        ("x.yaml", MINE.format("max-update: 3") + "\nvocab_size: 10\n", ("x.yaml, line 6: vocab-size", "300")),
        ("x.yaml", MINE.format("max-update: 3"), ("x", "batch-size")),
        ("x.yaml", MINE.format("max-update: 3, batch-size: many"), ("x", "batch-size", "many")),
        ("x.yaml", MINE.format("max-update: 3, max-tokens: 9, grow-max-tokens: 64"), ("x", "grow-max-tokens", "64")),
    ],
)
def test_what_is_no_recipe_is_refused_by_name(name, content, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_text(content)
    with pytest.raises((ValueError, OSError)) as error:
        load(name).tokens()
    assert all(word in str(error.value) for word in named)


def test_a_copy_of_a_recipe_is_a_recipe_and_those_of_the_package_begin_with_the_shortest(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text((RECIPES / "half-hour.yaml").read_text().replace("lr: 1.9e-3", "lr: 1e-3"))
    assert (load(str(path)).name, load(str(path)).train["lr"]) == ("mine", "1e-3")
    order = [recipe.name for recipe in package_recipes()]
    assert order.index("tour") < order.index("half-hour") < order.index("night") < order.index("base")


def machine(gpus=0, memory=0.0, *, has_bf16=True):
    return Machine(cores=1, has_bf16=has_bf16, gpus=gpus, gpu_memory_gb=memory, gpu_name="GPU")


CPUS = [Machine(cores, has_bf16) for cores in (1, 2, 8, 64) for has_bf16 in (True, False)]
GPUS = [
    Machine(16, True, gpus, memory, name)
    for gpus, memory, name in (
        (1, 8.0, "RTX 3060"),
        (1, 24.0, "NVIDIA GeForce RTX 3090"),
        (1, 85.0, "NVIDIA A100-SXM4-80GB"),
        (1, 85.0, "NVIDIA H100 80GB HBM3"),
        (4, 85.0, "NVIDIA H100 80GB HBM3"),
        (8, 85.0, "NVIDIA H100 80GB HBM3"),
        (64, 85.0, "NVIDIA H100 80GB HBM3"),
    )
]


def weights(recipe):
    layers, dim, ffn_dim, _ = SIZES[recipe.train["arch"].removeprefix("fast_roberta_")]
    dim, ffn_dim = (
        int(recipe.train.get(f"encoder-{name}-dim", size)) for name, size in (("embed", dim), ("ffn-embed", ffn_dim))
    )
    return layers * (4 * dim * dim + 2 * dim * ffn_dim)


@pytest.mark.parametrize("here", CPUS + GPUS, ids=str)
def test_any_hours_and_text_give_a_training_of_that_length_and_models_grow_with_both(here):
    sizes = {}
    for tokens in (0, 10**5, 10**6, 10**7, 10**8, 10**10):
        for hours in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 4, 8, 16, 30, 100):
            named = choose(here, hours=hours, tokens=tokens)
            made = fitted(named, here, hours=hours, most=most_factor(named, tokens))
            assert made.hours <= 1.1 * hours
            passes = made.tokens() / tokens if tokens else 0
            assert passes <= 1.01 * MOST_PASSES
            assert made.hours > hours / 3 or passes > 0.99 * MOST_PASSES, "short where the text allows no more"
            said = " ".join(remarks(made, named, here, tokens=tokens, hours=hours))
            assert ("Hoffmann et al. 2022" in said) == (not 0.25 <= made.updates / named.updates <= 4)
            of_start = " ".join(remarks(made, named, here, tokens=tokens, hours=hours, size_is_given=True))
            assert "Hoffmann et al. 2022" not in of_start
            assert ("Muennighoff et al. 2023" in said) == (made.hours < 0.9 * hours)
            sizes[tokens or 10**12, hours] = weights(named)
    for (tokens, hours), size in sizes.items():
        assert all(size <= more for (text, time), more in sizes.items() if text >= tokens and time >= hours)


def test_hours_are_those_of_the_processor():
    recipe, tour = load("half-hour"), load("tour")
    assert hours_on(Machine(1, True), recipe) == 0.5
    assert hours_on(Machine(1, False), recipe) == pytest.approx(0.9)
    assert hours_on(Machine(2, True), recipe) == pytest.approx(0.5 / 1.5)
    assert hours_on(Machine(64, True), recipe) == hours_on(Machine(8, True), recipe) > 0.2
    assert hours_on(Machine(1, False), tour) == hours_on(Machine(1, True), tour), "its products are in fp32 anyway"
    day = load("gpu-day-80gb")
    assert hours_on(GPUS[2], day) == pytest.approx(24 * 989.4 / 312)


@pytest.mark.parametrize(
    ("here", "hours", "expected"),
    [
        (machine(), None, "half-hour"),
        (machine(), 0.01, "tour"),
        (machine(), 2, "two-hours"),
        (machine(), 0.2, "half-hour"),
        (machine(), 8, "night"),
        (machine(), 24, "weekend"),
        (machine(1, 24.0), None, "gpu-day-24gb"),
        (machine(1, 80.0), None, "gpu-day-80gb"),
        (machine(8, 80.0), None, "eight-gpus"),
        (machine(8, 80.0), 100, "base"),
        (machine(1, 80.0), 0.05, "half-hour"),
        (machine(1, 8.0), None, "weekend"),
        (machine(4, 80.0), 30, "eight-gpus"),
    ],
)
def test_the_recipe_that_is_nearest_to_the_hours_on_the_machine(here, hours, expected):
    assert choose(here, hours=hours).name == expected


def test_the_batch_stays_the_same_on_fewer_gpus_and_hours_are_those_of_the_gpus_that_are_there():
    base, day = load("base"), load("gpu-day-80gb")
    fewer = fitted(base, machine(2, 80.0), hours=None)
    assert (fewer.train["update-freq"], fewer.gpus, fewer.hours) == ("128", 2, 568)
    assert fewer.tokens() == base.tokens()
    with pytest.raises(ValueError, match="7 GPUs"):
        fitted(base, machine(7, 80.0), hours=None)
    assert fitted(base, machine(7, 80.0), hours=None, is_shared=False).train == base.train
    made = fitted(day, machine(4, 80.0), hours=6)
    assert made.hours == pytest.approx(6) and made.updates == day.updates
    assert fitted(day, machine(1, 80.0), hours=6).updates == pytest.approx(day.updates / 4, abs=1)


@pytest.mark.parametrize(
    ("given", "gone", "kept"),
    [
        (["--lr-scheduler", "polynomial_decay", "--total-num-update", "9"], ["--lr-stages"], ["--grow-max-tokens"]),
        (["--batch-size", "8"], ["--max-tokens", "--grow-max-tokens"], ["--grow-tokens-per-sample"]),
        (["--max-tokens=8192"], ["--grow-max-tokens"], ["--grow-tokens-per-sample", "--lr-stages"]),
        (["--tokens-per-sample", "64"], ["--grow-tokens-per-sample"], ["--grow-max-tokens"]),
        (["--arch", "fast_roberta_base"], ["--encoder-layers", "--encoder-embed-dim"], ["--init-std"]),
        (["--input-format", "doc-sentences"], ["--grow-tokens-per-sample", "--sample-break-mode"], ["--max-tokens"]),
    ],
)
def test_an_option_of_the_user_takes_the_place_of_those_that_only_go_with_the_recipes(given, gone, kept, tiny_data_bin):
    made = command(load("two-hours"), machine(), str(tiny_data_bin), folder=Path("runs"), further=given)
    assert not set(gone) & set(made)
    assert set(kept) <= set(made)
    check_options(parse(made))


def test_the_length_is_that_of_the_command(tiny_data_bin):
    recipe = load("half-hour")
    further = ["--batch-size", "16", "--update-freq", "2", "--max-update=100"]
    parsed = parse(command(recipe, machine(), str(tiny_data_bin), folder=Path("runs"), further=further))
    made = as_given(recipe, parsed)
    assert (made.updates, made.tokens()) == (100, 100 * 16 * 64 * 2)
    assert made.hours == pytest.approx(recipe.hours * made.tokens() / recipe.tokens())
    parsed.max_update = 0
    with pytest.raises(ValueError, match="--max-update 0"):
        as_given(recipe, parsed)


def test_options_of_the_recipe_can_be_left_out(tiny_data_bin, tmp_path, capsys):
    settings = PretrainSettings(
        data=[str(tiny_data_bin)], recipe="half-hour", without=["qk-norm", "--position-encoding"], output_dir=tmp_path
    )
    made = make_plan(Request(settings, str(tiny_data_bin), ["--init-attention", "neighbors"])).arguments
    assert not {"--qk-norm", "--position-encoding"} & set(made)
    assert {"neighbors", "--zero-init-residual", "9800"} <= set(made)
    words = ["pretrain", str(tiny_data_bin), "--recipe", "half-hour", "--output-dir", str(tmp_path), "--dry-run"]
    assert main([*words, "--without", "qk-norm", "--without", "position-encoding"]) == 0
    said = capsys.readouterr().out
    assert not {"--qk-norm", "--position-encoding"} & set(said.split())
    assert "of the unchanged recipe: perplexity" in said
    assert main([*words, "--without", "max-tokens", "--batch-size", "16"]) == 0
    assert "9,800 updates of 1,024 tokens" in capsys.readouterr().out
    with pytest.raises(ValueError, match="batch-size and max-tokens are missing"):
        make_plan(Request(replace(settings, without=["max-tokens"]), str(tiny_data_bin)))
    for name in ("max-update", "lr-stagse"):
        with pytest.raises(ValueError, match=f"--without {name}: recipe half-hour has only .*lr-stages"):
            make_plan(Request(replace(settings, without=[name]), str(tiny_data_bin)))


def test_a_recipes_result_is_promised_only_for_its_own_options(tiny_data_bin, tmp_path, capsys):
    words = ["pretrain", str(tiny_data_bin), "--recipe", "half-hour", "--output-dir", str(tmp_path), "--dry-run"]
    for further, is_promised in (
        (["--seed", "7", "--qk-norm", "--log-interval=7", "--no-progress-bar", "--lr", "1.9e-3"], True),
        (["--position-encoding", "learned"], False),
        (["--max-update", "100"], False),
        (["--arch", "fast_roberta_tiny"], False),
    ):
        assert main([*words, *further]) == 0
        said = capsys.readouterr().out
        assert "\nestimate " in said and " FLOPs with " in said
        assert ("expect   perplexity 29.3" in said, "unchanged" in said) == (is_promised, not is_promised), further


def test_options_of_the_user_replace_those_of_the_recipe_and_those_of_the_processor_follow_from_it():
    def options(name, here, *further):
        given = command(load(name), here, "bin", folder=Path("runs"), further=further)
        assert given[0] == "bin"
        return given

    given = options("half-hour", machine(), "--lr", "1e-3", "--seed=7")
    assert given.count("--lr") == 1 and given[given.index("--lr") + 1] == "1e-3"
    assert "--seed" not in given and "--seed=7" in given
    assert "--matmul-precision" in given
    assert not {"--matmul-precision", "medium"} & {*options("half-hour", machine(has_bf16=False))}
    given = options("tour", machine(8, 80.0))  # a recipe for processors takes one GPU of many
    assert given[given.index("--distributed-world-size") + 1] == "1" and "--bf16" in given and "--cpu" not in given


def test_too_many_passes_too_few_and_a_processor_without_bf16_are_told():
    recipe = load("half-hour")  # 20 million tokens

    def said(machine, tokens):
        return " ".join(remarks(recipe, recipe, machine, tokens=tokens))

    assert said(machine(), 10_000_000) == said(machine(), 0) == ""  # 0: text that is no data-bin yet
    assert "201 passes" in said(machine(), 100_000)
    assert "20% of the text" in said(machine(), 100_000_000)
    assert "1.8 times as long" in said(machine(has_bf16=False), 10_000_000)


def test_the_vocabulary_grows_with_the_text_between_our_searches_and_the_papers():
    sizes = [vocabulary_size(int(size)) for size in (1, 1e6, 55e6, 1e9, 160e9, 1e13)]
    assert sizes == sorted(sizes)
    assert sizes[2] == 8_000
    assert sizes[0] == 1_000 and sizes[-1] == 50_000
    assert sizes[4] == pytest.approx(50_000, rel=0.01)


DOCSTRING = """Return a list of the values
    of this mapping.

    >>> mapping.values() and some more words of prose here
    [1, 2]

    Short one.

    x = f(y[0]); z = g(x) + h(w)

    The following code returns the keys of it::
"""


def test_paragraphs_of_prose_are_kept_each_on_a_line():
    assert list(paragraphs_of(DOCSTRING)) == [
        "Return a list of the values of this mapping.",
        "The following code returns the keys of it:",
    ]


def test_the_split_depends_on_the_name_alone_and_a_few_percent_are_held_out():
    splits = [split_of(f"module{number}.py") for number in range(5000)]
    assert splits == [split_of(f"module{number}.py") for number in range(5000)]
    assert [splits.count(split) / 5000 for split in SPLITS] == pytest.approx([0.88, 0.04, 0.08], abs=0.02)


def test_a_sentence_of_the_training_text_is_not_held_out(tmp_path):
    names = {split: next(f"{n}.py" for n in range(1000) if split_of(f"{n}.py") == split) for split in SPLITS}
    same = "This one is in all of the 3 documents."
    longer = "THIS one is in all of the 4 documents. It has another sentence here, too."
    found = [
        (names[split], [same if split == "train" else longer, f"Only the document of {split} has this paragraph."])
        for split in reversed(SPLITS)
    ]
    write_corpus(tmp_path, [*found, ("empty.py", ["Too short."])])
    texts = {split: (tmp_path / f"{split}.txt").read_text() for split in SPLITS}
    assert texts["train"] == f"{same}\nOnly the document of train has this paragraph.\n"
    assert texts["test"] == "Only the document of test has this paragraph.\n"
    with pytest.raises(ValueError, match=r"no docstrings for test\.txt"):
        write_corpus(tmp_path, found[1:])


def test_source_files_are_parsed_and_never_run(tmp_path, monkeypatch):
    (tmp_path / "pydoc_data").mkdir()
    (tmp_path / "test").mkdir()
    (tmp_path / "good.py").write_text('"""Of the module."""\nraise SystemExit\ndef f():\n    """Of f."""\n')
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "test" / "test_it.py").write_text('"""Of a test."""\n')
    (tmp_path / "pydoc_data" / "topics.py").write_text("topics = {'if': 'The if statement.'}\n")
    monkeypatch.setattr(docstrings.sysconfig, "get_path", lambda name: str(tmp_path))
    assert list(documents()) == [("good.py", ["Of the module.", "Of f."]), ("topics/if", ["The if statement."])]
