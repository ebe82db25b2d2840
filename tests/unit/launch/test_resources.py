"""What a job asks SLURM for: one vocabulary, one way to sbatch.

What a job's processes find in their environment, and where secrets are not."""

import os
import subprocess

import pytest

from roberta_plugin.launch import resources, slurm_commands
from roberta_plugin.launch.options_file import read_yaml
from roberta_plugin.launch.resources import (
    Resources,
    check_resources,
    check_text,
    given_settings,
    gpu_option,
    parse_gpus,
    parse_sbatch,
    read_resources,
    submitit_parameters,
)
from roberta_plugin.settings import parse_pairs


def read(**values):
    return read_resources(values, where="slurm", kind=Resources)


def asked(**values):
    return submitit_parameters(read(**values), ntasks_per_node=1, has_gpus=True)


def test_settings_become_submitits_parameters():
    settings = {"partition": "gpu", "time": "1-12:00:00", "gpus_per_node": "8", "mem_gb": "64", "cpus_per_gpu": "2"}
    assert asked(**settings) == {
        "nodes": 1,
        "ntasks_per_node": 1,
        "cpus_per_task": 16,
        "partition": "gpu",
        "time": 36 * 60,
        "mem": "64GB",
        "signal_delay_s": 120,
        "wckey": None,
        "additional_parameters": {"requeue": True, "gpus-per-node": "8"},
    }
    assert asked(time="5", cpus_per_gpu="2")["cpus_per_task"] == 2
    assert asked(time="5", cpus_per_task="3")["cpus_per_task"] == 3  # as a cluster without GPUs names it
    assert asked(time="5", cpus_per_task="3", gpus_per_node="0")["cpus_per_task"] == 3


def test_typed_gpus_gpus_without_gres_and_any_other_option():
    settings = {"time": "5", "gpus_per_node": "h100:8", "sbatch.mail-type": "FAIL", "sbatch.exclusive": "true"}
    assert asked(**settings)["additional_parameters"] == {
        "requeue": True,
        "gpus-per-node": "h100:8",
        "mail-type": "FAIL",
        "exclusive": True,
    }
    by_gres = asked(time="5", gpus_per_node="h100:8", gpu_request="gres")
    assert by_gres["additional_parameters"] == {"requeue": True, "gres": "gpu:h100:8"}
    without = asked(time="5", gpus_per_node="8", gpu_request="none")
    assert without["additional_parameters"] == {"requeue": True}


def test_entries_of_a_command_line_win_over_the_files_and_leave_the_others():
    file = {"A": "1", "B_C": "2", "C": "", "D": "null", "E": "~"}
    assert read(env=file, time="5").env == ("A=1", "B_C=2", "C="), "null is no value in YAML"
    settings = {"env": {"A": "1", "B_C": "2"}, "env.B_C": "3", "sbatch": ["mail-type=END", "exclusive"]}
    found = read(**settings, **{"sbatch.mail_type": "FAIL", "time": "5"})
    assert found.env == ("A=1", "B_C=3")
    assert found.sbatch_options == {"exclusive": True, "mail-type": "FAIL"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"time": "soon"}, "'soon' is not a time limit"),
        ({"time": "5", "cpus_per_gpu": "all"}, "slurm: --cpus-per-gpu is 'all', which is not a whole number"),
        ({"time": "5", "gpus_per_node": "all"}, "slurm: --gpus-per-node is 'all': write how many GPUs"),
        ({"time": "5", "gpus_per_node": "h100:8", "gpu_type": "a100"}, "of type h100 and --gpu-type for a100"),
        ({"time": "5", "sbatch.array": "1-9"}, "--array follows from other settings: the runs and --parallel"),
        ({"time": "5", "sbatch.comment": "a\nb"}, "must not hold a line break"),
        ({"time": "5", "partition": "a\nb"}, "must not hold a line break"),
        ({"time": "1"}, "--signal-delay .* is not shorter than --time"),
        ({"time": "5", "env": "word"}, "--env 'word' must have the form NAME=VALUE"),
        ({"time": "5", "env": {"A": ["1"]}, "env.B": "2"}, "must be one text, got {'A': "),
        ({"time": "5", "mem": "64GB"}, "slurm has the unknown key 'mem' .* mem_gb"),
        ({"time": "5", "tine": "6"}, "unknown key 'tine'"),
        ({"time": "5", "mem_gb": "64", "sbatch.mem_per_gpu": "8G"}, "--mem-gb and --sbatch mem-per-gpu exclude each o"),
        ({"time": "5", "gpus_per_node": "8", "sbatch.gres": "gpu:h100:4"}, "gpu:h100:4 and --gpus-per-node 8 ask for"),
    ],
)
def test_settings_that_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        check_resources(read(**settings))


