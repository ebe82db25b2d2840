"""What a training starts from: files, folders, names, and the training's own checkpoint."""

import os
from types import SimpleNamespace

import pytest

from roberta_plugin.fairseq_workarounds import starts
from tests.refusals import refused
from tests.tiny_conversions import exported, write_checkpoint


@pytest.fixture
def options(tmp_path):
    """The options of checkpoints of a training that has none."""

    def of(**given):
        defaults = dict(restore_file="checkpoint_last.pt", continue_once=None, finetune_from_model=None)
        defaults |= dict.fromkeys(starts._RESETS, False)
        return SimpleNamespace(**{**defaults, "save_dir": str(tmp_path / "new"), "checkpoint_suffix": "", **given})

    return of


@pytest.fixture
def run(tmp_path):
    """The folder of a run of `roberta pretrain`, with its checkpoints."""
    folder = tmp_path / "old"
    (folder / "checkpoints").mkdir(parents=True)
    for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
        (folder / "checkpoints" / name).touch()
    return folder


@pytest.mark.parametrize("option", ["restore_file", "continue_once"])
def test_a_run_is_continued_from_its_last_checkpoint_by_its_file_or_folder(options, run, option):
    last = str(run / "checkpoints" / "checkpoint_last.pt")
    for given in (last, run / "checkpoints", run):
        assert starts.start_files(options(**{option: str(given)})) == {option: last}
    best = str(run / "checkpoints" / "checkpoint_best.pt")
    assert starts.start_files(options(**{option: best})) == {option: best}


@pytest.mark.parametrize("option", ["restore_file", "continue_once"])
def test_what_holds_no_run_is_refused_with_the_option_for_models(options, tmp_path, option):
    name = f"--{option.replace('_', '-')}"
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.pt").touch()
    message = (
        rf"{name} \S+model is a folder without a checkpoint_last\.pt.* give --finetune-from-model \S+model instead"
    )
    given = options(**{option: str(tmp_path / "model")})
    refused(message, starts.start_files, given, error=FileNotFoundError)
    for missing in (str(tmp_path / "nope.pt"), "FacebookAI/roberta-base"):
        message = rf"{name} \S+ does not exist: correct the path.*--finetune-from-model"
        refused(message, starts.start_files, options(**{option: missing}), error=FileNotFoundError)


def test_a_model_is_whatever_names_one_and_not_new_weights(options, run, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_ASSETS_CACHE", str(tmp_path / "assets"))
    ours = write_checkpoint(tmp_path / "ours")
    theirs = exported(ours, tmp_path / "theirs").folder
    fairseqs = exported(ours, tmp_path / "fairseqs", to="fairseq").folder

    def found(given):
        return starts.start_files(options(finetune_from_model=str(given)))["finetune_from_model"]

    assert found(ours) == found(ours / "model.pt") == str(ours / "model.pt")
    assert found(run) == str(run / "checkpoints" / "checkpoint_best.pt")
    assert found(fairseqs) == str(fairseqs / "model.pt")
    assert os.path.isfile(found(theirs)) and found(theirs).startswith(str(tmp_path / "assets"))
    assert found(theirs).endswith("model.pt")

    (tmp_path / "empty").mkdir()
    for given, message in {
        tmp_path / "empty": r"--finetune-from-model \S+empty: No checkpoint in \S+empty: looked for checkpoint_best",
        "nope.pt": r"--finetune-from-model nope\.pt does not exist: give a checkpoint, the folder of a model",
    }.items():
        refused(message, found, given, error=FileNotFoundError)


def test_two_starts_are_one_sentence(options):
    given = options(finetune_from_model="a.pt", restore_file="b.pt")
    said = refused("are two things to start from: give one of them", starts.settle, given)
    assert "--restore-file b.pt and --finetune-from-model a.pt" in said and len(said) < 120
    given = options(finetune_from_model="a.pt", reset_optimizer=True, reset_meters=True)
    refused(r"nothing to reset: leave out --reset-optimizer, --reset-meters\.", starts.settle, given)


@pytest.mark.parametrize("option", ["restore_file", "continue_once", "finetune_from_model"])
def test_an_empty_name_is_no_wish_for_new_weights(options, option):
    """As of a variable of the shell that is not set."""
    message = rf"--{option.replace('_', '-')} is empty: name what to start from, or leave it out for new weights"
    refused(message, starts.settle, options(**{option: ""}))


def test_once_there_is_an_own_checkpoint_it_wins_and_a_line_says_so(options, tmp_path, caplog):
    given = options(restore_file="gone.pt", reset_optimizer=True, reset_dataloader=True)
    (tmp_path / "new").mkdir()
    own = tmp_path / "new" / "checkpoint_last.pt"
    own.touch()
    starts.settle(given)  # gone.pt is not asked for any more
    assert starts.start_file(given) == own
    loaded = []
    trainer = SimpleNamespace(checkpoint_suffix="")
    starts.load_checkpoint(lambda cfg, trainer: loaded.append(cfg), given, trainer)
    assert loaded[0].restore_file == "checkpoint_last.pt"
    assert not any(getattr(loaded[0], name) for name in starts._RESETS)
    said = "ignored after the first start: --restore-file gone.pt, --reset-optimizer, --reset-dataloader. To start over"
    assert f"resuming from {own}; {said}" in caplog.text
    assert "give another --save-dir" in caplog.text
    assert given.restore_file == "gone.pt" and given.reset_optimizer  # which checkpoints record

    caplog.clear()
    starts.load_checkpoint(lambda cfg, trainer: None, options(finetune_from_model="gone.pt"), trainer)
    starts.load_checkpoint(lambda cfg, trainer: None, options(restore_file=str(own)), trainer)
    assert not caplog.text


def test_the_first_start_is_as_it_was_asked_for(options, run):
    given = options(restore_file=str(run), reset_optimizer=True)
    loaded = []
    starts.load_checkpoint(lambda cfg, trainer: loaded.append(cfg), given, SimpleNamespace(checkpoint_suffix=""))
    assert loaded[0].restore_file == str(run / "checkpoints" / "checkpoint_last.pt") and loaded[0].reset_optimizer
