"""The batch script, run by bash with an srun of our own: environment, copies on the nodes, restart policy."""

import json
import re
import signal
import socket
import subprocess
import time

import pytest

from roberta_plugin.launch.snapshot import take_snapshot
from roberta_plugin.launch.submission import launch
from tests.unit.launch.packed import pack_environment
from tests.unit.launch.recipes import good_recipe


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


# What SLURM does on a node, and for the ranks says where they would import from.
ONE_NODE = """
while [[ $1 == -* ]]; do [[ $1 == --output ]] && shift; shift; done
if [[ $* == *submitit* ]]; then
    echo "python $1, path $PYTHONPATH, found $(cd "$ROBERTA_NODE_FOLDER" && echo *)"; exit 9
fi
exec "$@"
"""


def test_the_ranks_import_from_a_copy_on_their_node_which_is_removed(tiny_data_bin, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    packed = pack_environment(tmp_path)
    recipe = good_recipe(
        tiny_data_bin, tmp_path / "my run", node_local="$DISK", packed_env=packed, env=(f"DISK={disk}",)
    )
    text = launch(recipe, dry_run=True).script
    take_snapshot(recipe, arguments=("data-bin",), config=None)
    process = run_script(tmp_path, text, srun=ONE_NODE)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 9, said
    found = re.search(r"python (.*)/environment/bin/python, path (.*)/code, found code environment", said)
    assert found, said
    assert found[1] == found[2]
    assert re.fullmatch(rf"{disk}/roberta-my_run-[0-9a-f]{{8}}/7-1", found[1])
    assert "attempt 1 failed while starting (exit code 9)" in said
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize(("code", "calls"), [(137, ["removed", "requeue 7"]), (0, ["requeue 7", "removed"])])
def test_what_killed_ranks_have_left_is_removed_before_the_job_goes_back(tiny_data_bin, tmp_path, code, calls):
    """To put it back ends all that runs; ranks that have stopped have left nothing, and may have little time."""
    recipe = good_recipe(tiny_data_bin, tmp_path / "run", node_local="/tmp")
    text = launch(recipe, dry_run=True).script
    take_snapshot(recipe, arguments=("data-bin",), config=None)
    (recipe.output_dir / "checkpoints").mkdir()
    (recipe.output_dir / "checkpoints" / "checkpoint_last.pt").touch()
    status = {"job_id": "7", "attempt": 1, "phase": "training" if code else "stopped", "update": 3}
    (recipe.output_dir / "status.json").write_text(json.dumps(status))
    body = f"""case "$*" in
        *" copy "*) ;;
        *" remove "*) sleep 1.5; echo removed >> {tmp_path}/calls ;;
        *) exit {code} ;;
    esac"""
    process = run_script(tmp_path, text, srun=body)
    said = process.communicate(timeout=60)[0]
    assert "the job restarts" in said
    assert [line for line in (tmp_path / "calls").read_text().splitlines() if not line.startswith("show")] == calls


def test_a_variable_of_node_local_that_the_job_does_not_have_is_named(tiny_data_bin, tmp_path):
    recipe = good_recipe(tiny_data_bin, tmp_path / "run", node_local="${MY_DISK}/$MY_NAME", env=("MY_NAME=me",))
    text = launch(recipe, dry_run=True).script
    take_snapshot(recipe, arguments=("data-bin",), config=None)
    process = run_script(tmp_path, text, srun=ONE_NODE)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 1, said
    assert "--node-local is [MY_DISK is not set]/me in this job: name a folder that every node has" in said


def test_a_node_that_is_not_ready_in_time_ends_the_start(tiny_data_bin, tmp_path):
    recipe = good_recipe(tiny_data_bin, tmp_path / "run", node_local="/tmp", preflight_seconds=0.5)
    text = launch(recipe, dry_run=True).script
    take_snapshot(recipe, arguments=("data-bin",), config=None)
    process = run_script(tmp_path, text, srun='[[ $* == *" remove "* ]] || sleep 60')
    said = process.communicate(timeout=30)[0]
    assert process.returncode == 124, said
    assert "attempt 1 failed while starting (exit code 124)" in said


def test_no_rank_starts_where_a_node_has_no_copy(tiny_data_bin, tmp_path):
    (tmp_path / "file").touch()
    recipe = good_recipe(tiny_data_bin, tmp_path / "run", node_local=f"{tmp_path}/file")
    text = launch(recipe, dry_run=True).script
    take_snapshot(recipe, arguments=("data-bin",), config=None)
    process = run_script(tmp_path, text, srun=ONE_NODE)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 1, said
    assert "python " not in said, "a rank has started"
    (record,) = map(json.loads, (recipe.output_dir / "attempts.jsonl").read_text().splitlines())
    assert "cannot be made (Not a directory): --node-local must name a folder" in record["reason"]
    assert not record["restarts"]
