"""A recipe becomes an sbatch script, which does what it says; a dry run shows it and writes nothing.

The job runs the code of its launch.
"""

import dataclasses
import json
import os
import re
import shlex
import signal
import socket
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

import pytest

from roberta_plugin.extras import installed_fairseqs
from roberta_plugin.launch import slurm_commands, submission
from roberta_plugin.launch.arguments import PACKAGE, user_dir_of, with_code
from roberta_plugin.launch.recipe import LaunchSettings, complete
from roberta_plugin.launch.rendezvous import port_of
from roberta_plugin.launch.restart import Decision, End, Limits, read_attempts, write_attempt
from roberta_plugin.launch.submission import copy_code, launch, next_folder, sweep_snapshot, take_snapshot
from tests.conftest import files_up_to
from tests.unit.launch.recipes import good_recipe


def directives(script):
    return dict(
        line.removeprefix("#SBATCH --").partition("=")[::2] for line in script.splitlines() if "#SBATCH" in line
    )


def test_a_dry_run_shows_everything_and_writes_nothing(tiny_data_bin, tmp_path):
    output_dir = tmp_path / "run"
    recipe = good_recipe(
        tiny_data_bin,
        output_dir,
        partition="gpu",
        time="1-00:00:00",
        account="lab",
        constraint="h200",
        exclude="gpu7",
        mem_gb=400,
        env=("NCCL_DEBUG=WARN AND INFO",),
        setup=("module load cuda",),
        sbatch=("reservation=night",),
        batch_sequences=64,
    )
    submission = launch(recipe, dry_run=True)
    assert list(tmp_path.iterdir()) == []
    assert submission.job_id is None
    found = directives(submission.script)
    expected = {
        "nodes": "2",
        "ntasks-per-node": "2",
        "cpus-per-task": "4",
        "time": "1440",
        "partition": "gpu",
        "account": "lab",
        "constraint": "h200",
        "exclude": "gpu7",
        "mem": "400GB",
        "signal": "USR2@120",
        "distribution": "block",
        "reservation": "night",
        "requeue": "",
        "job-name": "run",
        "open-mode": "append",
    }
    assert expected.items() <= found.items()
    assert "gpus-per-node" not in found  # the recipe says --cpu
    assert "wckey" not in found
    lines = submission.script.splitlines()
    assert "NCCL_DEBUG" not in submission.script  # its value may be a secret: environment.sh has it
    assert lines.index("module load cuda") < next(i for i, line in enumerate(lines) if line.startswith("srun "))
    assert f"{output_dir}/.snapshots/0/code" in submission.script
    assert "--kill-on-bad-exit=1" in submission.script
    assert f"--label --output={output_dir}/logs/%j_%n_log.out" in submission.script
    assert "--error" not in submission.script, "one log for each node"
    assert "NCCL" not in submission.script, "there are no GPUs"
    command = submission.commands[1]
    assert f"--distributed-init-method tcp://FIRST-NODE:{port_of(output_dir)}" in command
    assert "--distributed-world-size 4 --distributed-rank $SLURM_PROCID" in command
    assert "--batch-size 4 --update-freq 4" in command


def test_the_commands_shown_can_be_pasted(tiny_data_bin, tmp_path):
    submission = launch(good_recipe(tiny_data_bin, tmp_path / "my run; it's"), dry_run=True)
    assert shlex.split(submission.commands[0]) == ["sbatch", f"{tmp_path}/my run; it's/logs/JOB_submission.sh"]


