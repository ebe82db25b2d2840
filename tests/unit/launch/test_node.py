"""Copies on a node's disk are whole or not there, and removed; a free pair of ports is found beside those taken."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from roberta_plugin.launch import node
from roberta_plugin.launch.node import NodeLocalError, SettingError, copy, remove
from tests.campaign.environment import mounted
from tests.conftest import REPOSITORY
from tests.slurm_cluster import free_ports, wait_for
from tests.unit.launch.packed import pack_environment


@pytest.fixture
def code(tmp_path):
    folder = tmp_path / "code"
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "module.py").write_text("A = 1\n")
    return folder


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("archive", ["env.tar.gz", "env.tar"])
def test_the_code_is_there_and_the_environments_python_imports_its_own(tmp_path, disk, code, archive):
    run = disk / "roberta-run"
    copy(run / "7-0", code=code, environment=pack_environment(tmp_path, archive=archive))
    assert (run / "7-0" / "code" / "package" / "module.py").read_text() == "A = 1\n"
    python = run / "7-0" / "environment" / "bin" / "python"
    shown = subprocess.run(
        [python, "-P", "-c", "import marker, sys; print(sys.prefix)"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == str(run / "7-0" / "environment")
    assert stat.S_IMODE(run.stat().st_mode) == 0o700, "others could put code there"


def test_conda_unpack_runs_in_the_new_place(tmp_path, disk, code):
    script = "import pathlib; pathlib.Path(__file__).with_name('unpacked').write_text(__file__)"
    copy(disk / "run" / "7-0", code=code, environment=pack_environment(tmp_path, conda_unpack=script))
    place = disk / "run" / "7-0" / "environment" / "bin"
    assert (place / "unpacked").read_text() == str(place / "conda-unpack")


def test_a_conda_unpack_that_fails_is_quoted(tmp_path, disk, code):
    environment = pack_environment(tmp_path, conda_unpack="raise SystemExit('prefix too long')")
    with pytest.raises(NodeLocalError, match=r"conda-unpack of .*env.tar.gz failed: prefix too long"):
        copy(disk / "run" / "7-0", code=code, environment=environment)


def test_a_start_removes_what_killed_attempts_have_left_and_an_end_its_own_copy(disk, code):
    copy(disk / "roberta-a" / "7-0", code=code)
    copy(disk / "roberta-b" / "8-0", code=code)
    (disk / "roberta-a" / "7-0" / "code" / "package" / "module.py").chmod(0)
    copy(disk / "roberta-a" / "7-1", code=code)
    assert sorted(path.name for path in disk.glob("*/*")) == ["7-1", "8-0"]
    remove(disk / "roberta-a" / "7-0")
    remove(disk / "roberta-a" / "7-1")
    assert [path.name for path in disk.iterdir()] == ["roberta-b"]


def test_a_disk_that_nodes_share_is_refused(disk, code):
    copy(disk / "roberta-run" / "7-0", code=code)
    with pytest.raises(
        NodeLocalError, match="7-0 is there already: --node-local must name a folder on each node's own"
    ):
        copy(disk / "roberta-run" / "7-0", code=code)
    assert (disk / "roberta-run" / "7-0" / "code" / "package" / "module.py").is_file(), "the other node's copy is gone"


def test_a_full_disk_is_named_and_keeps_nothing(tmp_path, disk, code):
    if not mounted(disk, "size=64k"):
        pytest.skip("no tmpfs can be mounted here")
    try:
        (code / "large").write_bytes(bytes(2**17))
        (code / "small").write_bytes(bytes(2**17))
        with pytest.raises(NodeLocalError, match=r"7-0 cannot be written.*No space left on device.*--node-local.$"):
            copy(disk / "roberta-run" / "7-0", code=code)
        assert list(disk.iterdir()) == []
        with pytest.raises(NodeLocalError, match=r"7-0 cannot be written.*No space left on device"):
            copy(disk / "run" / "7-0", code=code / "package", environment=pack_environment(tmp_path, large="a" * 2**17))
        assert list(disk.iterdir()) == []
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(NodeLocalError, match=r"roberta-run cannot be made \(Read-only file system\)"):
            copy(disk / "roberta-run" / "7-0", code=code)
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_disk_that_runs_no_programs_is_named(tmp_path, disk, code):
    if not mounted(disk, "noexec"):
        pytest.skip("no tmpfs can be mounted here")
    try:
        packed = pack_environment(tmp_path)
        with tarfile.open(packed, "w:gz") as file:  # with a Python of its own, as conda-pack has
            python = tmp_path / "environment-to-pack" / "bin" / "python"
            target = python.resolve()
            python.unlink()
            python.write_bytes(target.read_bytes()[:4096])
            python.chmod(0o755)
            file.add(tmp_path / "environment-to-pack", arcname=".")
        with pytest.raises(NodeLocalError, match=r"no bin/python that works .*\(Permission denied\).* noexec"):
            copy(disk / "roberta-run" / "7-0", code=code, environment=packed)
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_file_of_the_snapshot_that_this_node_cannot_read_is_named(disk, code):
    (code / "gone").symlink_to("nowhere")
    with pytest.raises(NodeLocalError, match=r"No such file or directory: .*code/gone"):
        copy(disk / "roberta-run" / "7-0", code=code)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("/scratch/[JOBDIR is not set]", r"--node-local is /scratch/\[JOBDIR is not set\] in this job"),
        ("scratch", "--node-local is scratch in this job: name a folder that every node has, by its full path"),
    ],
)
def test_a_place_that_a_variable_has_spoilt_is_refused(code, place, message):
    with pytest.raises(SettingError, match=message):
        copy(Path(place) / "roberta-run" / "7-0", code=code)


def test_a_folder_that_others_could_write_to_is_refused(tmp_path, disk, code):
    (disk / "open").mkdir()
    (disk / "open").chmod(0o777)
    (disk / "elsewhere").mkdir()
    (disk / "link").symlink_to(disk / "elsewhere")
    for name in ("open", "link"):
        with pytest.raises(NodeLocalError, match=f"{name} is a link, or others can write to it"):
            copy(disk / name / "7-0", code=code)
    assert list((disk / "elsewhere").iterdir()) == []
    if os.geteuid() == 0:
        (disk / "foreign").mkdir()
        os.chown(disk / "foreign", 12345, 12345)
        with pytest.raises(NodeLocalError, match="foreign is a link, or others can write to it"):
            copy(disk / "foreign" / "7-0", code=code)


def damaged(tmp_path, kind):
    """An archive that cannot be used."""
    path = pack_environment(tmp_path)
    if kind == "cut off":
        os.truncate(path, path.stat().st_size // 2)
    elif kind == "flipped":
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
    elif kind == "text":
        path.write_text("no archive")
    else:
        with tarfile.open(path, "w:gz") as file:
            file.add(tmp_path / "environment-to-pack", arcname="env")
    return path


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("cut off", r"env.tar.gz is not a whole tar archive \(.*\): pack the environment again"),
        ("flipped", r"env.tar.gz is not a whole tar archive \(.*\): pack the environment again"),
        ("text", r"env.tar.gz is not a whole tar archive \(.*\): pack the environment again"),
        ("in a folder of its own", r"env.tar.gz holds no bin/python that works on this node"),
    ],
)
def test_a_damaged_archive_is_named(tmp_path, disk, code, kind, message):
    with pytest.raises(NodeLocalError, match=message):
        copy(disk / "run" / "7-0", code=code, environment=damaged(tmp_path, kind))
    assert list(disk.iterdir()) == []


def test_an_archive_that_a_node_does_not_see_is_named(tmp_path, disk, code):
    with pytest.raises(NodeLocalError, match=r"its source not read \(No such file or directory: .*env.tar\)"):
        copy(disk / "run" / "7-0", code=code, environment=tmp_path / "env.tar")
    assert list(disk.iterdir()) == []


def start_as_the_batch_script_does(*words):
    environment = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "2", "SLURM_NODEID": "3"}
    return subprocess.Popen(
        [sys.executable, "-I", node.__file__, *map(str, words)],
        env=environment | {"SLURMD_NODENAME": "gpu4"},
        stderr=subprocess.PIPE,
        text=True,
    )


def run_as_the_batch_script_does(*words):
    process = start_as_the_batch_script_does(*words)
    return process.communicate()[1], process.returncode


def test_a_failure_is_the_reason_of_the_attempt_and_names_the_node(tmp_path, disk, code):
    output_dir = tmp_path / "run"
    output_dir.mkdir()
    words = ("--code", code, "--output-dir", output_dir)
    said, code_of_copy = run_as_the_batch_script_does("copy", disk / "roberta-run" / "7-2", *words)
    assert code_of_copy == 0, said
    assert (disk / "roberta-run" / "7-2" / "code" / "package" / "module.py").is_file()
    said, code_of_copy = run_as_the_batch_script_does("copy", code / "package" / "module.py" / "7-2", *words)
    assert code_of_copy == 1
    assert said.startswith(f"{code}/package/module.py cannot be made")
    noted = json.loads((output_dir / "failures" / "7_2.json").read_text())
    assert noted["reason"].startswith(f"gpu4: NodeLocalError: {code}/package/module.py cannot be made")
    assert (noted["nodes"], noted["node"], noted["is_preflight"]) == (["gpu4"], 3, True)
    assert run_as_the_batch_script_does("remove", disk / "roberta-run" / "7-2")[1] == 0
    assert list(disk.iterdir()) == []


def test_a_wrong_setting_is_the_reason_and_blames_no_node(tmp_path, disk, code):
    output_dir = tmp_path / "run"
    output_dir.mkdir()
    copy(disk / "roberta-run" / "7-2", code=code)
    run_as_the_batch_script_does("copy", disk / "roberta-run" / "7-2", "--code", code, "--output-dir", output_dir)
    noted = json.loads((output_dir / "failures" / "7_2.json").read_text())
    assert "is there already: --node-local must name a folder on each node's own disk" in noted["reason"]
    assert (noted["nodes"], noted["is_preflight"]) == ([], False)


@pytest.mark.parametrize(("number", "code_of_copy"), [(signal.SIGTERM, 1), (signal.SIGUSR2, 128 + signal.SIGUSR2)])
def test_a_copy_that_a_signal_ends_leaves_nothing(tmp_path, disk, code, number, code_of_copy):
    os.mkfifo(tmp_path / "env.tar")  # an archive that takes its time
    words = ("--code", code, "--output-dir", tmp_path, "--environment", tmp_path / "env.tar")
    process = start_as_the_batch_script_does("copy", disk / "roberta-run" / "7-2", *words)
    wait_for(lambda: [*disk.glob("roberta-run/7-2/code/package/module.py")], 20, "the copy of the code")
    process.send_signal(number)
    assert (process.wait(timeout=20), list(disk.iterdir())) == (code_of_copy, [])


RANK = """
import sys
from pathlib import Path
from roberta_plugin.launch.node import remove_at_exit
remove_at_exit(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
"""


def test_the_last_rank_of_a_node_to_exit_removes_its_copy(disk, code):
    folder = disk / "roberta-run" / "7-0"
    copy(folder, code=code)
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY
        )
        for _ in range(2)
    ]
    assert [rank.stdout.readline() for rank in ranks] == [b"ready\n", b"ready\n"]
    ranks[0].communicate(timeout=20)
    assert (folder / "code" / "package" / "module.py").is_file(), "the other rank still imports from it"
    ranks[1].communicate(timeout=20)
    assert list(disk.iterdir()) == []


def listen(port, address="127.0.0.1"):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    server.listen(1)
    return server


@pytest.fixture
def first():
    """The first of four ports that are free."""
    return next(port for port in free_ports(50) if node.free_pair(port) == port == node.free_pair(port + 2) - 2)


def test_the_first_pair_is_taken_where_it_is_free(first):
    assert node.free_pair(first) == first


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("address", ["127.0.0.1", ""])
def test_a_pair_of_which_one_is_taken_is_passed_over(first, offset, address):
    with listen(first + offset, address):
        assert node.free_pair(first) == first + 2
        done = subprocess.run(
            [sys.executable, "-I", node.__file__, "port", str(first)], capture_output=True, text=True, check=True
        )
        assert done.stdout == f"{first + 2}\n"


def test_there_is_an_end(first, monkeypatch):
    monkeypatch.setattr(node, "NUM_TRIES", 1)
    with listen(first), pytest.raises(OSError, match="are all taken"):
        node.free_pair(first)
