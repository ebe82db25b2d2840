"""Damaged inputs: the same result, or an error that names the file; never a bare numpy, json or zip error."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from fairseq.tasks import TASK_REGISTRY

from roberta_plugin import cli
from roberta_plugin.data.manifest import file_record, sha256_of_file, write_manifest
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.experiments.sweeps.grid import read_grid
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.launch.recipe import load_recipe
from roberta_plugin.tasks.finetuning import FineTuningConfig
from roberta_plugin.tasks.masked_lm import RobertaMaskedLMTask
from roberta_plugin.tasks.masked_lm_options import RobertaMaskedLMConfig
from tests.conftest import REPOSITORY
from tests.needed_extensions import with_kinds_of_extensions
from tests.refusals import refused
from tests.tiny_benchmarks import write_prepared
from tests.tiny_corpus import write_data_bin
from tests.tiny_tokenizers import train_tokenizer

OTHER_FORMAT = b"\x93NUMPY\x01\x00v\x00{'descr': 'O'}" + b"\xff" * 40
DAMAGES = {
    "truncated": lambda data: data[: len(data) // 2],
    "one byte less": lambda data: data[:-1],
    "flipped": lambda data: bytes(byte ^ (1 << i % 7) if i % 61 == 7 else byte for i, byte in enumerate(data)),
    "zeroed": lambda data: bytes(len(data)),
    "end zeroed": lambda data: data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
    "other format": lambda data: OTHER_FORMAT,
    "other JSON": lambda data: b'{"a": [1, 2]}',
    "JSON list": lambda data: b"[1]\n",
    "empty": lambda data: b"",
}


def damage(path: Path, kind: str) -> None:
    path.write_bytes(DAMAGES[kind](path.read_bytes()))


def outcome(read, *names: str):
    """What `read` returns, or the sentence with which it refuses, which names one of the files."""
    try:
        return read()
    except (ValueError, OSError) as error:
        sentence = str(error)
    assert any(name in sentence for name in names), sentence
    assert not sentence.startswith(("Expecting", "mmap length", "cannot reshape", "No data left"))
    return sentence


def read_all(task, split: str) -> list[list[int]]:
    """Every token that a training would see."""
    task.load_dataset(split, combine=True)
    dataset = task.datasets[split]
    return [dataset.__getitems__([(1, index)])["net_input"]["src_tokens"].tolist() for index in range(len(dataset))]


# Prepared folders

PREPARED_FILES = ["dict.txt", "encoder.json", "vocab.bpe", "prepared.json"]
PREPARED_FILES += [
    f"train.{end}" for end in ("bin", "idx", "jsonl", "first.npy", "label.npy", "weight.npy", "matrix.npy")
]


@pytest.fixture(scope="module")
def sound_set(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared") / "set"
    write_prepared(folder, num_examples=12, num_options=1)
    return folder, train_on_set(folder)


def train_on_set(folder):
    config = FineTuningConfig(data=str(folder), max_positions=40)
    config.seed = 1
    task = TASK_REGISTRY["roberta_sentence_prediction"].setup_task(config)
    tokens = read_all(task, "train")
    split = Prepared.open(folder).split("train")
    return tokens, [values.tolist() for values in split.columns.values()], list(split.records())


def damaged_copy(sound, folder, name, kind):
    shutil.copytree(sound, folder)
    damage(folder / name, kind)
    return folder


def check_inspection(folder, capsys, name, kind, head):
    """`roberta inspect` names the damaged file; the last line end of JSON changes nothing."""
    status = cli.main(["inspect", str(folder)])
    shown = capsys.readouterr()
    if (name, kind) != (head, "one byte less"):
        assert status in (1, 2)
        assert name in shown.out + shown.err


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("name", PREPARED_FILES)
def test_a_damaged_prepared_folder_is_named_in_training_and_inspection(sound_set, tmp_path, capsys, name, kind):
    sound, expected = sound_set
    folder = damaged_copy(sound, tmp_path / "set", name, kind)
    found = outcome(lambda: train_on_set(folder), name)
    assert isinstance(found, str) or found == expected
    check_inspection(folder, capsys, name, kind, "prepared.json")


# Data-bins

DATA_BIN_FILES = ["dict.txt", "manifest.json", "train.bin", "train.idx"]


@pytest.fixture(scope="module")
def sound_bin(tmp_path_factory):
    folder = write_data_bin(tmp_path_factory.mktemp("corpus") / "bin", num_documents=6, valid_documents=2)
    splits = {}
    for split in ("train", "valid"):
        outputs = {f"{split}.{end}": file_record(folder / f"{split}.{end}") for end in ("bin", "idx")}
        splits[split] = {"inputs": [], "rules": {}, "counts": {}, "outputs": outputs}
    common = {"tokenizer": {"kind": "none"}, "made_by": {"roberta_plugin": "0"}, "num_symbols": 124}
    write_manifest(folder, {**common, "dict_sha256": sha256_of_file(folder / "dict.txt")}, splits)
    return folder, train_on_bin(folder)


def train_on_bin(folder):
    config = RobertaMaskedLMConfig(data=str(folder), tokens_per_sample=32)
    config.seed = 1
    return read_all(RobertaMaskedLMTask.setup_task(config), "train")


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("name", DATA_BIN_FILES)
def test_a_damaged_data_bin_is_named_in_training_or_inspection(sound_bin, tmp_path, capsys, name, kind):
    sound, expected = sound_bin
    folder = damaged_copy(sound, tmp_path / "bin", name, kind)
    found = outcome(lambda: train_on_bin(folder), name, *(["train."] if name == "train.idx" else []))
    has_other_tokens = not isinstance(found, str) and found != expected
    # Training does not hash what may be terabytes.
    assert not has_other_tokens or (name, kind) in {("train.bin", kind) for kind in ("flipped", "zeroed", "end zeroed")}
    check_inspection(folder, capsys, name, kind, "manifest.json")


@pytest.mark.parametrize("change", ["five lines less", "two lines exchanged"])
def test_another_dict_is_refused_by_training(sound_bin, tmp_path, change):
    folder = tmp_path / "bin"
    shutil.copytree(sound_bin[0], folder)
    lines = (folder / "dict.txt").read_text().splitlines()
    if change == "five lines less":
        lines, words = lines[:-5], "it has 115 lines, that one had 120"
    else:
        lines[3], lines[4], words = lines[4], lines[3], "its lines differ"
    (folder / "dict.txt").write_text("\n".join(lines) + "\n")
    made = "dict.txt is not the one that manifest.json says the data were made with"
    refused(f"{made}: .*{words}", train_on_bin, folder)


def test_a_size_that_does_not_fit_the_bin_is_refused(sound_bin, tmp_path):
    folder = tmp_path / "bin"
    shutil.copytree(sound_bin[0], folder)
    index = np.memmap(folder / "train.idx", dtype=np.uint8, mode="r+")
    index[26 + 4 * 3] ^= 1  # the size of item 3
    refused(r"train\.idx lists .* tokens, but .*train\.bin has", train_on_bin, folder)


# Vocabularies and tokenizers

TEXT = "the cat sat on the mat, and the other cats sat there with 12 hats of the mad hatter\n" * 40
VOCAB_SIZES = with_kinds_of_extensions({"byte_level_bpe": 300, "sentencepiece": 60}, 60)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    root = tmp_path_factory.mktemp("tokenizers")
    (root / "text.txt").write_text(TEXT)
    for kind, size in VOCAB_SIZES.items():
        train_tokenizer(kind, [root / "text.txt"], vocab_size=size, folder=root / kind)
    return root


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("tokenizer", VOCAB_SIZES)
def test_a_damaged_tokenizer_is_named(tokenizers, tmp_path, tokenizer, kind):
    names = [path.name for path in sorted((tokenizers / tokenizer).iterdir())]
    assert len(names) >= 2
    expected = load_tokenizer(tokenizers / tokenizer).encode("the cat sat")
    refused = 0
    for name in names:
        folder = damaged_copy(tokenizers / tokenizer, tmp_path / name, name, kind)
        if name == "dict.txt":
            found = outcome(lambda folder=folder: len(Vocabulary.load(folder / "dict.txt")), name)
        else:
            found = outcome(lambda folder=folder: load_tokenizer(folder).encode("the cat sat"), str(folder))
            assert isinstance(found, str) or found == expected or kind in ("flipped", "truncated", "end zeroed"), name
        refused += isinstance(found, str)
    assert refused or kind == "one byte less"


# YAML


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("name", ["sweep_demo.yaml", "pretrain.yaml"])
def test_a_damaged_yaml_is_named(tmp_path, name, kind):
    path = tmp_path / name
    shutil.copy(REPOSITORY / "slurm" / name, path)
    damage(path, kind)
    if name.startswith("sweep"):
        outcome(lambda: read_grid(path), name)
    else:
        outcome(lambda: load_recipe(path, flags={"output_dir": str(tmp_path / "run")}), name)
