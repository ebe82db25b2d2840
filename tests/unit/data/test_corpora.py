"""A folder of corpora: which files are whose, and what is refused."""

import re

import pytest

from roberta_plugin.data.corpora import find_corpora, smoothed_shares
from roberta_plugin.data.text_inputs import FAIRSEQ_RULES
from roberta_plugin.data.text_inputs_files import find_inputs
from roberta_plugin.data.tokenizers.training import TextSample
from tests.refusals import refused


def write(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a line\n")
    return folder


def test_files_belong_to_the_split_that_their_names_begin_with(tmp_path):
    write(tmp_path, "sw/train.01.txt", "sw/train.00.txt", "en/train.txt", "en/valid.txt", "en/README", "en/trainer.txt")
    write(tmp_path, "en/test.jsonl.gz", ".cache/x")
    assert find_corpora(tmp_path) == {
        "en": {
            "train": [f"{tmp_path}/en/train.txt"],
            "valid": [f"{tmp_path}/en/valid.txt"],
            "test": [f"{tmp_path}/en/test.jsonl.gz"],
        },
        "sw": {"train": [f"{tmp_path}/sw/train.00.txt", f"{tmp_path}/sw/train.01.txt"]},
    }


def test_backups_of_editors_are_no_text(tmp_path):
    write(tmp_path, "en/train.txt", "en/train.txt~", "en/train.txt.bak", "en/train.txt.orig", "en/train.txt.swp")
    assert find_corpora(tmp_path) == {"en": {"train": [f"{tmp_path}/en/train.txt"]}}
    text = write(tmp_path, "sw/train.txt~")
    refused(r"sw has no training text", find_corpora, text, error=FileNotFoundError)


def test_what_is_not_a_folder_of_corpora_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (write(tmp_path / "d", "en/train.txt") / "zz").symlink_to(tmp_path / "d" / "en")
    without = write(tmp_path / "b", "en/train.txt", "yo/valid.txt")
    for folder, message in (
        (tmp_path / "nothing", r"--corpora .*nothing is not a folder"),
        (tmp_path / "empty", r"has no folders.*train\.txt"),
        (without, r"b/yo has no training text.*move that folder away"),
    ):
        refused(message, find_corpora, folder, error=FileNotFoundError)
    refused("EN and en are one corpus: remove one", find_corpora, write(tmp_path / "c", "EN/train.txt", "en/train.txt"))
    refused("en and zz are one corpus", find_corpora, tmp_path / "d")
    for number, name in enumerate(("a,b", "a:b", "a@3", "a b")):
        named = write(tmp_path / f"named{number}", f"{name}/train.txt")
        refused(f"the name '{name}' has white space or one of , : @.*rename", find_corpora, named)


def test_shares_are_powers_of_the_sizes():
    assert smoothed_shares([90, 10], 1.0) == [0.9, 0.1]
    assert smoothed_shares([90, 10], 0.5) == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("max_bytes", [None, 2**20])
def test_a_sample_has_the_smoothed_share_of_each_corpus(tmp_path, max_bytes):
    """The small corpus is repeated, the large one thinned out."""
    sizes = {"a": 1_600_000, "b": 100_000}
    for name, size in sizes.items():
        (tmp_path / f"{name}.txt").write_text(f"{name * 9}\n" * (size // 10))
    groups = [find_inputs([tmp_path / f"{name}.txt"]) for name in sizes]
    sources = [source for group in groups for source in group]
    sample = TextSample(sources, max_bytes=max_bytes, rules=FAIRSEQ_RULES, groups=groups, alpha=0.5)
    text = "".join(line for lines in sample.lines() for line in lines)
    assert sample.group_shares == pytest.approx([0.8, 0.2])
    assert sample.group_bytes == list(sizes.values())
    shares = [len(re.findall(name, text)) / len(text) for name in sizes]
    assert shares == pytest.approx([0.8, 0.2], abs=0.05)
    assert len(text) == pytest.approx(0.9 * (max_bytes or 1_700_000), rel=0.05)
