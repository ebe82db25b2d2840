"""A study's steps: what they ask of `sweep`, here and on a cluster; settings and data remembered, changes refused."""

import json
from types import SimpleNamespace

import pytest

from roberta_plugin.data.manifest import file_record, write_manifest
from roberta_plugin.experiments.settings import StudySettings
from roberta_plugin.experiments.studies import study as study_study
from roberta_plugin.experiments.studies.plan import plan_variants
from roberta_plugin.experiments.studies.settings import read_study
from roberta_plugin.experiments.studies.study import (
    PlannedStudy,
    Work,
    check_record,
    contents_of,
    recorded_ranks,
    settings_of,
)
from roberta_plugin.launch.resources import given_settings
from tests.tiny_corpus import write_data_bin
from tests.tiny_study import write_study


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """A call that pretrains and fine-tunes with these settings; what `sweep` was given, and the grid files."""

    def ask(**settings):
        data = write_data_bin(tmp_path / "data")
        slurm = {"partition": "gpu", "time": "8:00:00", "gpus_per_node": "h100:8"}
        slurm |= {"env": {"MY_TOKEN": "hunter2"}}
        monkeypatch.setenv("MY_TOKEN", "")
        base = {"cpu": "false"}
        path = write_study(tmp_path / "study.yaml", data=data, variants={"a": None}, base=base, slurm=slurm)
        study = read_study(path)
        planned = PlannedStudy(study=study, plans=plan_variants(study, num_ranks=8), num_ranks=8)
        calls = []

        def sweep(given, *, grid, **_):
            written = json.loads(given.grid.read_text())
            assert written.get("slurm") == (grid.slurm and given_settings(grid.slurm))
            calls.append((given, written))
            return SimpleNamespace(failures={"b": {"reason": "out of memory"}})

        monkeypatch.setattr(study_study, "sweep", sweep)
        given = StudySettings(study=path, output_dir=tmp_path, parallel=3, retries=2, **settings)
        work = Work(given, planned, {}, say=print)
        work.pretrain()
        work._sweep(planned.pretraining(), tmp_path / "tuning.json", tmp_path / "runs", {}, name="MNLI", num_gpus=1)
        return work, calls

    return ask


def test_on_a_cluster_runs_are_submitted_with_the_file_s_resources_and_the_command_s_above_them(asked):
    work, ((pretraining, grid), (fine_tuning, tuning)) = asked(slurm={"partition": "long"})
    names = [f"{work.root.name}-pretraining", f"{work.root.name}-MNLI"]  # and not `runs`
    assert [pretraining.job_name, fine_tuning.job_name] == names
    assert pretraining.slurm == {} and pretraining.wait and pretraining.parallel == 3
    assert pretraining.retries == 0 and pretraining.gpus_per_run == 0  # SLURM gives the GPUs, and requeues
    expected = {"partition": "long", "time": "8:00:00", "gpus_per_node": 8, "gpu_type": "h100", "env": ["MY_TOKEN"]}
    assert grid["slurm"] == expected
    assert tuning["slurm"] == {**expected, "gpus_per_node": 1}, "one GPU, of the same type"
    assert list(work.failures.values()) == ["out of memory", "out of memory"]


def test_a_report_alone_asks_for_no_sweep_and_writes_no_grid(asked, tmp_path):
    work, calls = asked(report_only=True)
    assert not calls and not work.failures
    assert not (tmp_path / "pretraining.json").exists()


def test_a_value_that_is_not_finite_is_a_failure_and_not_a_value(asked, tmp_path, monkeypatch):
    """A diverged model: neither tests nor plots can use its perplexity."""
    work, _ = asked()
    probe = work.study.probes[0]
    for run, found in zip(work.runs, (None, 20.0), strict=True):
        save(run)
        monkeypatch.setattr(study_study, "held_out", lambda *_: "text")
        score = {"value": found, "accuracy": 1.0, "num_predicted": 9}
        monkeypatch.setattr(study_study, "perplexity_of", lambda *_, score=score, **__: score)
        work.measure(probe)
    work.failures.clear()
    work.values.clear()
    monkeypatch.setattr(study_study, "perplexity_of", None)  # not asked again
    work.measure(probe)
    assert {seed: found["value"] for seed, found in work.values["held-out"]["a"].items()} == {"2": 20.0}
    (reason,) = work.failures.items()
    assert reason == ("held-out: a, seed 1", "the value is not a finite number: the model has diverged")
    text = work.report().report
    assert "| a | 20.0 (20.0 to 20.0), n = 1 |" in text and "the model has diverged" in text
    json.loads((tmp_path / "results.json").read_text(), parse_constant=pytest.fail)


