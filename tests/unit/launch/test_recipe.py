"""A config file and flags become a recipe."""

import dataclasses
from pathlib import Path

import pytest

from roberta_plugin.cli.launch import note_on_length
from roberta_plugin.launch.options_file import named_options, read_file, read_yaml, to_arguments
from roberta_plugin.launch.recipe import LaunchSettings, complete, load_recipe, located
from roberta_plugin.launch.resources import minutes_of
from roberta_plugin.record import options_of

CONFIG = """
output_dir: runs/base
nodes: 4
gpus_per_node: 8
time: 24:00:00
checkpoint_minutes: 2.5
env:
  NCCL_DEBUG: WARN
train:
  data: books-bin
  task: roberta_masked_lm
  adam_betas: (0.9,0.98)
  adam-eps: 1e-6
  bf16: true
  fp16: false
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "launch.yaml"
    path.write_text(CONFIG)
    return path


def test_a_config_file_is_read(config):
    recipe = load_recipe(config, flags={}, train=["--max-update", "10"])
    assert recipe == LaunchSettings(
        output_dir=Path("runs/base"),
        nodes=4,
        gpus_per_node=8,
        time="24:00:00",
        checkpoint_minutes=2.5,
        env=("NCCL_DEBUG=WARN",),
        train=tuple(
            [
                "books-bin",
                "--task",
                "roberta_masked_lm",
                "--adam-betas",
                "(0.9,0.98)",
                "--adam-eps",
                "1e-6",
                "--bf16",
                "--max-update",
                "10",
            ]
        ),
    )
    assert recipe.num_gpus == 32
    assert recipe.job_name == "base"
    assert not recipe.is_cpu


def test_flags_win_over_the_file(config):
    recipe = load_recipe(config, flags={"nodes": "2", "partition": "gpu", "qos": None, "env": ["A=1", "B=2"]})
    assert (recipe.nodes, recipe.gpus_per_node, recipe.partition, recipe.qos) == (2, 8, "gpu", None)
    assert recipe.env == ("NCCL_DEBUG=WARN", "A=1", "B=2")


def test_no_config_file_is_needed():
    recipe = load_recipe(None, flags={"output_dir": "r"}, train=["data-bin", "--cpu"])
    assert recipe.train == ("data-bin", "--cpu")
    assert recipe.is_cpu


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("output_dir: r\nnode: 2\n", "unknown key 'node'"),
        ("output_dir: r\nnodes: two\n", "--nodes is 'two', which is not a whole number"),
        ("nodes: 2\n", "--output-dir FOLDER"),
        ("output_dir: r\ntrain: words\n", "train must be options and their values"),
        ("output_dir: r\ntrain:\n  cpu: yes\n", "line 3: train: --cpu is 'yes': write true"),
        ("output_dir: r\ngpus_per_node: many\n", "--gpus-per-node is 'many': write how many GPUs"),
    ],
)
def test_bad_files_are_refused_with_the_remedy(tmp_path, text, message):
    path = tmp_path / "launch.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_recipe(path, flags={})


def test_time_limits():
    limits = {"90": 90, "5:30": 6, "24:00:00": 1440, "1-00:00:00": 1440, "2-12": 3600, "1-01:30": 1530}
    assert {time: minutes_of(time) for time in limits} == limits
    for time in ("", "a day", "1:2:3:4", "0", "-5"):
        with pytest.raises(ValueError, match="--time"):
            minutes_of(time)


def test_gpus_may_have_a_type_and_an_empty_value_is_the_default(tmp_path):
    path = tmp_path / "launch.yaml"
    path.write_text(
        "output_dir: r\ngpus_per_node: h100:8\npartition: null\naccount: ~\nqos:\naccept_changes: true\n"
        "sbatch: {exclusive: true, reservation: night}\n"
    )
    recipe = load_recipe(path, flags={})
    assert (recipe.gpus_per_node, recipe.gpu_type, recipe.accept_changes) == (8, "h100", True)
    assert (recipe.partition, recipe.account, recipe.qos) == (None, None, None)
    assert recipe.sbatch_options == {"exclusive": True, "reservation": "night"}
    assert load_recipe(path, flags={"gpus_per_node": "a100:4"}).gpu_type == "a100"
    flags = {"sbatch": ["reservation=day", "hold"], "env": ["A=1"]}
    recipe = load_recipe(path, flags=flags)
    assert recipe.sbatch_options == {"exclusive": True, "reservation": "day", "hold": True}
    assert recipe.env == ("A=1",)


def test_a_recipe_holds_only_what_differs_from_its_base(config):
    small = config.parent / "small.yaml"
    small.write_text("base: launch.yaml\nnodes: 1\ntrain:\n  adam_eps: 1e-8\n  cpu: true\n")
    recipe = load_recipe(small, flags={})
    assert (recipe.nodes, recipe.gpus_per_node, recipe.output_dir) == (1, 8, Path("runs/base"))
    assert recipe.train[0] == "books-bin"
    assert recipe.train[-3:] == ("1e-8", "--bf16", "--cpu")
    small.write_text("base: launch.yaml\nenv: {A: 1, NCCL_DEBUG: INFO}\nsbatch:\n")
    assert load_recipe(small, flags={}).env == ("A=1", "NCCL_DEBUG=INFO"), "name by name"
    small.write_text("base: launch.yaml\nenv: {A: 1}\n")
    assert load_recipe(small, flags={}).env == ("NCCL_DEBUG=WARN", "A=1")
    small.write_text("nodes: 1\nbase: nowhere.yaml\n")
    with pytest.raises(
        ValueError, match=r"small\.yaml, line 2: base: there is no file .*nowhere\.yaml: base is a path"
    ):
        load_recipe(small, flags={})
    small.write_text("base: launch.yaml\nenv: {NCCL_DEBUG: null, A: ''}\n")
    assert load_recipe(small, flags={}).env == ("A=",), "null takes the base's out, as under train"
    (config.parent / "odd.yaml").write_text("sbatch: {comment: a}\nenv: {A: [1]}\n")
    for content, where in (
        ("base: launch.yaml\nsbatch: {comment: a}\nenv: {A: [1]}\n", r"small\.yaml, line 3"),
        ("base: launch.yaml\nenv: [[A]]\n", r"small\.yaml, line 2"),
        ("base: odd.yaml\noutput_dir: r\nenv: {A: 1}\n", r"odd\.yaml, line 2"),
    ):
        small.write_text(content)
        with pytest.raises(ValueError, match=where + ": each value of env must be one text"):
            load_recipe(small, flags={})
    small.write_text("base: launch.yaml\nnodes: 1\ntwo words: 1\n")
    with pytest.raises(ValueError, match=r"small\.yaml, line 3: has the unknown key 'two words'"):
        load_recipe(small, flags={})
    small.write_text("base: launch.yaml\ntrain: {lr: 1}\n")
    (config.parent / "launch.yaml").write_text(CONFIG + "  lrr: 1\n")
    for train in ([], ["--lr", "3"]):
        line = len(CONFIG.splitlines()) + 1
        with (
            pytest.raises(ValueError, match=rf"launch\.yaml, line {line}: --lrr is unknown"),
            located(small, flags={}, train=train),
        ):
            raise ValueError("--lrr is unknown: the nearest is --lr.")
    with pytest.raises(ValueError, match=r"launch\.yaml, line 3: --nodes is 'x'"):
        config.write_text(CONFIG.replace("nodes: 4", "nodes: x"))
        small.write_text("base: launch.yaml\n")
        load_recipe(small, flags={})
    config.write_text("base: other.yaml\n")
    (config.parent / "other.yaml").write_text("nodes: 1\n")
    with pytest.raises(ValueError, match="its base has a base too"):
        load_recipe(small, flags={})


def test_a_file_starts_from_a_recipe_of_the_package_with_its_batch_on_any_number_of_gpus(config):
    def launch(*lines, train=("recipe: base", "data: d"), **flags):
        config.write_text("\n".join(["output_dir: r", "nodes: 3", "gpus_per_node: 8", *lines, "train:"]))
        config.write_text(config.read_text() + "".join(f"\n  {line}" for line in train))
        recipe = load_recipe(config, flags=flags)
        return recipe, options_of(recipe.train)

    recipe, options = launch(train=("recipe: base", "data: d", "lr: 1e-4", "fp16: true"))
    assert (recipe.batch_sequences, options["data"], options["--lr"]) == (8192, "d", "1e-4")
    assert (options["--arch"], options["--batch-size"], options["--fp16"]) == ("fast_roberta_base", "32", "given")
    assert not options.keys() & {"--recipe", "--update-freq"}
    assert launch("batch_sequences: 96")[0].batch_sequences == 96
    assert launch(batch_tokens="98304")[0].batch_sequences is None
    recipe, options = launch(train=("recipe: base", "data: d", "max_tokens: 4096", "update_freq: 2"))
    assert recipe.batch_sequences is recipe.batch_tokens is None and options["--update-freq"] == "2"
    assert "--batch-size" not in options, "--max-tokens takes its place"
    (config.parent / "mine.yaml").write_text("nodes: 9\ntrain: {recipe: gpu-day-80gb, clip-norm: 1.0, mask-prob: }\n")
    recipe, options = launch("gpus_per_node: 1".replace("gpus_per_node", "cpus_per_gpu"), train=("recipe: mine.yaml",))
    assert (recipe.nodes, recipe.batch_tokens, options["--clip-norm"]) == (3, 2**20, "1.0")
    assert "--mask-prob" not in options, "an empty option takes it out"
    with pytest.raises(
        ValueError, match=r"launch\.yaml, line 5: train: recipe bsae: there is no such recipe.*the nearest is base"
    ):
        launch(train=("recipe: bsae",))
    with pytest.raises(
        ValueError, match=r"launch\.yaml, line 5: train: recipe: there is no file .*gone\.yaml: recipe is"
    ):
        launch(train=("recipe: gone.yaml",))
    (config.parent / "mine.yaml").write_text("train: {recipe: launch.yaml}\n")
    with pytest.raises(
        ValueError, match=r"mine\.yaml, line 1: train: recipe leads back to .*launch\.yaml: name another"
    ):
        launch(train=("recipe: mine.yaml",))
    (config.parent / "mine.yaml").write_text("train:\n  lr: {a: b}\n")
    with pytest.raises(ValueError, match=r"mine\.yaml, line 2: train: --lr must be a value or a list"):
        launch(train=("recipe: mine.yaml",))
    (config.parent / "mine.yaml").write_text("base: {lr: 1e-4, arch: fast_roberta_base}\n")
    with pytest.raises(ValueError, match=r"mine\.yaml, line 1: base must be the path of a recipe; options of"):
        launch(train=("recipe: mine.yaml",))


def test_a_growing_batch_is_shared_out_at_each_of_its_sizes(tmp_path):
    words = ["d", "--max-tokens", "2048", "--tokens-per-sample", "64", "--grow-max-tokens", "0:1024 250:2048"]
    recipe = LaunchSettings(output_dir=tmp_path, train=tuple(words), batch_tokens=2048, gpus_per_node=4)
    options = options_of(complete(recipe))
    assert (options["--max-tokens"], options["--update-freq"]) == ("2048 512", "1")
    assert complete(recipe)[-1] == "0:256 250:512"


@pytest.mark.parametrize("options", ["data: a\n  bf16: true", "[a, --bf16]"])
def test_a_data_folder_on_the_command_line_replaces_the_files(tmp_path, options):
    path = tmp_path / "launch.yaml"
    path.write_text(f"output_dir: r\ntrain:\n  {options}\n")
    assert load_recipe(path, flags={}, train=["b,c", "--lr", "1"]).train == ("b,c", "--bf16", "--lr", "1")
    assert load_recipe(path, flags={}, train=["--lr", "1"]).train == ("a", "--bf16", "--lr", "1")


def write(tmp_path, content):
    path = tmp_path / "x.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_values_are_text_as_it_is_written(tmp_path):
    path = write(tmp_path, "{a: 1e-4, b: 8:00:00, c: no, d: 010, e: [1.50], 256: x}")
    assert read_yaml(path) == {"a": "1e-4", "b": "8:00:00", "c": "no", "d": "010", "e": ["1.50"], "256": "x"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\nb: \xff\n", "x.yaml, line 2: this is not UTF-8 (byte 0xff)"),
        ("a: 1\nb: [\n", "x.yaml, line 3: this is not valid YAML"),
        ("a: 1\nb:\n  c: 2\n  c: 3\n", "x.yaml, line 4: c is given twice"),
        ("? [1, 2]\n: 3\n", "x.yaml, line 1: a key must be a word"),
        ("a: &a {b: 1}\nc:\n  <<: *a\n", "x.yaml, line 3: << merges nothing here: write the options out"),
        ("a: 1\nb: \0\n", "x.yaml, line 2: this is not valid YAML: special characters are not allowed (0x00)."),
        ("", "must hold keys and their values, one per line"),
        ("a: " + "[" * 5000 + "]" * 5000, "x.yaml: its lists or mappings are nested too deeply: write it as those"),
        ("- a\n", "must hold keys and their values, one per line"),
    ],
)
def test_what_is_refused_names_the_file_and_the_line(tmp_path, content, message):
    with pytest.raises(ValueError, match=r"x\.yaml") as refused:
        read_yaml(write(tmp_path, content))
    assert message in str(refused.value)


@pytest.mark.parametrize("key", ["~", "''", "two words", "a.b"])
def test_the_line_of_any_key_is_found(tmp_path, key):
    path = write(tmp_path, f"a: 1\n{key}: 2\n")
    name = key.strip("'")
    with pytest.raises(ValueError, match=rf"x\.yaml, line 2: the file has the unknown key '{name}': use a\."):
        read_file(path).check_keys(known=["a"], needed=[])
    with pytest.raises(ValueError, match=rf"x\.yaml, line 2: has the unknown key '{name}': use b\."):
        read_file(write(tmp_path, f"b: 1\n{key}: 2\n")).as_settings(dataclasses.make_dataclass("Kind", [("b", str)]))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*none\.yaml"):
        read_yaml(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lr: 1e-4", ["--lr", "1e-4"]),
        ("bf16: true", ["--bf16"]),
        ("bf16: True", ["--bf16"]),
        ("bf16: false", []),
        ("bf16: False", []),
        ("lr:", []),
        ("lr: ~", []),
        ("lr: null", []),
        ("keep: [1, 2]", ["--keep", "1", "2"]),
        ("adam_betas: (0.9,0.98)", ["--adam-betas", "(0.9,0.98)"]),
        ("sample-break-mode: none", ["--sample-break-mode", "none"]),
        ("{a: 1, data: d, b: 2}", ["d", "--a", "1", "--b", "2"]),
        ("--seed: 4", ["--seed", "4"]),
    ],
)
def test_options_become_words(tmp_path, text, words):
    options = named_options(read_yaml(write(tmp_path, text)), where="x")
    assert to_arguments(options, where="x") == words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu: yes", "x: --cpu is 'yes': write true"),
        ("cpu: Off", "x: --cpu is 'Off': write false"),
        ("keep: []", "x: --keep must be a value or a list of values"),
        ("keep: [1, null]", "x: --keep must be a value or a list of values"),
        ("keep: {a: 1}", "x: --keep must be a value or a list of values"),
        ("{adam_eps: 1, adam-eps: 2}", "x: --adam-eps is given twice"),
    ],
)
def test_options_that_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        to_arguments(named_options(read_yaml(write(tmp_path, text)), where="x"), where="x")


def test_an_option_of_a_message_is_found_in_the_file(tmp_path):
    path = write(tmp_path, "output_dir: r\n# lr: 3\ntrain:\n  lr: 6e-\n  adam_eps: 1\naxes: {drop-out: [1]}\n")
    place = read_file(path).place
    assert place("cannot read --lr 6e-") == f"{path}, line 4"
    assert place("unknown --adam-eps") == f"{path}, line 5"
    assert place("unknown --nope, --drop-out") == f"{path}, line 6"
    assert place("unknown --nope") == str(path)
    axes = read_file(path).subsection("axes")
    assert axes.place("unknown --lr") == f"{path}, line 6", "lr is in another section"


def test_anchors_that_stand_for_more_than_anyone_writes_are_refused_at_once(tmp_path):
    path = tmp_path / "recipe.yaml"
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)), "train: *a11"]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=r"recipe\.yaml holds more than 100,000 values, once its anchors are written"):
        read_yaml(path)
    path.write_text("a: &a [*a]\n")
    with pytest.raises(ValueError, match=r"once its anchors are written|recursive"):  # by PyYAML's version
        read_yaml(path)


def test_fewer_updates_than_a_recipes_name_what_stays_with_it(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("output_dir: run\ntrain: {recipe: base, data: d}\n")
    for words, named in (([], False), (["--max-update", "1000"], True), (["--max-update=1000"], True)):
        note = note_on_length(load_recipe(path, flags={}, train=words), path)
        assert ("max-update is 1,000 and the recipe's 500,000" in note and "warmup-updates: 48" in note) is named
