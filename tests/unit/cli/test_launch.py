"""`roberta launch`: options, config file and what stands after -- become one recipe."""

import dataclasses
import json

import pytest

from roberta_plugin.cli import build_parser
from roberta_plugin.launch import submission
from roberta_plugin.launch.recipe import LaunchSettings
from tests.unit.launch.recipes import good_recipe


def run(*words):
    """Parse and run; returns the exit code."""
    args = build_parser("launch").parse_args(["launch", *map(str, words)])
    return args.run(args)


def test_flags_config_and_train_options_reach_the_recipe(tmp_path, monkeypatch, capsys):
    seen = {}

    def launch_stub(recipe, *, dry_run, config):
        seen.update(recipe=recipe, dry_run=dry_run, config=config)
        return submission.Submission(job_id="7", output_dir=recipe.output_dir, script="", commands=())

    monkeypatch.setattr(submission, "launch", launch_stub)
    config = tmp_path / "launch.yaml"
    config.write_text("output_dir: my run\nnodes: 4\ntrain:\n  data: books-bin\n")
    code = run("--config", config, "--nodes", "2", "--env", "A=1", "--env", "B=2", "--", "--max-update", "9", "--cpu")
    assert code == 0
    recipe = seen["recipe"]
    assert (recipe.nodes, recipe.env) == (2, ("A=1", "B=2"))
    assert recipe.train == ("books-bin", "--max-update", "9", "--cpu")
    assert (seen["dry_run"], seen["config"]) == (False, config)
    assert "job 7: logs in my run/logs, progress by `roberta jobs 'my run'`" in capsys.readouterr().out


def test_every_field_of_the_recipe_has_its_option():
    args = vars(build_parser("launch").parse_args(["launch"]))
    assert {item.name for item in dataclasses.fields(LaunchSettings) if item.metadata} <= set(args)


def test_a_dry_run_prints_script_and_commands(tiny_data_bin, tmp_path, capsys):
    recipe = good_recipe(tiny_data_bin, tmp_path / "run")
    assert (
        run("--output-dir", recipe.output_dir, "--nodes", "2", "--dry-run", "--", *recipe.train, "--max-update", "9")
        == 0
    )
    out = capsys.readouterr().out
    assert out.startswith("#!/bin/bash")
    assert "#SBATCH --nodes=2" in out
    assert "\nfairseq-train " in out
    assert out.splitlines()[-1].startswith("# estimate: ")
    assert not recipe.output_dir.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nodes", "0"], r"^the command line: --nodes must be 1 or more, got 0"),
        (["--nodes", "many"], r"^the command line: --nodes is 'many'"),
        (["--output-dir", "a\nb"], r"^the command line: --output-dir "),
        (["--time", "soon"], r"^the command line: --time "),
        (["--gpus-per-node", "3"], r"launch\.yaml, line 2: --nodes must be 1 or more, got 0"),
    ],
)
def test_an_option_of_the_command_line_is_not_blamed_on_the_file(tiny_data_bin, tmp_path, words, message):
    config = tmp_path / "launch.yaml"
    recipe = good_recipe(tiny_data_bin, tmp_path / "run")
    nodes = 0 if "--gpus-per-node" in words else 1
    train = json.dumps(list(recipe.train))
    config.write_text(f"output_dir: {tmp_path / 'run'}\nnodes: {nodes}\ntime: '1:00:00'\ntrain: {train}\n")
    with pytest.raises(ValueError, match=message):
        run("--config", config, "--dry-run", *words)


def test_a_config_without_a_run_folder_or_data_is_named(tmp_path):
    config = tmp_path / "launch.yaml"
    config.write_text("{}\n")
    with pytest.raises(ValueError, match=r"No run folder is given: .* output_dir: in .*launch\.yaml"):
        run("--config", config, "--dry-run")
    train = "{lr: 0.1, batch_size: 4, arch: fast_roberta_base, data: no-such-folder, "
    train += "task: roberta_masked_lm, criterion: roberta_masked_lm}"
    config.write_text(f"output_dir: {tmp_path / 'run'}\ntime: '1:00:00'\ntrain: {train}\n")
    said = r"launch\.yaml: The recipe's data folder .*no-such-folder does not exist"
    with pytest.raises(FileNotFoundError, match=said):
        run("--config", config, "--dry-run")
