"""Probes: what is refused before anything runs, and the results of a fine-tuning: of which cell, what is kept."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from roberta_plugin.data.mmap_tokens import MmapTokensWriter
from roberta_plugin.experiments import finetune as procedure
from roberta_plugin.experiments.finetuning_grid import tuning_grid
from roberta_plugin.experiments.finetuning_plan import FinetunePlan
from roberta_plugin.experiments.settings import StudySettings, TuningSettings
from roberta_plugin.experiments.studies import probes as study_probes
from roberta_plugin.experiments.studies.plan import check_data, plan_study
from roberta_plugin.experiments.studies.probes import (
    Model,
    check_probes,
    perplexity_of,
    plan_tuning,
    tuned_value,
    with_models,
)
from roberta_plugin.experiments.studies.settings import read_study
from tests.tiny_benchmarks import write_prepared, write_tokenizer
from tests.tiny_corpus import write_data_bin
from tests.tiny_study import write_study


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data_bin(tmp_path_factory.mktemp("checks") / "data")


def check(tmp_path, data, **content):
    study = read_study(write_study(tmp_path / "study.yaml", data=data, **{"variants": {"a": None}, **content}))
    planned = plan_study(study, num_ranks=1)
    check_data(planned)
    check_probes(planned)


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


def test_document_formats_need_documents(tmp_path, data):
    without = rewrite(data, tmp_path / "flat", keep_blank=False)
    check(tmp_path, without)
    variants = {"by-document": {"sample-break-mode": "complete_doc"}}
    with pytest.raises(
        ValueError,
        match=r"the variant by-document: --sample-break-mode complete_doc needs documents separated by blank lines",
    ):
        check(tmp_path, without, variants=variants)


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
    with pytest.raises(ValueError, match="the data of a and b have different vocabularies"):
        check(tmp_path, data, variants={"a": None, "b": {"data": str(other)}})
    with pytest.raises(ValueError, match=r"probes, ppl: .*dict\.txt is not the dict\.txt of the pretraining data"):
        check(tmp_path, data, probes={"ppl": {"kind": "perplexity", "data": str(other)}})


@pytest.mark.parametrize(
    ("probe", "error", "message"),
    [
        ({"kind": "perplexity", "split": "test"}, FileNotFoundError, r"test\.idx does not exist"),
        ({"kind": "perplexity", "tokens-per-sample": "128"}, ValueError, "is 128, and the variant a has 64 positions"),
        (
            {"kind": "fine-tuning", "raw": "none"},
            FileNotFoundError,
            "probes, probe: none does not exist: give the folder of the official files as raw",
        ),
        (
            {"kind": "fine-tuning", "raw": "."},
            FileNotFoundError,
            r"study\.yaml, line \d+: probes, probe: \. holds no train\.tsv",
        ),
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
    with pytest.raises(FileNotFoundError, match="nowhere does not exist: make it with `roberta binarize"):
        check(tmp_path, data, base={"data": "nowhere"})


def test_what_a_probe_cannot_be_trained_by_is_refused_before_there_is_a_model(tmp_path, data, monkeypatch):
    prepared = write_prepared(tmp_path / "set")
    monkeypatch.setattr(study_probes, "prepared_folder", lambda tuning, folder: prepared)
    path, settings = tmp_path / "study.yaml", StudySettings(study=tmp_path / "study.yaml", output_dir=tmp_path)

    def plan(**more):
        keys = {"task": "RTE", "raw": str(tmp_path), "tokenizer": str(data), "max-length": "30", **more}
        write_study(path, data=data, variants={"a": None}, probes={"mine": {"kind": "fine-tuning", **keys}})
        planned = plan_study(read_study(path), num_ranks=1)
        return plan_tuning(planned.study.probes[0], planned, settings, prepared.folder)

    assert len(plan(grid={"batch": ["8", "64"]}).grid.runs) == 3 * 2 * 5, "any batch, as with --only"
    for changes, message in (
        ({"train": {"best-checkpoint-metric": "bleu"}}, "train, best-checkpoint-metric bleu: RTE is not validated by"),
        ({"train": {"no-such-option": "1"}}, "setting .*: fairseq-train would refuse these options: --no-such-option"),
        ({"train": {"encoder-layers": "7"}}, "train, encoder-layers=7: the architecture is that of the pretrained"),
        ({"grid": {"batch": "x"}}, "grid, batch=x: a batch is a whole number"),
        ({"grid": {"lr": "x"}}, "setting .*: fairseq-train would refuse .* --lr"),  # the pretraining has one, too
    ):
        with pytest.raises(ValueError, match=rf"probes, mine: {message}") as refused:
            plan(**changes)
        (part,) = changes.values()
        lines = path.read_text().splitlines()
        line = next(n for n in range(lines.index("probes:"), len(lines)) if lines[n].startswith(f"      {min(part)}:"))
        assert str(refused.value).startswith(f"{path}, line {line + 1}: probes, mine: ")


@pytest.fixture
def tuning(tmp_path):
    settings = TuningSettings(
        task="RTE", output_dir=tmp_path, seeds=("1", "2"), only={"lr": "1e-4,1e-3,1e-2", "batch": "16"}
    )
    prepared = write_prepared(tmp_path / "data")
    grid = tuning_grid(settings, prepared, None, path=tmp_path / "study.yaml", num_gpus=0)
    grid = replace(grid, axes={"model": {"any": {}}, **grid.axes})
    return FinetunePlan(settings=settings, prepared=prepared, grid=grid, gpus_per_run=0)


def test_of_a_damaged_model_it_is_said_how_the_study_makes_it_again(tmp_path, tuning):
    run = tmp_path / "variant-a" / "seed-1"
    (run / "checkpoints").mkdir(parents=True)
    model = Model(variant="a", seed="1", checkpoint=run / "checkpoints" / "checkpoint_last.pt")
    model.checkpoint.write_bytes(b"PK\x03\x04 cut off")
    ways = (
        lambda: perplexity_of(model.checkpoint, None, device="cpu"),
        lambda: with_models(tuning, [model]),
    )
    for way in ways:
        with pytest.raises(ValueError, match=rf"damaged.* Or delete {run} and start the study again"):
            way()


def test_a_learning_rate_at_which_a_run_diverges_costs_its_cell_and_not_the_model_s_value(
    tmp_path, tuning, monkeypatch
):
    models = [Model(variant=name, seed="1", checkpoint=tmp_path / "model.pt") for name in ("a", "another")]
    monkeypatch.setattr(study_probes, "starting_model", lambda _: SimpleNamespace(train_options=lambda length: {}))
    monkeypatch.setattr(study_probes, "check_model", lambda *_: None)
    plan = with_models(tuning, models)
    folders = plan.runs[:6]
    assert {run.run.settings["model"] for run in folders} == {"a-seed-1"}
    stored = []

    def evaluate(settings):
        members = [{"metrics": {"accuracy": 60.0 + number}} for number in range(len(settings.checkpoints))]
        return [SimpleNamespace(members=members)]

    monkeypatch.setattr(study_probes, "evaluate", evaluate)
    monkeypatch.setattr(procedure, "store_outputs", lambda settings: stored.extend(settings.checkpoints))

    def result():
        return tuned_value(plan, models[0], tmp_path / "results")

    for number, run in enumerate(folders[:-1]):
        assert result() is None, "runs are left to do"
        (run.path / "checkpoints").mkdir(parents=True)
        (run.path / "checkpoints" / "checkpoint_best.pt").write_bytes(b"weights")
        (run.path / "result.json").write_text(json.dumps({"value": 50 + number}))
    diverged = folders[-1]
    (diverged.path / "checkpoints").mkdir(parents=True)
    (diverged.path / "checkpoints" / "checkpoint_last.pt").write_bytes(b"to resume from")
    assert result() is None
    (diverged.path / "failure.json").write_text(json.dumps({"reason": "nan", "attempts": 1}))

    found = result()
    assert found["cell"] == {"lr": "1e-3", "batch": "16"}, (
        "of the other cell with a result, 54 is the median of one seed"
    )
    assert found["seeds"] == {"1": 60.0, "2": 61.0} and found["value"] == 60.5
    assert len(stored) == 5
    assert [run.has_weights() for run in folders[:-1]] == [False] * 5
    assert (diverged.path / "checkpoints" / "checkpoint_last.pt").exists(), "a run that is not done resumes from it"
