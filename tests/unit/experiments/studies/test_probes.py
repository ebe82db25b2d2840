"""What a study is refused for before anything runs."""

import shutil

import numpy as np
import pytest

from roberta_plugin.data.mmap_tokens import MmapTokensWriter
from roberta_plugin.experiments.studies.plan import check_data, plan_variants, structure_of
from roberta_plugin.experiments.studies.probes import check_probes
from roberta_plugin.experiments.studies.settings import read_study
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_corpus import write_data_bin
from tests.tiny_study import write_study


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data_bin(tmp_path_factory.mktemp("checks") / "data")


def check(tmp_path, data, **content):
    study = read_study(write_study(tmp_path / "study.yaml", data=data, **{"variants": {"a": None}, **content}))
    plans = plan_variants(study, num_ranks=1)
    check_data(study, plans)
    check_probes(study, plans)


def rewrite(data, folder, *, keep_blank, lines_per_document=100):
    """A copy of the training split without blank lines, or with one after every so many lines."""
    folder.mkdir()
    for name in ("dict.txt", "valid.bin", "valid.idx"):
        shutil.copy(data / name, folder)
    with MmapTokensWriter(folder / "train", np.dtype("uint16")) as writer:
        for number in range(200):
            line = np.full(12, 10, dtype=np.uint16)
            line[-1] = 2
            writer.write(line, np.array([12]))
            if keep_blank and number % lines_per_document == lines_per_document - 1:
                writer.write(np.array([2], dtype=np.uint16), np.array([1]))
    return folder


def test_documents_are_runs_of_lines_between_blank_ones():
    assert structure_of([5, 7, 1, 4, 1]) == (3, 2)
    assert structure_of([1, 1, 5, 1, 1, 4]) == (2, 2)
    assert structure_of([5, 7]) == (2, 1)


def test_a_study_that_can_work_is_not_refused(tmp_path, data):
    check(tmp_path, data, variants={"a": None, "b": {"sample-break-mode": "complete_doc"}})


def test_document_formats_need_documents(tmp_path, data):
    without = rewrite(data, tmp_path / "flat", keep_blank=False)
    check(tmp_path, without)
    variants = {"by-document": {"sample-break-mode": "complete_doc"}}
    with pytest.raises(ValueError, match=r"by-document has the input format complete_doc, and .*flat has no document"):
        check(tmp_path, without, variants=variants)


def test_pairs_need_sentences(tmp_path, data):
    paragraphs = rewrite(data, tmp_path / "paragraphs", keep_blank=True, lines_per_document=1)
    variants = {"pairs": {"sample-break-mode": "none", "input-format": "sentence-pair"}}
    with pytest.raises(ValueError, match=r"are not split into sentences \(200 lines in 200 documents\)"):
        check(tmp_path, paragraphs, variants=variants)


@pytest.mark.parametrize("sizes", [[9, 8, 7, 1], [9, 1, 8, 1, 7, 1]], ids=["one document", "no sentences"])
def test_pairs_need_documents_and_sentences_to_validate_on(tmp_path, data, sizes):
    """Else each run of the variant would end at its start, while the others train for hours."""
    copy = shutil.copytree(data, tmp_path / "copy")
    with MmapTokensWriter(copy / "valid", np.dtype("uint16")) as writer:
        for size in sizes:
            writer.write(np.array([10] * (size - 1) + [2], dtype=np.uint16), np.array([size]))
    check(tmp_path, copy)
    variants = {"pairs": {"sample-break-mode": "none", "input-format": "segment-pair"}}
    with pytest.raises(
        ValueError, match=r"variant pairs has .* segment-pair, and the split valid of .* has 3 lines in"
    ):
        check(tmp_path, copy, variants=variants)


def test_all_data_must_have_one_vocabulary(tmp_path, data):
    other = shutil.copytree(data, tmp_path / "other")
    text = (other / "dict.txt").read_text().splitlines()
    (other / "dict.txt").write_text("\n".join([text[1], text[0], *text[2:]]) + "\n")
    with pytest.raises(ValueError, match="the data of a and b have different vocabularies"):
        check(tmp_path, data, variants={"a": None, "b": {"data": str(other)}})
    with pytest.raises(ValueError, match=r"probes, ppl: .*dict\.txt is not the dict\.txt of the pretraining data"):
        check(tmp_path, data, probes={"ppl": {"kind": "perplexity", "data": str(other)}})


@pytest.mark.parametrize(
    ("probe", "error", "message"),
    [
        ({"kind": "perplexity", "split": "test"}, FileNotFoundError, r"test\.idx does not exist"),
        ({"kind": "perplexity", "tokens-per-sample": "128"}, ValueError, "is 128, and the variant a has 64 positions"),
        ({"kind": "fine-tuning", "raw": "none"}, FileNotFoundError, "raw, none, does not exist"),
        ({"kind": "fine-tuning", "raw": "."}, FileNotFoundError, r"train\.tsv does not exist"),
    ],
)
def test_probes_that_cannot_work_are_refused(tmp_path, data, probe, error, message):
    if probe["kind"] == "fine-tuning":
        probe = {"task": "SST-2", "tokenizer": str(data), "max-length": "64", **probe}
    with pytest.raises(error, match=message):
        check(tmp_path, data, probes={"probe": probe})


def test_a_fine_tuning_probe_needs_the_vocabulary_of_pretraining(tmp_path, data):
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    folder = tmp_path / "glue" / "SST-2"
    folder.mkdir(parents=True)
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text("sentence\tlabel\ngood\t1\n")
    probe = {"kind": "fine-tuning", "task": "SST-2", "raw": str(folder.parent), "tokenizer": str(tokenizer)}
    with pytest.raises(ValueError, match=r"dict\.txt is not the dict\.txt of the pretraining data"):
        check(tmp_path, data, probes={"SST-2": {**probe, "max-length": "64"}})


def test_blocks_must_fit_the_positions(tmp_path, data):
    with pytest.raises(ValueError, match=r"variant a: --tokens-per-sample \(128\) exceeds the model's 64 positions"):
        check(tmp_path, data, variants={"a": {"tokens-per-sample": "128"}})


def test_missing_data_is_refused(tmp_path, data):
    with pytest.raises(FileNotFoundError, match="nowhere is not there"):
        check(tmp_path, data, base={"data": "nowhere"})
