"""Which checkpoint is the result of a run, by its record; also in folders of earlier versions."""

import json

import pytest

from roberta_plugin.conversion.model_files import find_checkpoint, finetuning_folder
from roberta_plugin.runs import FILES, RunFiles

BOTH = tuple(FILES.values())


def run_folder(path, *, record=None, result=None, names=BOTH):
    (path / "checkpoints").mkdir(parents=True)
    for name in names:
        (path / "checkpoints" / name).touch()
    if record is not None:
        (path / "run.json").write_text(json.dumps({"arguments": ["data"], **record}))
    if result is not None:
        (path / "result.json").write_text(json.dumps({"value": 1.0, **result}))
    return RunFiles(path)


@pytest.mark.parametrize(
    ("record", "result", "choice"),
    [
        (None, None, "best"),
        ({}, None, "best"),
        ({"checkpoint": "last"}, None, "last"),
        ({"checkpoint": "best"}, {"metric": {"at": "last"}}, "best"),
        ({}, {"metric": {"at": "last"}}, "last"),  # of an earlier version
        ({}, {"metric": {"at": "best"}}, "best"),
        ({}, {}, "best"),
    ],
)
def test_the_record_says_which_checkpoint_is_the_result(tmp_path, record, result, choice):
    run = run_folder(tmp_path / "run", record=record, result=result)
    assert run.choice() == choice
    assert run.chosen_checkpoint() == tmp_path / "run" / "checkpoints" / FILES[choice]
    for folder in (run.path, run.path / "checkpoints"):
        assert find_checkpoint(folder, None) == run.chosen_checkpoint()
        assert find_checkpoint(folder, FILES["best"]).name == FILES["best"], "one that is named is meant"


def test_a_training_without_validations_has_its_last_checkpoint(tmp_path):
    assert run_folder(tmp_path, record={}, names=[FILES["last"]]).chosen_checkpoint().name == FILES["last"]


def test_the_best_checkpoint_does_not_stand_for_the_last_one(tmp_path):
    run = run_folder(tmp_path / "run", record={"checkpoint": "last"}, names=[FILES["best"]])
    assert not run.has_weights()
    with pytest.raises(FileNotFoundError, match=r"checkpoint_last.pt does not exist, and .*run.json says that the run"):
        find_checkpoint(run.path, None)
    assert find_checkpoint(run.path / "checkpoints" / FILES["best"], None).name == FILES["best"]


def test_a_run_knows_the_fine_tuning_that_it_belongs_to(tmp_path):
    checkpoint = tmp_path / "RTE" / "runs" / "lr-1" / "seed-2" / "checkpoints" / "checkpoint_best.pt"
    assert finetuning_folder(checkpoint) == tmp_path / "RTE"
    assert RunFiles.around(checkpoint.parent).path == RunFiles.around(checkpoint.parent.parent).path
    for other in ("sweep/lr-1/seed-2/checkpoints/model.pt", "runs/a/b/checkpoints/model.pt", "model.pt"):
        assert finetuning_folder(tmp_path / other) is None


def test_a_file_of_another_program_is_not_a_record(tmp_path):
    (tmp_path / "run.json").write_text('{"checkpoint": "last"}')
    (tmp_path / FILES["best"]).touch()
    assert find_checkpoint(tmp_path, None) == tmp_path / FILES["best"]
