"""A study's steps: what they ask of `sweep`, here and on a cluster; values in files; changed settings and data refused."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from roberta_plugin.data.manifest import file_record, write_manifest
from roberta_plugin.experiments.settings import StudySettings
from roberta_plugin.experiments.studies import probes
from roberta_plugin.experiments.studies import study as study_study
from roberta_plugin.experiments.studies.plan import plan_study
from roberta_plugin.experiments.studies.settings import TuningProbe, read_study
from roberta_plugin.experiments.studies.study import (
    NAME,
    Work,
    made_from,
    pretraining_runs,
    read_value,
    report_on,
    run_study,
    split_contents,
    write_value,
)
from roberta_plugin.experiments.sweeps import sweep
from roberta_plugin.json_files import write_json
from roberta_plugin.launch.resources import given_settings
from tests.tiny_benchmarks import write_prepared
from tests.tiny_corpus import write_data_bin
from tests.tiny_study import write_study


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """The work of a study with these settings, pretrained and fine-tuned; what `sweep` was given, and the grid files."""

    def ask(**settings):
        data = write_data_bin(tmp_path / "data")
        slurm = {"partition": "gpu", "time": "8:00:00", "gpus_per_node": "h100:8"}
        slurm |= {"env": {"MY_TOKEN": "hunter2"}}
        monkeypatch.setenv("MY_TOKEN", "")
        base = {"cpu": "false"}
        path = write_study(tmp_path / "study.yaml", data=data, variants={"a": None}, base=base, slurm=slurm)
        planned = plan_study(read_study(path), num_ranks=8)
        calls = []

        def train_grid(grid, given, **_):
            written = json.loads(given.grid.read_text())
            assert written.get("slurm") == (grid.slurm and given_settings(grid.slurm))
            calls.append((given, written))
            given.output_dir.mkdir()
            write_json(given.output_dir / "report.json", {"failures": {"b": {"reason": "out of memory"}}})

        monkeypatch.setattr(study_study, "train_grid", train_grid)
        monkeypatch.setattr(sweep, "train_grid", train_grid)
        given = StudySettings(
            study=path, output_dir=tmp_path, parallel=3, retries=0 if settings.get("slurm") else 2, **settings
        )
        work = Work(given, planned, print)
        work.pretrain()
        probe = TuningProbe(name="MNLI", task="RTE", raw=tmp_path, tokenizer=tmp_path, max_length=16)
        with monkeypatch.context() as patch:
            patch.setattr(probes, "prepared_folder", lambda data, folder: write_prepared(folder))
            patch.setattr(probes, "starting_model", lambda _: SimpleNamespace(train_options=lambda length: {}))
            patch.setattr(probes, "check_model", lambda *_: None)
            patch.setattr(probes, "tuned_value", lambda *_: None)
            patch.setattr(Work, "models", lambda self: [probes.Model(variant="a", seed="1", checkpoint=path)])
            work.tune(probe, probes.plan_tuning(probe, planned, given, tmp_path / "fine-tuning" / "MNLI" / "data"))
        return work, calls

    return ask


def test_on_a_cluster_runs_are_submitted_with_the_file_s_resources_and_the_command_s_above_them(asked):
    work, ((pretraining, grid), (fine_tuning, tuning)) = asked(slurm={"partition": "long"})
    names = [f"{work.root.name}-pretraining", f"{work.root.name}-MNLI"]  # and not `runs`
    assert [pretraining.job_name, fine_tuning.job_name] == names
    assert pretraining.slurm == {} and pretraining.wait and pretraining.parallel == 3
    assert pretraining.after is None and fine_tuning.after.keywords["splits"] == ["valid"]
    assert pretraining.retries == 0 and pretraining.gpus_per_run == 0  # SLURM gives the GPUs, and requeues
    expected = {"partition": "long", "time": "8:00:00", "gpus_per_node": 8, "gpu_type": "h100", "env": ["MY_TOKEN"]}
    assert grid["slurm"] == expected
    assert tuning["slurm"] == {**expected, "gpus_per_node": 1}, "one GPU, of the same type"


def test_here_runs_are_not_submitted(asked):
    _, ((pretraining, grid), (_, tuning)) = asked(gpus_per_run=1)
    assert pretraining.slurm is None and not pretraining.wait
    assert (pretraining.retries, pretraining.gpus_per_run, pretraining.keep) == (2, 1, "weights")
    assert "slurm" not in grid and "slurm" not in tuning


def test_values_are_measured_once_outlive_their_checkpoints_and_are_none_of_a_diverged_model(
    asked, tmp_path, monkeypatch
):
    """Neither tests nor plots can use the perplexity of a diverged model; checkpoints are deleted to save room."""
    work, _ = asked()
    (probe,) = work.planned.study.probes
    runs = pretraining_runs(work.planned, tmp_path)
    found = iter([None, 20.0])
    monkeypatch.setattr(probes, "held_out", lambda *_: "text")
    monkeypatch.setattr(probes, "perplexity_of", lambda *_, **__: {"value": next(found), "num_predicted": 9})
    for run in runs:
        save(run)
    work.measure(probe, device="cpu")
    work.measure(probe, device="cpu")  # both are there
    for run in runs:
        run.chosen_checkpoint().unlink()
    outcome = report_on(work.planned, tmp_path, {})
    assert outcome.results["values"] == {"held-out": {"a": {"2": {"value": 20.0, "num_predicted": 9}}}}
    assert outcome.failures == {
        str(tmp_path / "pretraining" / "b"): "out of memory",
        "held-out: a, seed 1": "the value is not a finite number: the model has diverged",
    }
    assert "| a | 20.0 (20.0 to 20.0), n = 1 |" in outcome.report
    json.loads((tmp_path / "results.json").read_text(), parse_constant=pytest.fail)
    (tmp_path / "perplexity" / "held-out" / "results" / "a" / "seed-2" / "value.json").unlink()
    reason = report_on(work.planned, tmp_path, {}).failures[str(runs[1].path)]
    assert "not every probe has measured it" in reason and "result.json" in reason


def test_a_value_of_fewer_seeds_of_fine_tuning_is_none(tmp_path):
    """More seeds extend a probe, also where its models are gone."""
    probe = TuningProbe(name="p", task="RTE", raw=tmp_path, tokenizer=tmp_path, max_length=16, seeds=("1", "2"))
    model = probes.Model(variant="a", seed="1", checkpoint=tmp_path / "gone.pt")
    write_value(model, tmp_path, probe, {"value": 60.0, "seeds": {"1": 60.0}})
    assert read_value(model, tmp_path, probe) is None
    assert read_value(model, tmp_path, replace(probe, seeds=("1",))) == {"value": 60.0, "seeds": {"1": 60.0}}


def save(run):
    """A finished pretraining, whose log says that its loss became nan."""
    (run.path / "checkpoints").mkdir(parents=True)
    (run.path / "checkpoints" / "checkpoint_last.pt").write_bytes(b"weights")
    (run.path / "result.json").write_text(json.dumps({"value": 1.0, "num_updates": 20}))
    (run.path / "log.txt").write_text(
        '| train_inner | {"num_updates": "10", "loss": "9.1", "wpb": "100", "wps": "50"}\n'
        '| train_inner | {"num_updates": "20", "loss": "nan", "wpb": "100", "wps": "50"}\n'
    )


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


@pytest.fixture
def again(tmp_path):
    """Asks for the report of a study that was begun, perhaps with other content of its file or other settings."""
    data, root = binarized(tmp_path / "data"), tmp_path / "out"
    root.mkdir()

    def ask(*, probe=None, is_begun=True, num_ranks=1, report_only=True, **content):
        content = {"variants": {"static": {"num-static-masks": "10"}, "dynamic": None}, **content}
        probes = {"held-out": {"kind": "perplexity", **(probe or {})}}
        path = write_study(tmp_path / "study.yaml", data=data, probes=probes, **content)
        if not is_begun:
            planned = plan_study(read_study(path), num_ranks=num_ranks)
            write_json(root / NAME, {"parts": made_from(planned)})
        given = StudySettings(study=path, output_dir=root, report_only=report_only, gpus_per_run=num_ranks)
        return run_study(given).report

    ask(is_begun=False)
    return ask


def test_new_parts_extend_a_study(again, tmp_path):
    before = (tmp_path / "out" / NAME).read_bytes()
    again(variants={"static": {"num-static-masks": "10"}, "third": {"lr": "3e-3"}}, seeds=["1", "2", "3"])
    binarized(tmp_path / "data")  # from the same text
    assert "held-out" in again()
    assert (tmp_path / "out" / NAME).read_bytes() == before, "a report alone writes nothing but itself"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variants": {"static": {"lr": "2"}}}, "variant static: lr was 1e-3 and is 2 now; num-static-masks was 10"),
        ({"probe": {"passes": "3"}}, "probe held-out: passes was 1 and is 3 now"),
        ({"base": {"update-freq": "2"}}, "variant dynamic: update-freq was not given and is 2 now"),
    ],
)
def test_a_change_is_named_and_refused(again, change, message):
    with pytest.raises(ValueError, match=rf"{message}.*Change it back, give what has changed another name, or give an"):
        again(**change)


def test_another_number_of_processes_is_named_and_a_report_is_made_for_the_recorded_one(again, monkeypatch):
    """With max-update in the file, no option of fairseq-train would show that an update has other tokens."""
    content = {"variants": {"a": None}, "base": {"cpu": "false"}}
    again(is_begun=False, num_ranks=8, **content)
    again(**content)
    with pytest.raises(ValueError, match="variant a: processes was 8 and is 2 now"):
        again(num_ranks=2, report_only=False, **content)


def test_data_that_was_binarized_again_from_another_text_is_named_and_refused(again, tmp_path):
    binarized(tmp_path / "data", seed=1)
    with pytest.raises(
        ValueError,
        match=r"other settings or data.*variant dynamic: \S+/train\.bin was sha256 \w{16} and is sha256 \w{16} now.*"
        r"variant static: .*probe held-out: \S+/valid\.bin was sha256",
    ):
        again()


def test_data_without_a_manifest_is_known_by_its_size(tmp_path):
    data = binarized(tmp_path / "data", has_manifest=False)
    size = (data / "train.bin").stat().st_size
    assert split_contents(data, "train")[str(data / "train.bin")] == f"{size:,} bytes"
