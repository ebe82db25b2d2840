"""roberta doctor and inspect: what is here, and whether it is whole."""

import ast
import json
import os
import re
import shutil

import numpy as np
import pytest
from packaging.requirements import Requirement

from roberta_plugin.cli import doctor, main
from roberta_plugin.cli.doctor import Finding
from roberta_plugin.data.binarize.pipeline import BinarizeSettings, binarize
from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS, ByteLevelBpe
from roberta_plugin.data.vocabulary import Row, Vocabulary
from tests.conftest import REPOSITORY
from tests.forked_training import run_forked
from tests.tiny_corpus import command, environment


@pytest.mark.parametrize(
    ("asked", "found"), [("no-such-package-anywhere>=2", "missing"), ("numpy>=99", ">=99"), ("numpy>=1", "")]
)
def test_a_package_that_is_missing_or_too_old_comes_with_the_command_that_brings_it(asked, found):
    finding = doctor.check_package(Requirement(asked))
    assert found in finding.found
    assert finding.remedy == (f'pip install "{asked}"' if found else "")


def test_every_requirement_of_this_platform_but_fairseq_is_checked():
    lines = ["ve-fairseq==0.12.3", "numpy>=1", "no-such-package-anywhere", 'torch>=2; python_version > "3"']
    lines += ["no-such-package-a; platform_system == 'Darwin'", "no-such-package-b>=1; extra == 'onnx'"]
    findings = {finding.what: finding for finding in doctor.check_dependencies(lines)}
    assert findings.keys() == {"roberta_plugin", "numpy", "no-such-package-anywhere", "torch"}
    assert [name for name, finding in findings.items() if finding.remedy] == ["no-such-package-anywhere"]
    assert any("extra ==" in line for line in doctor.requirements())
    (finding,) = doctor.check_dependencies([])
    assert "pip install" in finding.remedy, "the plugin itself is not installed"


def test_no_fairseq_two_of_them_and_a_check_that_raises_are_to_be_mended(monkeypatch):
    for installed, words in (((), "missing"), (("fairseq", "ve-fairseq"), "several are installed")):
        monkeypatch.setattr(doctor, "installed_fairseqs", lambda installed=installed: dict.fromkeys(installed, "1.0"))
        finding = doctor.check_fairseq()
        assert words in finding.found and finding.remedy

    def broken():
        raise ImportError("libcudart.so.99 is gone\nand more")

    finding = doctor.guarded("device", broken)
    assert finding.found == "ImportError: libcudart.so.99 is gone" and finding.remedy


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("remedy", ["", "pip install it"])
def test_the_exit_code_says_whether_something_is_to_be_mended(monkeypatch, capsys, as_json, remedy):
    monkeypatch.setattr(doctor, "examine", lambda: iter([Finding("torch", "2.13", ""), Finding("thing", "x", remedy)]))
    assert main(["doctor", *(["--json"] if as_json else [])]) == bool(remedy)
    shown = capsys.readouterr().out
    if as_json:
        report = json.loads(shown)
        assert report["ok"] is not bool(remedy)
        assert [finding["what"] for finding in report["findings"]] == ["torch", "thing"]
    else:
        assert ("Everything the plugin needs works." in shown) is not bool(remedy)
        assert remedy in shown and "ok    torch: 2.13" in shown
        assert ("FAULT thing: x" in shown and "1 to be mended" in shown) is bool(remedy)


def test_transformers_that_cannot_be_imported_is_a_fault_and_the_torchaudio_behind_it_is_named(tmp_path):
    """ve-fairseq brings a CUDA build of torchaudio beside any torch; transformers imports it and fails."""
    pytest.importorskip("transformers")
    (tmp_path / "torchaudio").mkdir()
    (tmp_path / "torchaudio" / "__init__.py").write_text("raise OSError('libc10_cuda.so: no such file')")
    (tmp_path / "torchaudio-2.11.0.dist-info").mkdir()
    (tmp_path / "torchaudio-2.11.0.dist-info" / "METADATA").write_text("Name: torchaudio\nVersion: 2.11.0\n")
    setting = {**environment(), "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}"}
    how = {"cwd": REPOSITORY, "environment": setting, "timeout": 200, "fork_of": "fairseq"}
    done = run_forked([*command("roberta"), "doctor", "--json"], **how)
    assert done.returncode == 1, done.stdout
    found = {finding["what"]: finding for finding in json.loads(done.stdout)["findings"] if finding["remedy"]}
    assert "2.11.0 cannot be imported" in found["torchaudio"]["found"]
    assert "pip uninstall -y torchaudio" in found["torchaudio"]["remedy"]
    assert "cannot be imported" in found["transformers"]["found"]
    assert "torchaudio" in found["transformers"]["remedy"]
    assert found["transformers"]["is_needed"]


@pytest.mark.parametrize(("cuda", "is_noted"), [(None, False), ("13.0", True)])
def test_a_cuda_build_of_torch_without_a_gpu_is_a_note(monkeypatch, cuda, is_noted):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    finding = doctor.check_device()
    assert ("build for CUDA 13.0" in finding.found) is is_noted
    assert ("nvidia-smi" in finding.remedy) is is_noted
    assert not (finding.remedy and finding.is_needed)


def test_commands_of_fairseq_that_are_missing_are_to_be_mended(monkeypatch, tmp_path):
    assert doctor.check_plugin().remedy == ""
    monkeypatch.setattr(doctor.sys, "executable", str(tmp_path / "python"))
    finding = doctor.check_plugin()
    assert finding.found == f"missing in {tmp_path}: fairseq-train, fairseq-validate" and finding.remedy


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
        (data_bin / "character_bpe.json").write_text("{}")
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
