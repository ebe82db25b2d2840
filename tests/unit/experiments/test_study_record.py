"""A study's folder remembers its settings: extensions pass, changes are named and refused, or made anew."""

import json

import pytest

from roberta_plugin.experiments.study_record import check_record, differences

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


def test_a_changed_probe_leaves_pretraining_alone(tmp_path):
    check_record(tmp_path, SETTINGS, redo=False)
    paths = with_results(tmp_path)
    check_record(tmp_path, changed("probes", "held-out", passes="3"), redo=True)
    assert [path.exists() for path in paths] == [True, True, False, False, True, True]


def test_differences_are_changes_omissions_and_additions():
    assert differences({"a": "1", "b": "2"}, {"a": "3", "c": "4"}) == ["a 1 is now 3", "b 2 is left out", "c 4 is new"]
