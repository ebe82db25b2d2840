"""What a job's processes find in their environment, and where secrets are not."""

import os
import subprocess

import pytest

from roberta_plugin.launch import resources
from roberta_plugin.launch.options_file import read_yaml
from roberta_plugin.launch.resources import Resources, check_resources, given_settings, read_resources
from roberta_plugin.settings import parse_pairs


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("HF_TOKEN", "WANDB_API_KEY"):
        monkeypatch.setenv(name, "")  # restored at the end, whatever the test sets
        monkeypatch.delenv(name)
    for name, value in {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "ib0", "EDITOR": "vi", "LC_ALL": "C"}.items():
        monkeypatch.setenv(name, value)


def read(**values):
    return read_resources({"time": "5", **values}, where="slurm", kind=Resources)


def test_a_secret_goes_from_the_settings_into_the_environment():
    found = read(env={"HF_TOKEN": "hf_abc", "NCCL_DEBUG": "WARN"}, **{"env.WANDB_API_KEY": "123"})
    assert found.env == ("HF_TOKEN", "NCCL_DEBUG=WARN", "WANDB_API_KEY")
    assert (os.environ["HF_TOKEN"], os.environ["WANDB_API_KEY"]) == ("hf_abc", "123")
    assert "hf_abc" not in str(given_settings(found))
    assert resources.written_variables([*found.env, "EDITOR"]) == {"NCCL_DEBUG": "WARN", "EDITOR": "vi"}
    check_resources(found)


def test_a_variable_without_a_value_must_be_set():
    check_resources(read(env=["EDITOR"]))
    with pytest.raises(ValueError, match="--env 'HF_TOKEN' must have the form NAME=VALUE, or name a variable"):
        check_resources(read(env=["HF_TOKEN"]))
    with pytest.raises(ValueError, match="--env 'EDITOR' is given twice"):
        check_resources(read(env=["EDITOR", "EDITOR=vi"]))


def test_a_job_inherits_what_is_listed():
    os.environ["HF_TOKEN"] = "hf_abc"

    def inherited(inherit, *env):
        return os.environ.keys() - resources.dropped_variables(env, inherit)

    assert inherited("all") == os.environ.keys()
    assert {"HOME", "PATH", "LC_ALL"} & os.environ.keys() <= inherited("none")
    assert not {"NCCL_DEBUG", "EDITOR", "HF_TOKEN"} & inherited("none")
    assert {"NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "HF_TOKEN"} <= inherited("NCCL_*, EDITORS", "HF_TOKEN")
    assert "EDITOR" not in inherited("NCCL_*, EDITORS")
    for wrong in ("A B", "A;B", "A,,B"):
        with pytest.raises(ValueError, match=r"--inherit .* must be all, none, or names"):
            check_resources(read(inherit=wrong))


def test_secrets_are_taken_out_of_a_copied_file(tmp_path):
    os.environ["HF_TOKEN"] = "hf_abc"
    text = """\
env: {HF_TOKEN: "hf_abc", my_auth: '12345, 6', DB_PASS: it's, TOKENIZERS_PARALLELISM: false}  # hf_abc
setup: ["export WANDB_API_KEY=secret1", 'MY_AUTH="secret2"', plain hf_abc]
sbatch:
  comment: AWS_SESSION_TOKEN=secret3 B=c  # as A_KEY=secret4
  name: |
    A=b
    export A_SECRET='secret5'
  WANDB_API_KEY: a b
max_tokens: 4096
lr: 1e-4
"""
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    copy = resources.redacted_copy(path, ["HF_TOKEN", "my_auth", "TOKENIZERS_PARALLELISM=false"])
    path.write_text(copy)
    hidden = dict.fromkeys(("HF_TOKEN", "my_auth", "DB_PASS"), "...")
    assert read_yaml(path) == {
        "env": {**hidden, "TOKENIZERS_PARALLELISM": "false"},
        "setup": ["export WANDB_API_KEY=...", "MY_AUTH=...", "plain ..."],
        "sbatch": {
            "comment": "AWS_SESSION_TOKEN=...",
            "name": "A=b\nexport A_SECRET=...",
            "WANDB_API_KEY": "...",
        },
        "max_tokens": "4096",
        "lr": "1e-4",
    }
    assert not any(secret in copy for secret in ("hf_abc", "secret", "12345", "it's"))


def test_a_variable_of_slurm_is_taken_from_the_shell_where_it_has_no_value():
    """As `roberta sweep --slurm env.HF_TOKEN` and `roberta launch --env HF_TOKEN` do."""
    os.environ["HF_TOKEN"] = "hf_abc"
    found = read(**parse_pairs(["env.HF_TOKEN", "env.EDITOR", "env.A=", "sbatch.exclusive"], option="--slurm"))
    assert found.env == ("A=", "EDITOR", "HF_TOKEN")
    assert found.sbatch_options == {"exclusive": True}
    check_resources(found)
    assert resources.written_variables(found.env) == {"A": "", "EDITOR": "vi"}
    with pytest.raises(ValueError, match=r"--slurm 'env\.' must have the form NAME=VALUE"):
        parse_pairs(["env."], option="--slurm")


def test_modules_and_conda_are_activated_in_the_batch_script_and_a_failure_only_reported(tmp_path):
    (tmp_path / "base" / "etc" / "profile.d").mkdir(parents=True)
    (tmp_path / "base/etc/profile.d/conda.sh").write_text('conda() { echo "conda $*"; [ "$2" != gone ]; }\n')
    (tmp_path / "conda").write_text(f"#!/bin/sh\necho {tmp_path}/base\n")
    (tmp_path / "conda").chmod(0o755)

    def run(**settings):
        lines = ['module() { echo "module $*"; [ "$2" != gone ]; }', *read(**settings).activation, "echo ranks"]
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run(
            ["bash", "-c", "\n".join(lines)], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines(), done.stderr

    said, errors = run(modules=["cuda/12.4", "nccl"], conda="my env", setup=["echo setup"])
    assert (said, errors) == (["module load cuda/12.4 nccl", "conda activate my env", "setup", "ranks"], "")
    said, errors = run(modules=["gone"], conda="gone")
    assert said[-1] == "ranks"
    assert "the modules gone cannot be loaded" in errors
    assert "gone cannot be activated" in errors
    run(modules=["gone", f"$(touch {tmp_path}/executed)"])
    assert not (tmp_path / "executed").exists()
    assert read().activation == []