def test_values_outlive_the_checkpoints_that_they_were_measured_with(asked, monkeypatch):
    """Checkpoints of finished studies are deleted to save room."""
    work, _ = asked(report_only=True)
    first, second = work.runs
    save(first)
    save(second)
    path = work.root / "perplexity" / "held-out" / "a" / "seed-1.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"value": 20.0}))
    for run in work.runs:
        run.checkpoint().unlink()
    work.measure(work.study.probes[0])
    assert work.values == {"held-out": {"a": {"1": {"value": 20.0}}}}
    ((folder, reason),) = work.failures.items()
    assert folder == str(second.path) and "delete" in reason and "result.json" in reason


def save(run):
    """A finished pretraining, whose log says that its loss became nan."""
    (run.path / "checkpoints").mkdir(parents=True)
    (run.path / "checkpoints" / "checkpoint_last.pt").write_bytes(b"weights")
    (run.path / "result.json").write_text(json.dumps({"value": 1.0, "num_updates": 20}))
    (run.path / "log.txt").write_text(
        '| train_inner | {"num_updates": "10", "loss": "9.1", "wpb": "100", "wps": "50"}\n'
        '| train_inner | {"num_updates": "20", "loss": "nan", "wpb": "100", "wps": "50"}\n'
    )


def test_here_runs_are_not_submitted(asked):
    _, ((pretraining, grid), (_, tuning)) = asked(gpus_per_run=1)
    assert pretraining.slurm is None and not pretraining.wait
    assert (pretraining.retries, pretraining.gpus_per_run, pretraining.keep) == (2, 1, "weights")
    assert "slurm" not in grid and "slurm" not in tuning


SETTINGS = {
    "variants": {"static": {"lr": "1", "num-static-masks": "10"}, "dynamic": {"lr": "1"}},
    "probes": {"held-out": {"kind": "perplexity", "passes": "1"}},
}


def with_results(root):
    """Files of finished parts, as a study leaves them."""
    paths = [
        root / "pretraining" / "variant-static" / "seed-1" / "result.json",
        root / "pretraining" / "variant-dynamic" / "seed-1" / "result.json",
        root / "perplexity" / "held-out" / "static" / "seed-1.json",
        root / "perplexity" / "held-out" / "dynamic" / "seed-1.json",
        root / "fine-tuning" / "task" / "runs" / "model-static-seed-1_lr-1" / "seed-1" / "result.json",
        root / "fine-tuning" / "task" / "results" / "static" / "seed-1" / "evaluation_valid.json",
    ]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    return paths


def changed(kind, name, **settings):
    copy = json.loads(json.dumps(SETTINGS))
    copy[kind].setdefault(name, {}).update(settings)
    return copy


def test_the_same_settings_and_new_parts_pass(tmp_path):
    paths = with_results(tmp_path)
    assert check_record(tmp_path, SETTINGS, redo=False) == []
    assert check_record(tmp_path, SETTINGS, redo=False) == []
    assert check_record(tmp_path, changed("variants", "third", lr="2"), redo=False) == []
    assert all(path.exists() for path in paths)


def test_a_change_is_named_and_refused(tmp_path):
    check_record(tmp_path, SETTINGS, redo=False)
    paths = with_results(tmp_path)
    with pytest.raises(ValueError, match=r"variant static: lr was 1 and is 2 now.*--redo-changed"):
        check_record(tmp_path, changed("variants", "static", lr="2"), redo=False)
    with pytest.raises(ValueError, match="probe held-out: passes was 1 and is 3 now"):
        check_record(tmp_path, changed("probes", "held-out", passes="3"), redo=False)
    assert all(path.exists() for path in paths)
    assert check_record(tmp_path, SETTINGS, redo=False) == [], "the refused settings were recorded"