def test_a_dry_run_shows_what_trackers_are_told(tiny_data_bin, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_RESUME", "must")
    recipe = good_recipe(tiny_data_bin, tmp_path / "run", "--wandb-project", "mine", env=("WANDB_RUN_ID=first",))
    _, command = launch(recipe, dry_run=True).commands
    assert command.startswith("WANDB_NAME=run fairseq-train ")
    assert "WANDB_RESUME" not in command
    recipe = dataclasses.replace(recipe, env=(), inherit="none")  # so that the job does not see this process's
    _, command = launch(recipe, dry_run=True).commands
    assert re.match(r"WANDB_NAME=run WANDB_RUN_ID=[0-9a-f]{16} WANDB_RESUME=allow fairseq-train ", command)


def test_another_checkout_of_the_plugin_is_refused(tiny_data_bin, tmp_path):
    other = tmp_path / "other" / "roberta_plugin"
    other.mkdir(parents=True)
    with pytest.raises(ValueError, match=rf"--user-dir {other} is another checkout of this plugin, .*leave the option"):
        launch(good_recipe(tiny_data_bin, tmp_path / "run", "--user-dir", str(other)), dry_run=True)


def test_a_gpu_job_asks_for_its_gpus(tiny_data_bin, tmp_path):
    recipe = good_recipe(tiny_data_bin, tmp_path / "run")
    recipe = dataclasses.replace(recipe, train=tuple(word for word in recipe.train if word != "--cpu"))
    submission = launch(recipe, dry_run=True)
    assert directives(submission.script)["gpus-per-node"] == "2"
    assert "--device-id $SLURM_LOCALID" in submission.commands[1]
    lines = [line for line in submission.script.splitlines() if "NCCL" in line]
    print_all = "; ".join([*lines, "env"])
    given = subprocess.run(
        ["bash", "-c", print_all], env={"TORCH_NCCL_TRACE_BUFFER_SIZE": "7"}, capture_output=True, text=True, check=True
    )
    values = dict(line.split("=", 1) for line in given.stdout.splitlines())
    assert values["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "7", "what the user has set stays"
    assert values["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3"
    assert values["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] == f"{tmp_path}/run/logs/nccl_trace_"


def test_containers(tiny_data_bin, tmp_path):
    recipe = good_recipe(tiny_data_bin, tmp_path / "run", container="lab/roberta:1", container_mounts="/data:/data")
    script = launch(recipe, dry_run=True).script
    assert "--container-image=lab/roberta:1" in script
    assert f"--container-mounts={tmp_path}/run:{tmp_path}/run,/data:/data" in script
    assert "python3 -P -u -m submitit" in script
    script = launch(dataclasses.replace(recipe, container_runtime="apptainer"), dry_run=True).script
    assert f"apptainer exec --nv --bind {tmp_path}/run --bind /data:/data lab/roberta:1 python3 -P" in script


@pytest.fixture
def submit(tmp_path, monkeypatch):
    """Submit by an sbatch that only answers; returns the environment that sbatch was called in."""
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(f"#!/bin/sh\nenv -0 > {tmp_path}/given\necho Submitted batch job 7\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sbatch.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(submission, "check_partition", lambda partition, *, nodes: None)

    def submit(recipe, **options):
        assert launch(recipe, **options).job_id == "7"
        return dict(pair.split("=", 1) for pair in (tmp_path / "given").read_text().split("\0") if "=" in pair)

    return submit


def test_of_two_launches_at_the_same_time_the_second_finds_the_job_of_the_first(
    tiny_data_bin, tmp_path, monkeypatch, submit
):
    sbatch, recipe = tmp_path / "bin" / "sbatch", good_recipe(tiny_data_bin, tmp_path / "run")
    sbatch.write_text(sbatch.read_text().replace("echo", "sleep 0.5; echo"))
    monkeypatch.setattr(submission, "check_recipe", lambda recipe: tuple(recipe.train))  # a parser is for one thread
    monkeypatch.setattr(slurm_commands, "jobs", lambda ids: {"7": slurm_commands.Job("pending", "None")})
    with ThreadPoolExecutor(2) as pool:
        ends = [future.exception() for future in [pool.submit(launch, recipe) for _ in range(2)]]
    assert sorted(type(end).__name__ for end in ends) == ["NoneType", "ValueError"]
    assert any("Job 7 of the run folder" in str(end) for end in ends)
    assert len(list((tmp_path / "run" / ".snapshots").iterdir())) == 1


def test_what_sbatch_refuses_is_said_once_and_in_one_line(tiny_data_bin, tmp_path, submit, capfd):
    lines = ("CPU count per node can not be satisfied", "Batch job submission failed: not available")
    said = "".join(f"echo 'sbatch: error: {line}' >&2\n" for line in lines)
    (tmp_path / "bin" / "sbatch").write_text(f"#!/bin/sh\n{said}exit 1\n")
    with pytest.raises(ValueError, match=f"^sbatch refused the job: {'; '.join(lines)}$"):
        submit(good_recipe(tiny_data_bin, tmp_path / "run"))
    assert capfd.readouterr().err == ""


def test_secrets_are_in_no_file_and_reach_the_job_by_sbatch(tiny_data_bin, tmp_path, monkeypatch, submit):
    monkeypatch.setenv("MY_TOKEN", "")
    config = tmp_path / "launch.yaml"
    config.write_text("env: {MY_TOKEN: hunter2, OTHER_KEY: hunter2}\n")
    recipe = good_recipe(tiny_data_bin, tmp_path / "run", env=("MY_TOKEN=hunter2", "PLAIN=x"))
    assert submit(recipe, config=config)["MY_TOKEN"] == "hunter2"
    assert not [p for p in recipe.output_dir.rglob("*") if p.is_file() and b"hunter2" in p.read_bytes()]
    snapshot = recipe.output_dir / ".snapshots" / "0"
    assert (snapshot / "launch.yaml").read_text() == "env:\n  MY_TOKEN: '...'\n  OTHER_KEY: '...'\n"
    assert (snapshot / "environment.sh").read_text() == "export PLAIN=x\n"
    assert {stat.S_IMODE((snapshot / name).stat().st_mode) for name in ("launch.yaml", "environment.sh")} == {0o600}
    assert "MY_TOKEN=..." in (snapshot / "recipe.json").read_text()


def test_what_setup_and_sbatch_hold_can_be_read_by_nobody_else(tiny_data_bin, tmp_path, submit):
    """Not even while sbatch runs; colleagues read the logs all the same."""
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.write_text(sbatch.read_text() + f'stat -c %a "$(dirname "$1")" > {tmp_path}/mode\n')
    (tmp_path / "run" / "logs").mkdir(parents=True)
    (tmp_path / "run" / "logs").chmod(0o755)
    setup, options = ("export WANDB_API_KEY=hunter2",), ("comment=hunter2",)
    submit(good_recipe(tiny_data_bin, tmp_path / "run", setup=setup, sbatch=options))
    assert (tmp_path / "mode").read_text() == "700\n"
    assert stat.S_IMODE((tmp_path / "run" / "logs").stat().st_mode) == 0o755
    holding = [p for p in (tmp_path / "run").rglob("*") if p.is_file() and b"hunter2" in p.read_bytes()]
    assert {"recipe.json", "7_submission.sh"} <= {path.name for path in holding}
    assert {stat.S_IMODE(path.stat().st_mode) for path in holding} == {0o600}


def test_a_job_inherits_only_what_is_listed(tiny_data_bin, tmp_path, monkeypatch, submit):
    for name in ("NCCL_DEBUG", "MY_TOKEN", "SURPRISE"):
        monkeypatch.setenv(name, "1")
    given = submit(good_recipe(tiny_data_bin, tmp_path / "run", inherit="NCCL_*", env=("MY_TOKEN",)))
    assert {"NCCL_DEBUG", "MY_TOKEN", "PATH", "HOME"} <= given.keys()
    assert "SURPRISE" not in given
    assert os.environ["SURPRISE"] == "1"


def test_a_conda_environment_brings_its_own_python(tiny_data_bin, tmp_path):
    recipe = good_recipe(tiny_data_bin, tmp_path / "run", conda="lab", modules=("cuda/12.4",))
    lines = launch(recipe, dry_run=True).script.splitlines()
    at = [
        next(i for i, line in enumerate(lines) if word in line) for word in ("module load", "conda activate", "srun ")
    ]
    assert at == sorted(at)
    assert " python3 -P -u -m submitit" in lines[at[-1]]


def run_script(folder, script, *, srun="true", scontrol=""):
    """Run a batch script as bash does in attempt 1 of job 7, with an srun of our own and a scontrol that talks only."""
    for name, body in {
        "srun": srun,
        "scontrol": f'{scontrol}\necho "$*" >> {folder}/calls; echo JobState=RUNNING',
    }.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"}
    return subprocess.Popen(
        ["bash", "-c", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.fixture
def script(tiny_data_bin, tmp_path):
    """The script of a run folder with its snapshot, and a port that is taken."""
    server = socket.create_server(("", 0))
    port = server.getsockname()[1]
    setup = ("export PYTHONPATH=/of/a/module",)
    recipe = good_recipe(tiny_data_bin, tmp_path / "run", env=("NAME=a'b c",), port=port, setup=setup)
    yield launch(recipe, dry_run=True).script, port
    server.close()


def test_the_ranks_get_environment_and_a_free_port_and_the_policy_their_exit_code(tiny_data_bin, tmp_path, script):
    text, port = script
    take_snapshot(
        good_recipe(tiny_data_bin, tmp_path / "run", env=("NAME=a'b c",)), arguments=("data-bin",), config=None
    )
    process = run_script(
        tmp_path, text, srun='echo "name $NAME, wait $SLURM_WAIT, port $ROBERTA_PORT, code $PYTHONPATH"; exit 9'
    )
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 9, said
    assert "name a'b c, wait 10, port " in said
    assert f"code {tmp_path}/run/.snapshots/0/code:/of/a/module\n" in said, "another copy would be imported"
    assert port < int(re.search(r"port (\d+)", said)[1]) < port + 100
    assert "attempt 1 failed while starting (exit code 9): it failed before the first checkpoint" in said
    assert "requeue" not in (tmp_path / "calls").read_text()


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_to_the_batch_shell_ends_nothing(tiny_data_bin, tmp_path, script, number):
    recipe = good_recipe(tiny_data_bin, tmp_path / "run")
    take_snapshot(recipe, arguments=("data-bin",), config=None)
    (recipe.output_dir / "checkpoints").mkdir()
    (recipe.output_dir / "checkpoints" / "checkpoint_last.pt").touch()
    process = run_script(tmp_path, script[0], srun=f"touch {tmp_path}/runs; sleep 1; exit 137")
    while not (tmp_path / "runs").exists():
        time.sleep(0.01)
    process.send_signal(number)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 137, said
    assert "the job restarts" in said
    assert "cancelled" not in said
    assert "requeue 7" in (tmp_path / "calls").read_text()


@pytest.mark.parametrize(("line", "code"), [("set -euo pipefail", 137), ("set -e; false", 1), ("exit 3", 3)])
def test_lines_of_the_environment_that_end_the_script_end_no_run(tiny_data_bin, tmp_path, line, code):
    """`set -e` is a habit in batch scripts; the policy decides all the same, once, and records the attempt."""
    recipe = good_recipe(tiny_data_bin, tmp_path / "run", setup=(line,))
    script = launch(recipe, dry_run=True).script
    take_snapshot(recipe, arguments=("data-bin",), config=None)
    (recipe.output_dir / "checkpoints").mkdir()
    (recipe.output_dir / "checkpoints" / "checkpoint_last.pt").touch()
    trained = End(job_id="7", attempt=0, code=143, phase="stopped")
    write_attempt(recipe.output_dir, trained, Decision(True, "the job restarts"), Limits(9, 1, 140))
    process = run_script(tmp_path, script, srun="exit 137")
    said = process.communicate(timeout=60)[0]
    assert process.returncode == code, said
    assert said.count("the job restarts from its last checkpoint") == 1, said
    assert [record["code"] for record in read_attempts(recipe.output_dir)] == [143, code]
    assert "requeue 7" in (tmp_path / "calls").read_text()


@pytest.mark.parametrize("runtime", ["pyxis", "apptainer"])
def test_the_ranks_run_in_the_container_and_the_policy_outside(tiny_data_bin, tmp_path, runtime):
    """srun starts what the container's runtime is given; the command that restarts the job is found outside only."""
    recipe = good_recipe(tiny_data_bin, tmp_path / "run", container="lab.sqsh", container_runtime=runtime)
    script = launch(recipe, dry_run=True).script
    take_snapshot(recipe, arguments=("data-bin",), config=None)
    (recipe.output_dir / "checkpoints").mkdir()
    (recipe.output_dir / "checkpoints" / "checkpoint_last.pt").touch()
    process = run_script(tmp_path, script, srun=f'printf "%s\\n" "$@" > {tmp_path}/given; exit 137')
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 137, said
    words = (tmp_path / "given").read_text().splitlines()
    python = words.index("python3")
    if runtime == "pyxis":
        assert {"--container-image=lab.sqsh", f"--container-mounts={tmp_path}/run:{tmp_path}/run"} <= {*words[:python]}
    else:
        assert words[python - 6 : python] == ["apptainer", "exec", "--nv", "--bind", f"{tmp_path}/run", "lab.sqsh"]
    assert words[python:][:5] == ["python3", "-P", "-u", "-m", "submitit.core._submit"]
    assert "requeue 7" in (tmp_path / "calls").read_text()
    assert "the job restarts" in said


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
    assert record["packages"].keys() == {"torch", "numpy", "submitit", *installed_fairseqs()}


@pytest.mark.parametrize("there", [("fairseq",), ()])
def test_a_fairseq_from_source_is_as_good(tmp_path, monkeypatch, there):
    """Or one that is no installed package at all, but on PYTHONPATH."""
    version = metadata.version

    def versions(name):
        if "fairseq" in name and name not in there:
            raise metadata.PackageNotFoundError(name)
        return "0.12.2" if name in there else version(name)

    monkeypatch.setattr(metadata, "version", versions)
    snapshot = take_snapshot(LaunchSettings(output_dir=tmp_path / "run", train=("data",)), arguments=(), config=None)
    packages = json.loads((snapshot / "recipe.json").read_text())["packages"]
    assert {name: found for name, found in packages.items() if "fairseq" in name} == dict.fromkeys(there, "0.12.2")


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
    with files_up_to(2048), pytest.raises((OSError, ValueError), match=r"File too large.*free some space") as error:
        copy_code(tmp_path, user_dirs=())
    assert "repair" not in str(error.value)


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
