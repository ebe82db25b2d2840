"""A study's folder remembers its settings and its data: extensions pass, changes are refused, or made anew."""

import json

import pytest

from roberta_plugin.data.manifest import file_record, write_manifest
from roberta_plugin.experiments.studies.plan import plan_variants
from roberta_plugin.experiments.studies.record import (
    check_record,
    contents_of,
    differences,
    recorded_ranks,
    settings_of,
)
from roberta_plugin.experiments.studies.settings import read_study
from tests.tiny_corpus import write_data_bin
from tests.tiny_study import write_study

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
    with pytest.raises(ValueError, match=r"variant static: lr 1 is now 2.*--redo-changed"):
        check_record(tmp_path, changed("variants", "static", lr="2"), redo=False)
    with pytest.raises(ValueError, match="probe held-out: passes 1 is now 3"):
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
    with pytest.raises(ValueError, match="Changed since: pretraining of static: processes 8 is now 2"):
        check_record(tmp_path, fewer, redo=False)
    check_record(tmp_path, fewer, redo=True)
    assert [path.exists() for path in paths] == [False, True, False, True, False, False]


def test_a_changed_probe_leaves_pretraining_alone(tmp_path):
    check_record(tmp_path, SETTINGS, redo=False)
    paths = with_results(tmp_path)
    check_record(tmp_path, changed("probes", "held-out", passes="3"), redo=True)
    assert [path.exists() for path in paths] == [True, True, False, False, True, True]


def test_differences_are_changes_omissions_and_additions():
    assert differences({"a": "1", "b": "2"}, {"a": "3", "c": "4"}) == ["a 1 is now 3", "b 2 is left out", "c 4 is new"]


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
    with pytest.raises(ValueError, match=r"variant a: \S+/train\.bin sha256 \w{16} is now sha256 \w{16}.*variant b: "):
        check_record(tmp_path, settings(), redo=False)
    with pytest.raises(ValueError, match=r"other settings or data.*probe held-out: \S+/valid\.bin sha256"):
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
    with pytest.raises(ValueError, match="variant static: lr 1 is now 2"):
        check_record(tmp_path, changed("variants", "static", lr="2"), only_read=True)
    assert (tmp_path / "study.json").read_bytes() == before
