"""A config file and flags become a recipe."""

from pathlib import Path

import pytest

from roberta_plugin.cluster.recipe import Recipe, load_recipe, minutes_of

CONFIG = """
run_dir: runs/base
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
    assert recipe == Recipe(
        run_dir=Path("runs/base"),
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
    assert recipe.env == ("A=1", "B=2")


def test_no_config_file_is_needed():
    recipe = load_recipe(None, flags={"run_dir": "r"}, train=["data-bin", "--cpu"])
    assert recipe.train == ("data-bin", "--cpu")
    assert recipe.is_cpu


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run_dir: r\nnode: 2\n", "unknown key 'node'"),
        ("run_dir: r\nnodes: two\n", "--nodes is 'two', which is no int"),
        ("nodes: 2\n", "--run-dir FOLDER"),
        ("run_dir: [\n", r"launch\.yaml, line 2: this is not valid YAML"),
        ("just words\n", "must hold keys and their values"),
        ("run_dir: r\ntrain: words\n", "train must be options and their values"),
        ("run_dir: r\nnodes: 1\nnodes: 2\n", r"launch\.yaml, line 3: nodes is there twice"),
        ("run_dir: r\ntrain:\n  cpu: yes\n", "train: cpu is 'yes': write true"),
        ("run_dir: r\nnodes: [1, 2]\n", r"nodes \(--nodes\) must be one value"),
        ("run_dir: r\naccept_changes: maybe\n", "accept_changes .* must be one value"),
        ("run_dir: r\ngpus_per_node: many\n", "--gpus-per-node is 'many': write how many GPUs"),
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
        "run_dir: r\ngpus_per_node: h100:8\npartition: null\naccount: ~\nqos:\naccept_changes: true\n"
        "sbatch: {exclusive: true, reservation: night}\n"
    )
    recipe = load_recipe(path, flags={})
    assert (recipe.gpus_per_node, recipe.gpu_type, recipe.accept_changes) == (8, "h100", True)
    assert (recipe.partition, recipe.account, recipe.qos) == (None, None, None)
    assert recipe.sbatch_options == {"exclusive": True, "reservation": "night"}
    assert load_recipe(path, flags={"gpus_per_node": "a100:4"}).gpu_type == "a100"