def test_gpus_and_their_type():
    assert parse_gpus("8") == (8, None)
    assert parse_gpus(0) == (0, None)
    assert parse_gpus("h100:8") == (8, "h100")
    assert parse_gpus("nvidia_a100-sxm4-80gb:4") == (4, "nvidia_a100-sxm4-80gb")
    for text in ("h100", "8:h100", "-1", "", "a b:2", "1.5"):
        with pytest.raises(ValueError, match="as h100:8"):
            parse_gpus(text)


@pytest.mark.parametrize(
    ("gpus", "request_", "sbatch", "option"),
    [
        ((8, None), "gpus-per-node", (), {"gpus-per-node": "8"}),
        ((8, "h100"), "gpus-per-node", (), {"gpus-per-node": "h100:8"}),
        ((8, "h100"), "gres", (), {"gres": "gpu:h100:8"}),
        ((8, "h100"), "none", (), {}),
        ((0, None), "gpus-per-node", (), {}),
        ((8, None), "gpus-per-node", ("gres=gpu:h100:8",), {}),
        ((8, None), "gpus-per-node", ("gres=lustre:1",), {"gpus-per-node": "8"}),
        ((8, "h100"), "gres", ("gres=lustre:1,shard:2",), {"gres": "lustre:1,shard:2,gpu:h100:8"}),
        ((8, "h100"), "gres", ("gres=lustre:1,gres/gpu:8(S:0)",), {}),
        ((1, None), "gres", ("gres=gpu",), {}),
    ],
)
def test_how_gpus_are_asked_for(gpus, request_, sbatch, option):
    count, kind = gpus
    resources = Resources(gpus_per_node=count, gpu_type=kind, gpu_request=request_, sbatch=sbatch)
    assert gpu_option(resources) == option


def test_options_with_and_without_a_value():
    words = [
        "exclusive",
        "contiguous=",
        "spread-job=True",
        "mail_type=FAIL",
        "comment=a=b",
        "overcommit=FALSE",
        "hold=~",
    ]
    assert parse_sbatch(words) == {
        "exclusive": True,
        "contiguous": True,
        "spread-job": True,
        "mail-type": "FAIL",
        "comment": "a=b",
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a b=1"], "'a b=1' must be NAME=VALUE"),
        (["=1"], "must be NAME=VALUE"),
        (["ntasks_per_node=1"], "--ntasks-per-node follows from other settings: gpus_per_node"),
        (["export=NONE"], "--export cannot be given, because the settings env and inherit choose"),
        (["parsable"], "--parsable cannot be given, because it changes what sbatch prints"),
        (["comment=a", "comment=b"], "comment is given twice"),
        (["comment=a\ntouch b"], "--sbatch comment is .* must not hold a line break"),
    ],
)
def test_options_that_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        parse_sbatch(words)


def test_control_characters_are_refused():
    check_text({"--name": "a name", "--qos": None})
    for text in ("a\nb", "a\rb", "a\x00b"):
        with pytest.raises(ValueError, match="--name is"):
            check_text({"--name": text})


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("HF_TOKEN", "WANDB_API_KEY"):
        monkeypatch.setenv(name, "")  # restored at the end, whatever the test sets
        monkeypatch.delenv(name)
    for name, value in {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "ib0", "EDITOR": "vi", "LC_ALL": "C"}.items():
        monkeypatch.setenv(name, value)


def given(**values):
    return read_resources({"time": "5", **values}, where="slurm", kind=Resources)


def test_a_secret_goes_from_the_settings_into_the_environment():
    found = given(env={"HF_TOKEN": "hf_abc", "NCCL_DEBUG": "WARN"}, **{"env.WANDB_API_KEY": "123"})
    assert found.env == ("HF_TOKEN", "NCCL_DEBUG=WARN", "WANDB_API_KEY")
    assert (os.environ["HF_TOKEN"], os.environ["WANDB_API_KEY"]) == ("hf_abc", "123")
    assert "hf_abc" not in str(given_settings(found))
    assert resources.written_variables([*found.env, "EDITOR"]) == {"NCCL_DEBUG": "WARN", "EDITOR": "vi"}
    check_resources(found)