def test_what_has_changed_is_deleted_with_what_depends_on_it_if_told(tmp_path):
    check_record(tmp_path, SETTINGS, redo=False)
    paths = with_results(tmp_path)
    assert len(check_record(tmp_path, changed("variants", "static", lr="2"), redo=True)) == 4
    assert [path.exists() for path in paths] == [False, True, False, True, False, False]


def test_another_number_of_gpus_is_named_and_a_report_is_made_for_the_recorded_one(tmp_path):
    """With max-update in the file, no option of fairseq-train would show that an update has other tokens."""
    ranks = {"ranks": {"static": {"processes": "8"}}}
    assert recorded_ranks(tmp_path) is None
    check_record(tmp_path, SETTINGS, redo=False)  # as an earlier version did, which did not record it
    assert recorded_ranks(tmp_path) is None
    check_record(tmp_path, {**SETTINGS, **ranks}, redo=False)
    assert recorded_ranks(tmp_path) == 8
    paths = with_results(tmp_path)
    fewer = {**SETTINGS, "ranks": {"static": {"processes": "2"}}}
    with pytest.raises(ValueError, match="Changed since: pretraining of static: processes was 8 and is 2 now"):
        check_record(tmp_path, fewer, redo=False)
    check_record(tmp_path, fewer, redo=True)
    assert [path.exists() for path in paths] == [False, True, False, True, False, False]


def test_a_changed_probe_leaves_pretraining_alone(tmp_path):
    check_record(tmp_path, SETTINGS, redo=False)
    paths = with_results(tmp_path)
    check_record(tmp_path, changed("probes", "held-out", passes="3"), redo=True)
    assert [path.exists() for path in paths] == [True, True, False, False, True, True]


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


def test_data_that_was_binarized_again_from_another_text_is_named_and_refused(tmp_path):
    data = binarized(tmp_path / "data")
    study = read_study(write_study(tmp_path / "study.yaml", data=data, variants={"a": None, "b": {"lr": "2e-3"}}))

    def settings():
        return settings_of(study, plan_variants(study, num_ranks=1))

    check_record(tmp_path, settings(), redo=False)
    binarized(data)  # the same text
    assert check_record(tmp_path, settings(), redo=False) == []
    binarized(data, seed=1)
    with pytest.raises(
        ValueError, match=r"variant a: \S+/train\.bin was sha256 \w{16} and is sha256 \w{16} now.*variant b: "
    ):
        check_record(tmp_path, settings(), redo=False)
    with pytest.raises(ValueError, match=r"other settings or data.*probe held-out: \S+/valid\.bin was sha256"):
        check_record(tmp_path, settings(), only_read=True)
    assert check_record(tmp_path, settings(), redo=True) == [], "nothing was trained"
    check_record(tmp_path, settings(), only_read=True)


def test_data_without_a_manifest_is_known_by_its_size(tmp_path):
    data = binarized(tmp_path / "data", has_manifest=False)
    size = (data / "train.bin").stat().st_size
    assert contents_of(data, "train")[str(data / "train.bin")] == f"{size:,} bytes"


def test_a_report_needs_a_study_that_was_begun_and_writes_nothing(tmp_path):
    with pytest.raises(FileNotFoundError, match="no study was begun there"):
        check_record(tmp_path, SETTINGS, only_read=True)
    check_record(tmp_path, SETTINGS, redo=False)
    before = (tmp_path / "study.json").read_bytes()
    check_record(tmp_path, changed("variants", "third", lr="2"), only_read=True)
    with pytest.raises(ValueError, match="variant static: lr was 1 and is 2 now"):
        check_record(tmp_path, changed("variants", "static", lr="2"), only_read=True)
    assert (tmp_path / "study.json").read_bytes() == before
