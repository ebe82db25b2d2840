"""roberta doctor and inspect: what is wrong, of an installation and of a folder of data."""

import ast
import json
import os
import re
import shutil

import numpy as np
import pytest

from roberta_plugin.cli import doctor, main
from roberta_plugin.data.binarize.pipeline import BinarizeSettings, binarize
from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS, ByteLevelBpe
from roberta_plugin.data.vocabulary import Row, Vocabulary
from tests.conftest import REPOSITORY
from tests.forked_training import run_forked
from tests.tiny_corpus import command, environment


def test_a_package_that_is_missing_or_too_old_comes_with_the_command_that_brings_it():
    lines = ["ve-fairseq==0.12.3", "numpy>=1", "numpy>=99", "no-such-package>=2", 'torch>=2; python_version > "3"']
    lines += ["no-such-package-a; platform_system == 'Darwin'", "no-such-package-b>=1; extra == 'test'"]
    old, missing = doctor.find_package_faults(lines)
    assert old.what == "numpy" and ">=99 is needed" in old.found and old.remedy == 'pip install "numpy>=99"'
    assert missing[:3] == ("no-such-package", "missing", 'pip install "no-such-package>=2"')
    (fault,) = doctor.find_package_faults(None)
    assert "pip install" in fault.remedy, "the plugin itself is not installed"


def test_no_fairseq_two_of_them_and_one_that_does_not_work_come_with_a_remedy(monkeypatch, tmp_path):
    assert not [*doctor.find_fairseq_faults()]
    monkeypatch.setattr(doctor.sys, "executable", str(tmp_path / "python"))
    (fault,) = doctor.find_fairseq_faults()
    assert fault.found == f"missing in {tmp_path}: fairseq-train, fairseq-validate" and fault.remedy
    for installed, words in (((), "missing"), (("fairseq", "ve-fairseq"), "several are installed")):
        monkeypatch.setattr(doctor, "installed_fairseqs", lambda installed=installed: dict.fromkeys(installed, "1.0"))
        fault = next(doctor.find_fairseq_faults())
        assert words in fault.found and fault.remedy

    def broken():
        raise ImportError("libcudart.so.99 is gone\nand more")

    assert doctor.import_error("json", then=broken) == "json cannot be imported: ImportError: libcudart.so.99 is gone"


@pytest.mark.parametrize("is_needed", [True, False, None])
def test_the_exit_code_says_whether_something_is_to_be_repaired(monkeypatch, capsys, is_needed):
    faults = [] if is_needed is None else [doctor.Fault("thing", "x", "pip install it", is_needed)]
    for name in ("package", "fairseq", "transformers", "device"):
        monkeypatch.setattr(doctor, f"find_{name}_faults", lambda *_: [])
    monkeypatch.setattr(doctor, "find_device_faults", lambda: faults)
    assert main(["doctor"]) == bool(is_needed)
    shown = capsys.readouterr().out
    assert ("Everything the plugin needs works." in shown) is not bool(is_needed)
    assert ("thing: x\n      pip install it" in shown) is (is_needed is not None)
    assert main(["doctor", "--json"]) == bool(is_needed)
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is not bool(is_needed) and len(report["findings"]) == len(faults)


def test_this_environment_is_whole_and_a_broken_torchaudio_behind_transformers_is_named(tmp_path):
    """ve-fairseq brings a CUDA build of torchaudio beside any torch; transformers imports it and fails."""
    pytest.importorskip("transformers")
    how = {"cwd": REPOSITORY, "timeout": 200, "fork_of": "fairseq"}
    done = run_forked([*command("roberta"), "doctor"], environment=environment(), **how)
    assert done.returncode == 0 and "FAULT" not in done.stdout, done.stdout
    (tmp_path / "torchaudio").mkdir()
    (tmp_path / "torchaudio" / "__init__.py").write_text("raise OSError('libc10_cuda.so: no such file')")
    (tmp_path / "torchaudio-2.11.0.dist-info").mkdir()
    (tmp_path / "torchaudio-2.11.0.dist-info" / "METADATA").write_text("Name: torchaudio\nVersion: 2.11.0\n")
    setting = {**environment(), "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}"}
    done = run_forked([*command("roberta"), "doctor", "--json"], environment=setting, **how)
    assert done.returncode == 1, done.stdout
    (fault,) = (each for each in json.loads(done.stdout)["findings"] if each["is_needed"])
    assert fault["what"] == "transformers" and "cannot be imported" in fault["found"]
    assert fault["remedy"] == "pip uninstall -y torchaudio"