def test_a_variable_without_a_value_must_be_set():
    check_resources(given(env=["EDITOR"]))
    with pytest.raises(ValueError, match="--env 'HF_TOKEN' must have the form NAME=VALUE, or name a variable"):
        check_resources(given(env=["HF_TOKEN"]))
    with pytest.raises(ValueError, match="--env 'EDITOR' is given twice"):
        check_resources(given(env=["EDITOR", "EDITOR=vi"]))


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
            check_resources(given(inherit=wrong))


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
        "sbatch": {"comment": "AWS_SESSION_TOKEN=...", "name": "A=b\nexport A_SECRET=...", "WANDB_API_KEY": "..."},
        "max_tokens": "4096",
        "lr": "1e-4",
    }
    assert not any(secret in copy for secret in ("hf_abc", "secret", "12345", "it's"))


def test_a_variable_of_slurm_is_taken_from_the_shell_where_it_has_no_value():
    """As `roberta sweep --slurm env.HF_TOKEN` and `roberta launch --env HF_TOKEN` do."""
    os.environ["HF_TOKEN"] = "hf_abc"
    found = given(**parse_pairs(["env.HF_TOKEN", "env.EDITOR", "env.A=", "sbatch.exclusive"], option="--slurm"))
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
        lines = ['module() { echo "module $*"; [ "$2" != gone ]; }', *given(**settings).activation, "echo ranks"]
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
    assert given().activation == []


@pytest.fixture
def answer(tmp_path, monkeypatch):
    """Put commands of SLURM's names on the path that print a given text."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def answer(command, text, code=0):
        path = tmp_path / command
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
        path.chmod(0o755)

    return answer


def test_partitions_are_read(answer):
    answer("sinfo", "main 12\nhigh 4")
    assert slurm_commands.partitions() == {"main": 12, "high": 4}


def test_all_jobs_and_tasks_of_arrays_are_asked_about_at_once(answer):
    answer("squeue", "7|N/A|RUNNING|None\n8|N/A|PENDING|Resources\n100|12|COMPLETED|None")
    expected = {"7": ("running", "None"), "8": ("pending", "Resources"), "100_12": ("completed", "None")}
    jobs = slurm_commands.jobs({"7", "8", "9", "100"})
    assert jobs == expected
    assert [job.is_active for job in jobs.values()] == [True, True, False]
    assert slurm_commands.jobs(()) == {}


def test_a_forgotten_job_is_unknown(answer):
    answer("squeue", "slurm_load_jobs error: Invalid job id specified", code=1)
    assert slurm_commands.jobs({"7"}) == {}


def test_a_controller_that_is_down_is_not_a_job_that_is_gone(answer):
    answer("squeue", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)", code=1)
    with pytest.raises(OSError, match="Unable to contact"):
        slurm_commands.jobs({"7"})


def test_a_submission_takes_nothing_over_from_the_job_that_it_is_made_in(monkeypatch):
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))]:
        monkeypatch.delenv(name)
    values = {"SLURM_JOB_ID": "5", "SLURM_GPUS_PER_NODE": "1", "SBATCH_EXCLUSIVE": "1", "CUDA_VISIBLE_DEVICES": "3"}
    values["SRUN_CPUS_PER_TASK"] = "1"  # of an outer sbatch --cpus-per-task; srun would prefer it
    kept = {"SLURM_CONF": "/etc/slurm.conf", "SBATCH_ACCOUNT": "lab", "SBATCH_PARTITION": "gpu", "OTHER": "x"}
    for name, value in {**values, **kept}.items():
        monkeypatch.setenv(name, value)
    with slurm_commands.submission_environment(options={"partition"}):
        assert not values.keys() & os.environ.keys()
        assert os.environ["SBATCH_ACCOUNT"] == "lab"
        assert "SBATCH_PARTITION" not in os.environ, "it would win over the recipe's"
        assert os.environ["SLURM_CONF"] == "/etc/slurm.conf"
    assert {name: os.environ[name] for name in {**values, **kept}} == {**values, **kept}
    monkeypatch.delenv("SLURM_JOB_ID")
    with slurm_commands.submission_environment():
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"


def test_without_slurm_one_is_told_where_to_go(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match="login node"):
        slurm_commands.partitions()
