"""The job runs the code of its launch."""

import json
import subprocess
import sys

import pytest

from roberta_plugin.launch.arguments import PACKAGE, user_dir_of, with_code
from roberta_plugin.launch.recipe import LaunchSettings, complete
from roberta_plugin.launch.submission import (
    copy_code,
    next_folder,
    sweep_snapshot,
    take_snapshot,
)


def test_code_and_config_are_copied_and_numbered(tmp_path):
    config = tmp_path / "launch.yaml"
    config.write_text("nodes: 1\n")
    recipe = LaunchSettings(output_dir=tmp_path / "run", train=("data-bin",))
    first = take_snapshot(recipe, arguments=("data-bin", "--cpu"), config=config)
    second = take_snapshot(recipe, arguments=("data-bin",), config=None)
    assert [first, second, next_folder(recipe.output_dir)] == [
        recipe.output_dir / ".snapshots" / str(i) for i in range(3)
    ]
    copied = {path.relative_to(first / "code" / PACKAGE.name) for path in (first / "code").rglob("*.py")}
    assert copied == {path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")}
    assert not list(first.rglob("__pycache__"))
    assert (first / "launch.yaml").read_text() == "nodes: '1'\n"
    record = json.loads((first / "recipe.json").read_text())
    assert record["fairseq_train"] == ["data-bin", "--cpu"]
    assert set(record["packages"]) == {"torch", "numpy", "ve-fairseq", "submitit"}


def test_a_user_directory_of_ones_own_comes_along(tmp_path):
    own = tmp_path / "my_plugin"
    own.mkdir()
    (own / "__init__.py").write_text("")
    arguments = ("data-bin", "--user-dir", str(own), "--cpu")
    snapshot = take_snapshot(
        LaunchSettings(output_dir=tmp_path / "run", train=arguments), arguments=arguments, config=None
    )
    assert (snapshot / "code" / "my_plugin" / "__init__.py").exists()
    moved = with_code(arguments, snapshot / "code")
    assert moved == ("data-bin", "--user-dir", str(snapshot / "code" / "my_plugin"), "--cpu")
    assert with_code(("data-bin",), snapshot / "code") == ("data-bin",)


def test_of_several_user_directories_the_last_one_counts(tmp_path):
    def arguments(*words):
        return complete(LaunchSettings(output_dir=tmp_path / "run", train=words))[:-2]  # without --save-dir

    assert arguments("data", "--user-dir", "mine", "--cpu", "--user-dir=other") == (
        "data",
        "--cpu",
        "--user-dir",
        "other",
    )
    assert arguments("data", "--user-dir", "mine", "--user-dir", "a/roberta_plugin/") == ("data",)
    assert arguments("data", "--user-dir", "roberta_plugin", "--cpu") == ("data", "--cpu")


@pytest.mark.parametrize(("link", "target"), [("data", "nowhere"), ("loop", "../my_plugin")])
def test_a_link_that_cannot_be_copied_is_named_and_leaves_no_snapshot(tmp_path, link, target):
    own = tmp_path / "my_plugin"
    own.mkdir()
    (own / link).symlink_to(target)
    (own / "another").symlink_to("nowhere")
    with pytest.raises(ValueError, match=r"my_plugin cannot be copied to .*: repair the file") as error:
        copy_code(tmp_path / "run" / ".snapshots" / "0", user_dirs=(own,))
    assert str(error.value).count("Errno") == 1, "one of many suffices"
    assert next_folder(tmp_path / "run").name == "0"


def test_a_full_disk_is_not_blamed_on_the_code(tmp_path):
    script = f"""
import resource
from pathlib import Path
from roberta_plugin.launch.submission import copy_code
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
copy_code(Path({str(tmp_path)!r}), user_dirs=())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    said = done.stderr.splitlines()[-1]
    assert "File too large" in said and "free some space" in said and "repair" not in said, done.stderr


def test_a_missing_user_directory_is_named():
    with pytest.raises(FileNotFoundError, match="--user-dir"):
        user_dir_of(("data-bin", "--user-dir", "/nowhere/plugin"))


def test_a_sweep_keeps_the_code_of_its_first_start_until_it_is_renewed(tmp_path):
    own = tmp_path / "my_plugin"
    own.mkdir()
    (own / "__init__.py").write_text("A = 1\n")
    root = tmp_path / "sweep"
    first, is_outdated = sweep_snapshot(root, user_dirs=[own], renew=False)
    assert (first, is_outdated) == (root / ".snapshots" / "0" / "code", False)
    assert (first / PACKAGE.name / "launch" / "submission.py").is_file()
    (own / "__init__.py").write_text("A = 2\n")
    assert sweep_snapshot(root, user_dirs=[own], renew=False) == (first, True)
    assert (first / "my_plugin" / "__init__.py").read_text() == "A = 1\n"
    second, is_outdated = sweep_snapshot(root, user_dirs=[own], renew=True)
    assert (second, is_outdated) == (root / ".snapshots" / "1" / "code", False)
    assert sweep_snapshot(root, user_dirs=[own], renew=False) == (second, False)
    assert sweep_snapshot(root, user_dirs=[own], renew=True) == (second, False), "nothing is copied twice"
    with pytest.raises(ValueError, match="have a name twice"):
        sweep_snapshot(root, user_dirs=[own, tmp_path / "b" / "my_plugin"], renew=True)


def test_a_copy_that_was_cut_off_is_no_snapshot(tmp_path):
    (tmp_path / ".snapshots" / "0" / ".code.123.tmp").mkdir(parents=True)
    assert sweep_snapshot(tmp_path, user_dirs=(), renew=False)[0] == tmp_path / ".snapshots" / "1" / "code"
