"""A study's steps: what is refused before anything runs, what is asked of sweep and finetune, what is measured when."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from roberta_plugin.data.manifest import file_record, write_manifest
from roberta_plugin.data.mmap_tokens import MmapTokensWriter
from roberta_plugin.extensions.studies import study as module
from roberta_plugin.extensions.studies.study import NAME, Work, run_study
from roberta_plugin.extensions.studies.study_file import StudySettings
from roberta_plugin.json_files import write_json
from tests.tiny_benchmarks import write_prepared, write_tokenizer
from tests.tiny_corpus import write_data_bin
from tests.tiny_study import write_study


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data_bin(tmp_path_factory.mktemp("checks") / "data")


def work_of(tmp_path, data, *, settings=None, **content):
    path = write_study(tmp_path / "study.yaml", data=data, **{"variants": {"a": None}, **content})
    return Work(StudySettings(study=path, output_dir=tmp_path / "out", **(settings or {})), say=print)


def check(tmp_path, data, **content):
    work = work_of(tmp_path, data, **content)
    for probe in work.study.probes:
        work.check_probe(probe)


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


def test_a_study_that_can_work_is_not_refused(tmp_path, data):
    check(tmp_path, data, variants={"a": None, "b": {"sample-break-mode": "complete_doc"}})


def test_pairs_need_sentences(tmp_path, data):
    paragraphs = rewrite(data, tmp_path / "paragraphs", keep_blank=True, lines_per_document=1)
    variants = {"pairs": {"sample-break-mode": "none", "input-format": "sentence-pair"}}
    with pytest.raises(
        ValueError, match=r"the variant pairs: --input-format sentence-pair needs documents of several sentences, one a"
    ):
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
    with pytest.raises(ValueError, match=r"variant pairs: --input-format segment-pair .*copy/valid"):
        check(tmp_path, copy, variants=variants)


def test_all_data_must_have_one_vocabulary(tmp_path, data):
    other = shutil.copytree(data, tmp_path / "other")
    text = (other / "dict.txt").read_text().splitlines()
    (other / "dict.txt").write_text("\n".join([text[1], text[0], *text[2:]]) + "\n")
    with pytest.raises(ValueError, match=r"its vocabulary is not .*other/dict\.txt: use one tokenizer"):
        check(tmp_path, data, variants={"a": None, "b": {"data": str(other)}})
    with pytest.raises(ValueError, match=r"probes, ppl: its vocabulary is not .*data/dict\.txt"):
        check(tmp_path, data, probes={"ppl": {"kind": "perplexity", "data": str(other)}})


@pytest.mark.parametrize(
    ("probe", "error", "message"),
    [
        ({"kind": "perplexity", "split": "test"}, FileNotFoundError, r"test\.idx does not exist"),
        (
            {"kind": "perplexity", "tokens-per-sample": "128"},
            ValueError,
            "a has 64 positions, but sequences have up to 128",
        ),
        ({"kind": "fine-tuning", "raw": "none"}, FileNotFoundError, "raw none does not exist"),
        ({"kind": "fine-tuning", "raw": "."}, FileNotFoundError, r"has no train\.tsv"),
        ({"kind": "fine-tuning"}, ValueError, r"study\.yaml, line \d+: probes, probe: raw is missing"),
    ],
)
def test_probes_that_cannot_work_are_refused(tmp_path, data, probe, error, message):
    if probe["kind"] == "fine-tuning":
        probe = {"task": "SST-2", "tokenizer": str(write_tokenizer(tmp_path / "t")), "max-length": "64", **probe}
    with pytest.raises(error, match=message):
        check(tmp_path, data, probes={"probe": probe})


def test_missing_data_is_refused(tmp_path, data):
    with pytest.raises(FileNotFoundError, match="nowhere does not exist: make it with `roberta binarize"):
        check(tmp_path, data, base={"data": "nowhere"})


def test_what_a_probe_cannot_be_trained_by_is_refused_before_there_is_a_model(tmp_path, data, monkeypatch):
    prepared = write_prepared(tmp_path / "set")
    monkeypatch.setattr(module, "prepared_folder", lambda tuning, folder: prepared)
    path = tmp_path / "study.yaml"
    for changes, message in (
        ({"train": {"best-checkpoint-metric": "bleu"}}, "best-checkpoint-metric bleu: RTE is not validated by"),
        ({"train": {"no-such-option": "1"}}, "fairseq-train would refuse these options: no-such-option"),
        ({"train": {"encoder-layers": "7"}}, "encoder-layers=7: the architecture is the pretrained"),
        ({"grid": {"batch": "x"}}, "batch=x: a batch is a whole number"),
    ):
        keys = {"task": "RTE", "raw": str(tmp_path), "tokenizer": str(data), "max-length": "30", **changes}
        with pytest.raises(ValueError, match=message) as refused:
            check(tmp_path, data, probes={"mine": {"kind": "fine-tuning", **keys}})
        assert str(refused.value).startswith(f"{path}, line ") and "probes, mine" in str(refused.value)


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """What a study asks of sweep and of finetune."""

    def ask(**settings):
        data = write_data_bin(tmp_path / "data")
        slurm = {"partition": "gpu", "time": "8:00:00", "gpus_per_node": "h100:8", "env": {"MY_TOKEN": "hunter2"}}
        monkeypatch.setenv("MY_TOKEN", "")
        monkeypatch.setattr(module, "check_slurm", lambda _: None)
        tuning = {"kind": "fine-tuning", "task": "RTE", "raw": "r", "tokenizer": "t", "max-length": "16"}
        content = {"slurm": slurm, "base": {"cpu": "false"}, "probes": {"MNLI": tuning}}
        settings = {"parallel": 3, "retries": 0 if settings.get("slurm") else 2, **settings}
        work = work_of(tmp_path, data, settings=settings, **content)
        return work, work.pretraining, work.tuning(work.study.probes[0], model=tmp_path / "m.pt")

    return ask


def test_on_a_cluster_runs_are_submitted_with_the_file_s_resources_and_the_command_s_above_them(asked):
    work, pretraining, tuning = asked(slurm={"partition": "long"})
    assert [pretraining.job_name, tuning.job_name] == ["out-pretraining", "out-MNLI"]  # and not `runs`
    assert pretraining.slurm == {} and pretraining.wait and pretraining.parallel == tuning.parallel == 3
    assert pretraining.retries == 0 and pretraining.gpus_per_run == 0  # SLURM gives the GPUs, and requeues
    asked_for = work.grid.slurm
    assert (asked_for.partition, asked_for.gpus_per_node, asked_for.gpu_type) == ("long", 8, "h100")
    assert tuning.slurm == replace(asked_for, gpus_per_node=1), "one GPU, of the same type"
    assert tuning.splits == ("valid",) and {plan.num_ranks for plan in work.plans} == {8}


def test_here_runs_are_not_submitted(asked):
    work, pretraining, tuning = asked(gpus_per_run=1)
    assert pretraining.slurm is tuning.slurm is work.grid.slurm is None and not pretraining.wait
    assert (pretraining.retries, pretraining.gpus_per_run, pretraining.keep) == (2, 1, "weights")
    assert (tuning.retries, tuning.gpus_per_run, tuning.code) == (2, 1, work.root)


def save(run):
    """A finished pretraining."""
    (run.path / "checkpoints").mkdir(parents=True)
    (run.path / "checkpoints" / "checkpoint_last.pt").write_bytes(b"weights")
    (run.path / "result.json").write_text(json.dumps({"value": 1.0, "num_updates": 20}))


def test_values_are_measured_once_outlive_their_checkpoints_and_are_none_of_a_diverged_model(
    tmp_path, data, monkeypatch
):
    """Neither tests nor plots can use the perplexity of a diverged model; checkpoints are deleted to save room."""
    work = work_of(tmp_path, data)
    (probe,) = work.study.probes
    values = iter([None, 20.0, None])
    monkeypatch.setattr(module, "load_trained", lambda *_, **__: (None, None))
    monkeypatch.setattr(module, "evaluate", lambda *_, **__: {"model": {"perplexity": next(values) or float("nan")}})
    for run in [*work.runs, *map(save, work.runs), *work.runs]:
        if run is not None:
            work.measure(probe, run, device="cpu")
    diverged = work.write_report()["failures"]
    for run in work.runs:
        run.chosen_checkpoint().unlink()
        work.measure(probe, run, device="cpu")
    results = work.write_report()
    assert [value["value"] for value in results["values"]["held-out"]["a"].values()] == [20.0]
    assert "the model has diverged" in diverged["held-out: variant-a/seed-1"] and len(diverged) == 1
    assert "| a | 20.0 (20.0 to 20.0), n = 1 |" in (work.root / "report.md").read_text()
    (work.folder(probe, work.runs[1]) / "value.json").unlink()
    work.measure(probe, work.runs[1], device="cpu")
    assert "its checkpoint is gone: delete" in work.write_report()["failures"]["held-out: variant-a/seed-2"]


def test_a_perplexity_of_an_earlier_version_s_masks_is_measured_again(tmp_path, data):
    work = work_of(tmp_path, data)
    (probe,), run = work.study.probes, work.runs[0]
    write_value(work, probe, run, {"value": 20.0, "num_predicted": 9})
    assert work.value(probe, run) is None


def write_value(work, probe, run, value):
    work.folder(probe, run).mkdir(parents=True)
    write_json(work.folder(probe, run) / "value.json", value)


def test_a_value_of_fewer_seeds_of_fine_tuning_is_none(tmp_path, data):
    """More seeds extend a probe. What an earlier version has measured is read."""
    tuning = {"kind": "fine-tuning", "task": "RTE", "raw": "r", "tokenizer": "t", "max-length": "16"}
    found = {"value": 60.0, "seeds": {"1": 60.0}, "cell": {"lr": "1e-5"}, "metric": "accuracy", "medians": {}}
    work = work_of(tmp_path, data, probes={"p": {**tuning, "seeds": ["1", "2"]}})
    write_value(work, work.study.probes[0], work.runs[0], found)
    assert work.value(work.study.probes[0], work.runs[0]) is None
    work = work_of(tmp_path, data, probes={"p": {**tuning, "seeds": ["1"]}})
    assert work.value(work.study.probes[0], work.runs[0]) == found


def test_the_value_of_a_fine_tuning_is_the_median_of_the_best_cell_and_none_while_a_seed_has_failed(
    tmp_path, data, monkeypatch
):
    tuning = {"kind": "fine-tuning", "task": "RTE", "raw": "r", "tokenizer": "t", "max-length": "16"}
    work = work_of(tmp_path, data, probes={"p": {**tuning, "seeds": ["1", "2"]}})
    (probe,), run = work.study.probes, work.runs[0]
    save(run)
    prepared, given = write_prepared(tmp_path / "set"), []

    def finetune(settings, report):
        given.append(settings)
        values = {"1": 61.0, "2": 62.0} if len(given) > 1 else {"1": 61.0}
        members = [{"metrics": {"accuracy": 60.0 + float(seed)}} for seed in values]
        return SimpleNamespace(
            sweep={"cells": [{"name": "bad", "values": {"1": 1.0}}, {"name": "good", "values": values}]},
            best_cell="good",
            evaluations=[SimpleNamespace(members=members)],
            plan=SimpleNamespace(settings=settings, prepared=prepared),
        )

    monkeypatch.setattr(module, "finetune", finetune)
    work.measure(probe, run, device="cpu")
    assert work.value(probe, run) is None and "fine-tunings have failed" in work.failures.pop("p: variant-a/seed-1")
    work.measure(probe, run, device="cpu")
    expected = {"value": 61.5, "seeds": {"1": 61.0, "2": 62.0}, "metric": "accuracy", "cell": "good"}
    assert work.value(probe, run) == expected
    assert given[0].model == run.chosen_checkpoint() and given[0].output_dir == work.folder(probe, run)


def binarized(folder, *, seed=0, has_manifest=True):
    """A data-bin with the entries of manifest.json that a study reads, as `roberta binarize` writes them."""
    write_data_bin(folder, num_documents=20, seed=seed)
    if has_manifest:
        splits = {
            split: {"outputs": {f"{split}.{end}": file_record(folder / f"{split}.{end}") for end in ("bin", "idx")}}
            | {"inputs": [], "rules": {}, "counts": {}}
            for split in ("train", "valid")
        }
        common = {"tokenizer": {"kind": "byte_level_bpe"}, "dict_sha256": file_record(folder / "dict.txt")["sha256"]}
        write_manifest(folder, {**common, "num_symbols": 124}, splits)
    return folder


def begun(work):
    work.root.mkdir(exist_ok=True)
    write_json(work.root / NAME, {"parts": {"study": work.record}})


def test_new_parts_extend_a_study_and_changed_probes_and_processes_are_refused(tmp_path, data):
    begun(work_of(tmp_path, data, base={"cpu": "false"}, settings={"gpus_per_run": 8}))
    more = {"a": {"kind": "perplexity"}, "held-out": {"kind": "perplexity"}}
    common = {"base": {"cpu": "false"}, "seeds": ["1", "2", "3"]}
    work_of(tmp_path, data, variants={"b": None}, probes=more, settings={"gpus_per_run": 8}, **common)
    with pytest.raises(ValueError, match=r"processes was 8 and is 2 now\. Change it back"):
        work_of(tmp_path, data, settings={"gpus_per_run": 2}, **common)
    probes = {"held-out": {"kind": "perplexity", "max-tokens": "9"}}
    with pytest.raises(ValueError, match=r"probe held-out was .*max-tokens 9.* now.*rename the probe"):
        work_of(tmp_path, data, probes=probes, settings={"gpus_per_run": 8}, **common)


@pytest.mark.parametrize("form", ["now", "before"])
def test_data_that_was_binarized_again_from_another_text_is_named_and_refused(tmp_path, form):
    """Also where an earlier version has begun the study."""
    data = binarized(tmp_path / "data")
    work = work_of(tmp_path, data)
    begun(work)
    if form == "before":
        parts = {"variant a": {**work.record, "lr": "1e-3"}, "probe held-out": {"kind": "perplexity", "passes": "1"}}
        write_json(work.root / NAME, {"parts": parts})
    binarized(data)  # from the same text
    work_of(tmp_path, data)
    binarized(data, seed=1)
    with pytest.raises(ValueError, match=r"data: \S+/train\.bin was sha256 \w{16} and is sha256 \w{16} now"):
        work_of(tmp_path, data)


def test_data_without_a_manifest_is_known_by_its_size(tmp_path):
    data = binarized(tmp_path / "data", has_manifest=False)
    size = (data / "train.bin").stat().st_size
    assert work_of(tmp_path, data).record[str(data / "train.bin")] == f"{size:,} bytes"


def test_two_processes_do_not_work_in_one_folder(tmp_path, data):
    work = work_of(tmp_path, data)
    with module.only_process(work.root, "x"), pytest.raises(ValueError, match="Another `roberta study` works in"):
        run_study(StudySettings(study=tmp_path / "study.yaml", output_dir=tmp_path / "out"))
