"""A config file and flags become a recipe."""

from pathlib import Path

import pytest

from roberta_plugin.cli import main
from roberta_plugin.launch.recipe import LaunchSettings, load_recipe
from roberta_plugin.launch.resources import minutes_of

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
        ("output_dir: [\n", r"launch\.yaml, line 2: this is not valid YAML"),
        ("just words\n", "must hold keys and their values"),
        ("output_dir: r\ntrain: words\n", "train must be options and their values"),
        ("output_dir: r\nnodes: 1\nnodes: 2\n", r"launch\.yaml, line 3: nodes is given twice"),
        ("output_dir: r\ntrain:\n  cpu: yes\n", "line 3: train: --cpu is 'yes': write true"),
        ("output_dir: r\nnodes: [1, 2]\n", r"nodes \(--nodes\) must be one value"),
        ("output_dir: r\naccept_changes: maybe\n", "accept_changes .* must be true or false"),
        ("output_dir: r\ngpus_per_node: many\n", "--gpus-per-node is 'many': write how many GPUs"),
    ],
)
def test_bad_files_are_refused_with_the_remedy(tmp_path, text, message):
    path = tmp_path / "launch.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_recipe(path, flags={})


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*none\.yaml"):
        load_recipe(tmp_path / "none.yaml", flags={})


@pytest.mark.parametrize(
    ("time", "minutes"),
    [("90", 90), ("5:30", 6), ("24:00:00", 1440), ("1-00:00:00", 1440), ("2-12", 3600), ("1-01:30", 1530)],
)
def test_time_limits(time, minutes):
    assert minutes_of(time) == minutes


@pytest.mark.parametrize("time", ["", "a day", "1:2:3:4", "0", "-5"])
def test_what_is_no_time_limit_is_refused(time):
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
    with pytest.raises(ValueError, match=r"launch\.yaml, line 3: --nodes is 'x'"):
        config.write_text(CONFIG.replace("nodes: 4", "nodes: x"))
        small.write_text("base: launch.yaml\n")
        load_recipe(small, flags={})
    config.write_text("base: other.yaml\n")
    (config.parent / "other.yaml").write_text("nodes: 1\n")
    with pytest.raises(ValueError, match="its base has a base too"):
        load_recipe(small, flags={})


@pytest.mark.parametrize("options", ["data: a\n  bf16: true", "[a, --bf16]"])
def test_a_data_folder_on_the_command_line_replaces_the_files(tmp_path, options):
    path = tmp_path / "launch.yaml"
    path.write_text(f"output_dir: r\ntrain:\n  {options}\n")
    assert load_recipe(path, flags={}, train=["b,c", "--lr", "1"]).train == ("b,c", "--bf16", "--lr", "1")
    assert load_recipe(path, flags={}, train=["--lr", "1"]).train == ("a", "--bf16", "--lr", "1")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("node_local: /tmp", "--node-local was removed: use a container, or unpack the packages on"),
        ("packed_env: env.tar", "--packed-env was removed: use a container, or unpack the packages on"),
        ("min_nodes: 96", "--min-nodes was removed: give one number"),
        ("nodes: 96-128", "--nodes 96-128, a range, was removed: give one number"),
    ],
)
def test_a_setting_of_an_earlier_version_is_refused_with_what_to_do_instead(tmp_path, capsys, line, message):
    path = tmp_path / "launch.yaml"
    path.write_text(f"output_dir: r\n{line}\n")
    assert main(["launch", "--config", str(path)]) == 2
    name, value = line.split(": ")
    words = [f"--{name.replace('_', '-')}", value]
    assert main(["launch", "--output-dir", "r", *words, "--", "data-bin"]) == 2
    of_file, of_options = capsys.readouterr().err.splitlines()
    assert of_file.startswith(f"roberta launch: {path}, line 2: {message}")
    assert of_options.startswith(f"roberta launch: the command line: {message}")
