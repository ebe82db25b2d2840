"""Files are whole or what they were before; JSON files and records are compared and, if damaged, named."""

import fcntl
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import pytest

from roberta_plugin import files as atomic_files
from roberta_plugin.files import atomic_write, hidden_folder, replace_folder
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.record import differences, listed, moved, options_of, refuse
from tests.conftest import files_up_to
from tests.refusals import refused


def test_bytes_and_text_appear_at_the_end_only(tmp_path):
    with atomic_write(tmp_path / "bytes") as file:
        file.write(b"\x00\xff")
        assert not (tmp_path / "bytes").exists()
    assert (tmp_path / "bytes").read_bytes() == b"\x00\xff"
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "bytes").stat().st_mode == (tmp_path / "plain").stat().st_mode
    with atomic_write(tmp_path / "text", "w") as file:
        file.write("gr\u00fcn\n")
    assert (tmp_path / "text").read_bytes() == "gr\u00fcn\n".encode()
    assert sorted(os.listdir(tmp_path)) == ["bytes", "plain", "text"]


def entries(folder):
    """Everything below a folder."""
    return [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*"))]


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
    assert entries(tmp_path) == ["old", "old/new"]


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
    assert entries(tmp_path) == ["out", "out/content"]


def test_a_folder_that_cannot_be_replaced_stays(tmp_path):
    (tmp_path / "old" / "content").mkdir(parents=True)
    refused("none", replace_folder, tmp_path / "old", by=tmp_path / "none", error=FileNotFoundError)
    assert entries(tmp_path) == ["old", "old/content"]


def test_torch_s_error_of_a_full_disk_names_the_file(tmp_path):
    torch = pytest.importorskip("torch")
    too_large = pytest.raises(OSError, match="File too large")
    with files_up_to(20_000), too_large as error, atomic_write(tmp_path / "model.pt") as file:
        torch.save(torch.zeros(100_000), file)
    assert error.value.filename == str(tmp_path / "model.pt")
    assert not list(tmp_path.iterdir())


SETTINGS = {"max_length": 40, "labels": ["a", "b"], "log_interval": 5, "sha256": "1" * 64}
NAMES = {"data": "--data", "--max-update": "--epochs", "--warmup-updates": ""}
BY_NAMES = {"named": lambda name: NAMES.get(name, name)}


def given(*words):
    return options_of(list(words))


@pytest.mark.parametrize(
    ("before", "now", "options", "expected"),
    [
        (SETTINGS, dict(reversed(SETTINGS.items())), {}, ""),
        ({"a": None}, {}, {}, ""),
        (SETTINGS, SETTINGS | {"max_length": 30}, {}, "--max-length was 40 and is 30 now"),
        (SETTINGS, SETTINGS | {"labels": []}, {"named": str}, "labels was a, b and is nothing now"),
        (SETTINGS, SETTINGS | {"sha256": "2" * 64}, {"named": str}, "sha256 was 11111111 and is 22222222 now"),
        ({"of": {"x": 1, "y": ""}}, {"of": {}}, {"named": str}, "of was x 1, y '' and is nothing now"),
        (SETTINGS, SETTINGS | {"log_interval": 9}, {"free": lambda name: name.startswith("log")}, ""),
        (
            {"lr": "1", "cpu": "true"},
            {"lr": "3", "bf16": "true"},
            {},
            "--lr was 1 and is 3 now; --cpu was true and is not given now; --bf16 was not given and is true now",
        ),
        (given("d", "--lr", "1", "--bf16"), given("d", "--bf16", "--lr", "1"), {}, ""),
        (given("d", "--lr", "1", "--bf16"), given("d", "--lr=1", "--bf16"), {}, ""),
        (
            given("d", "--keep", "1", "2", "--bf16"),
            given("e", "--keep", "1", "3"),
            BY_NAMES,
            "--data was d and is e now; --keep was 1 2 and is 1 3 now; --bf16 was given and is not given now",
        ),
        (
            given("--max-update", "9", "--warmup-updates", "1"),
            given("--max-update", "8", "--warmup-updates", "2"),
            BY_NAMES,
            "--epochs was 9 and is 8 now",  # the other follows from it
        ),
        (
            given("--warmup-updates", "1"),
            given("--warmup-updates", "2"),
            BY_NAMES,
            "--warmup-updates was 1 and is 2 now",
        ),
    ],
)
def test_each_difference_is_named_with_the_old_and_the_new_value(before, now, options, expected):
    found = differences(before, now, **options)
    assert listed(found) == expected
    sentence = re.escape(f"runs/a was made with other settings: {expected}. Delete it.")
    with pytest.raises(ValueError, match=f"^{sentence}$") if expected else nullcontext():
        refuse("runs/a was made with other settings", found, "Delete it.")


def test_paths_beside_and_around_a_folder_that_was_moved_move_along():
    def now(path, *among, before="/a/GLUE/RTE/runs"):
        return moved(path, before=before, now=Path("/b/GLUE-2/RTE/runs"), among=among)

    for path in ("RTE/data", "RTE/runs/x", "RTE-2/data", "MNLI/model.pt"):
        old, new = f"/a/GLUE/{path}", f"/b/GLUE-2/{path}"
        assert now(old, new) == new and now(old, old, new) == now(old) == now(old, new, before="") == old
    assert now("/a/model.pt", "/b/model.pt") == "/a/model.pt"  # the names of what holds them differ
    assert now("1e-5", "1e-5") == now("1e-5") == "1e-5"


def test_a_record_comes_back_equal_and_none_where_there_is_none(tmp_path):
    path, asked = tmp_path / "record.json", {"keys": ("sha256",), "remedy": "delete it"}
    assert read_json(path, **asked) is None
    write_json(path, SETTINGS)
    assert read_json(path, **asked) == SETTINGS and differences(read_json(path, **asked), SETTINGS) == []


def test_numbers_that_json_lacks_are_written_as_null(tmp_path):
    write_json(tmp_path / "a.json", {"b": [math.nan, 1.0, {"c": -math.inf}], "d": (math.inf,)})
    assert "NaN" not in (tmp_path / "a.json").read_text()
    assert json.loads((tmp_path / "a.json").read_text()) == {"b": [None, 1.0, {"c": None}], "d": [None]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b'{"b": 1', "is not valid JSON"),
        (b"\xff\xfe", "is not valid JSON"),
        (b"[1]", r"holds \[1\] instead of an object"),
        (b"[" * 100_000, "is not valid JSON .it is nested too deeply"),
        (b"null", "holds None instead of an object"),
        (b'{"c": 2}', "does not have the key 'b'"),
        (b'{"b": 5}', r": 'b' is 5, which is not a list or null"),
        (b'{"b": null, "c": true}', r": 'c' is True, which is not a number"),
        (b'{"b": [], "c": 1, "d": []}', r": 'd' is \[\], which is not an object"),
    ],
)
def test_what_is_damaged_is_named(tmp_path, content, message):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    hints = {"b": tuple[str, ...] | None, "c": float, "d": Mapping[str, str]}
    message = rf"a\.json ?{message}.*: delete it\."
    refused(message, read_json, path, keys=["b"], remedy="delete it", hints=hints)


_KILLED = """
import os, pathlib, signal, sys
from roberta_plugin.files import atomic_write
with atomic_write(pathlib.Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_next_start_removes_what_a_killed_writer_left_and_nothing_that_is_being_written(tmp_path, monkeypatch):
    monkeypatch.setattr("roberta_plugin.files._looked_at", set())
    subprocess.run([sys.executable, "-c", _KILLED, tmp_path / "train.txt"], check=False)
    (left,) = tmp_path.iterdir()
    with open(tmp_path / left.name.replace("train", "valid"), "wb") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        with atomic_write(tmp_path / "other") as file:
            file.write(b"")
        assert sorted(os.listdir(tmp_path)) == [Path(busy.name).name, "other"]
