"""A file is whole or what it was before."""

import os
import subprocess
import sys

import pytest

from roberta_plugin import files as atomic_files
from roberta_plugin.files import atomic_write, hidden_folder, replace_folder


def test_bytes_and_text_appear_at_the_end_only(tmp_path):
    with atomic_write(tmp_path / "bytes") as file:
        file.write(b"\x00\xff")
        assert not (tmp_path / "bytes").exists()
    assert (tmp_path / "bytes").read_bytes() == b"\x00\xff"
    with atomic_write(tmp_path / "text", "w") as file:
        file.write("gr\u00fcn\n")
    assert (tmp_path / "text").read_bytes() == "gr\u00fcn\n".encode()
    assert sorted(os.listdir(tmp_path)) == ["bytes", "text"]


def test_a_file_has_the_usual_permissions(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    with atomic_write(tmp_path / "atomic"):
        pass
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_after_an_exception_the_old_file_stays_and_nothing_else(tmp_path, error):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write_half():
        with atomic_write(path) as file:
            file.write(b"half")
            file.flush()
            assert len(os.listdir(tmp_path)) == 2
            raise error

    with pytest.raises(error):
        write_half()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_data_are_on_the_disk_before_the_name_is(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)

        def call(*arguments, name=name, real=real):
            calls.append(name)
            return real(*arguments)

        monkeypatch.setattr(atomic_files.os, name, call)
    with atomic_write(tmp_path / "file") as file:
        file.write(b"new")
    assert calls == ["fsync", "replace", "fsync"], "file, rename, folder"


def test_a_failed_rename_leaves_no_temporary_file(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"), atomic_write(tmp_path / "folder"):
        pass
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_folder_takes_the_place_of_another_or_of_none(tmp_path, is_there):
    for name in ("old", "new") if is_there else ("new",):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    replace_folder(tmp_path / "old", by=tmp_path / "new")
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == ["old", "old/new"]


def test_folders_of_killed_processes_are_removed_and_no_others(tmp_path):
    folder = tmp_path / "out"
    for name in (".out.0123abcd.tmp", ".out.89abcdef.old", ".output.0123abcd.tmp", ".out.0123abcd.tmp.d", "out"):
        (tmp_path / name / name).mkdir(parents=True)
    with hidden_folder(folder) as first:
        assert first.is_dir() and not (tmp_path / ".out.0123abcd.tmp").exists()
        with hidden_folder(folder) as second:
            assert first.is_dir() and second != first
            replace_folder(folder, by=second)
    assert {path.name for path in tmp_path.iterdir()} == {"out", ".output.0123abcd.tmp", ".out.0123abcd.tmp.d"}
    assert not list(folder.iterdir())


def test_an_earlier_folder_whose_successor_never_came_is_back(tmp_path):
    """The process was killed between the two renames."""
    (tmp_path / ".out.89abcdef.old").mkdir()
    (tmp_path / ".out.89abcdef.old" / "content").touch()
    with pytest.raises(KeyboardInterrupt), hidden_folder(tmp_path / "out"):
        raise KeyboardInterrupt
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == ["out", "out/content"]


def test_a_folder_that_cannot_be_replaced_stays(tmp_path):
    (tmp_path / "old" / "content").mkdir(parents=True)
    with pytest.raises(FileNotFoundError):
        replace_folder(tmp_path / "old", by=tmp_path / "none")
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == ["old", "old/content"]


def test_torch_s_error_of_a_full_disk_names_the_file(tmp_path):
    code = (
        "import resource, sys, torch; from roberta_plugin.files import atomic_write\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "try:\n    with atomic_write(sys.argv[1]) as file:\n        torch.save(torch.zeros(100_000), file)\n"
        "except OSError as error:\n    print(error.filename)"
    )
    path = tmp_path / "model.pt"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(path), done.stderr
    assert not list(tmp_path.iterdir())