@pytest.mark.parametrize(("cuda", "is_noted"), [(None, False), ("13.0", True)])
def test_a_cuda_build_of_torch_without_a_gpu_is_a_note(monkeypatch, cuda, is_noted):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    faults = [*doctor.find_device_faults()]
    assert [("build for CUDA 13.0" in each.found, "nvidia-smi" in each.remedy) for each in faults] == [
        (True, True)
    ] * is_noted
    assert not any(each.is_needed for each in faults)


@pytest.fixture
def data_bin(tmp_path):
    tokenizer = ByteLevelBpe(BYTE_CHARACTERS, [], use_fast_engine=False)
    (tmp_path / "text.txt").write_text("first line\n\nsecond line\nthird\n\n")
    vocabulary = Vocabulary([Row(symbol, 1) for symbol in tokenizer.symbols if symbol != str(ord("d"))])
    tools = {"tokenizer": tokenizer, "vocabulary": vocabulary, "destination": tmp_path / "data", "progress": False}
    binarize([tmp_path / "text.txt"], split="train", settings=BinarizeSettings(workers=1), **tools)
    return tmp_path / "data"


@pytest.fixture
def inspected(data_bin, capsys):
    def inspect(*words, code=0):
        """What `roberta inspect` prints, and its exit code."""
        assert main(["inspect", str(data_bin), *words]) == code
        return capsys.readouterr().out

    return inspect


def test_shows_counts(inspected):
    shown = inspected()
    for part in ("train: sound", "2 documents, 5 lines (2 blank)", "2 unknown (7.6923%)"):
        assert part in shown


def test_a_folder_of_data_bins_is_no_data_bin_and_they_are_named(data_bin, capsys):
    """As the folder of a run, or of several languages."""
    assert main(["inspect", str(data_bin.parent)]) == 2
    assert f"a tokenizer of `roberta tokenizer train`, such as {data_bin}." in capsys.readouterr().err


def test_counts_of_train_are_shown_for_the_other_splits_and_one_that_the_manifest_lacks_is_named(data_bin, inspected):
    for end in ("bin", "idx"):
        shutil.copy(data_bin / f"train.{end}", data_bin / f"dev.{end}")
    train, dev = inspected().split("\ndev: sound")
    assert (
        "unigram baseline" in dev
        and "previous-token baseline" in dev
        and "both-neighbors baseline" in dev
        and "baseline" not in train
    )
    assert "not in manifest.json" in dev and "not in manifest.json" not in train
    assert (data_bin / "baselines-dev.json").is_file()
    assert inspected("--split", "dev")


def test_damage_is_exit_code_one(data_bin, inspected):
    content = np.fromfile(data_bin / "train.bin", dtype=np.uint16)
    content[0] = 9999
    content.tofile(data_bin / "train.bin")
    shown = inspected(code=1)
    assert "NOT SOUND" in shown and "9999" in shown


def test_a_folder_of_fairseq_has_no_hashes(data_bin, inspected):
    for name in ("manifest.json", "encoder.json", "vocab.bpe"):
        (data_bin / name).unlink()
    assert "no hashes to check" in inspected()


@pytest.mark.parametrize("names", [["train.idx"], ["train.bin"], ["train.idx", "train.bin"]])
def test_files_that_the_manifest_lists_and_the_folder_lacks_are_found(data_bin, inspected, names):
    for name in names:
        (data_bin / name).unlink()
    shown = inspected(code=1)
    assert "train: NOT SOUND" in shown and f"{names[0]} does not exist" in shown


@pytest.mark.parametrize("change", ["merge", "damage", "deletion", "second kind"])
def test_a_tokenizer_that_is_not_the_one_of_the_data_is_found(data_bin, inspected, change):
    if change == "merge":
        ByteLevelBpe([*BYTE_CHARACTERS, "th"], [("t", "h")]).save(data_bin)
    elif change == "damage":
        (data_bin / "vocab.bpe").write_bytes(b"")
    elif change == "deletion":
        (data_bin / "encoder.json").unlink()
    else:
        (data_bin / "whitespace.json").write_text("{}")
    shown = inspected(code=1)
    assert "fault: " in shown and "train: sound" in shown


def test_user_errors_are_one_line(data_bin, capsys):
    for name in ("train.idx", "train.bin", "manifest.json"):
        (data_bin / name).unlink()
    assert main(["inspect", str(data_bin)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_no_package_is_required_twice():
    tree = ast.parse((REPOSITORY / "setup.py").read_text())
    (names,) = (
        word.value
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        for word in call.keywords
        if word.arg == "install_requires"
    )
    found = [re.split(r"[^\w-]", each.value)[0].replace("_", "-") for each in names.elts]
    assert len(found) > 9 and len(found) == len(set(found))
