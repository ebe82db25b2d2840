"""What a checkpoint says of its data is compared with the data that it is used on."""

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from roberta_plugin.finetuning import identity
from tests.tiny_benchmarks import write_prepared
from tests.tiny_tagging import write_prepared as write_tagging

PATH = Path("model.pt")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("set") / "set", task="race")


def state(prepared, **changes):
    return {"task_state": {identity.KEY: {**identity.of(prepared), **changes}}}


def check(found, prepared):
    identity.check_words(found, prepared, checkpoint=PATH)
    identity.check_task(found, prepared, checkpoint=PATH)


def test_the_data_of_training_are_accepted_and_so_are_checkpoints_that_say_nothing(prepared):
    for found in (state(prepared), {}, {"task_state": None}, {"task_state": {}}):
        check(found, prepared)


def test_sets_of_the_same_question_share_a_head(prepared):
    check(state(prepared, task="multiple_choice"), prepared)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"task": "SST-2"},
            r"model\.pt was fine-tuned on SST-2, and by .*set/prepared\.json the data are for race: its head answers",
        ),
        (
            {"settings": {"max_length": 30, "order": "question"}},
            r"set/prepared\.json says: .*--order was question and is not given now",
        ),
        (
            {"tokenizer": {"kind": "gpt2", "sha256": {"a": "0" * 64}}},
            r"than that of .*set: .*tokenizer was kind gpt2, sha256 a 0{8} and is .* now",
        ),
        ({"vocabulary": "0"}, r"than that of .*set: dict\.txt was 0 and is \w{8} now"),
    ],
)
def test_other_data_are_refused_and_both_are_named(prepared, changes, message):
    with pytest.raises(ValueError, match=message):
        check(state(prepared, **changes), prepared)


def test_other_lengths_are_a_warning(prepared, caplog):
    found = state(prepared, settings={**prepared.settings, "max_length": 512})
    with caplog.at_level(logging.WARNING):
        check(found, prepared)
    assert "--max-length was 512 and is 30 now" in caplog.text


def test_how_a_table_was_read_may_differ(prepared, caplog):
    found = state(prepared, settings={**prepared.settings, "delimiter": ";", "id_column": None})
    with caplog.at_level(logging.WARNING):
        check(found, prepared)
    assert "--delimiter was ; and is not given now" in caplog.text


def test_of_a_model_that_was_made_elsewhere_only_what_is_known_is_compared(prepared):
    known = {"task": "multiple_choice", "settings": {"max_length": 30}, identity.IS_INFERRED: True}
    check({"task_state": {identity.KEY: known}}, prepared)
    with pytest.raises(ValueError, match="was fine-tuned on squad2"):
        check({"task_state": {identity.KEY: {**known, "task": "squad2"}}}, prepared)


def test_classes_are_found_by_their_names(prepared):
    assert identity.class_order(["YES", "No"], prepared, checkpoint=PATH) == [1, 0]  # the data have no, yes
    of_three = SimpleNamespace(folder=PATH, settings={"labels": ["no", "perhaps", "yes"]})
    assert identity.class_order(["yes", "no", "perhaps"], of_three, checkpoint=PATH) == [1, 2, 0]
    with pytest.raises(ValueError, match=r"model\.pt has the classes yes, yes, and .*set the classes no, yes"):
        identity.class_order(["yes", "yes"], prepared, checkpoint=PATH)


def test_a_tagging_head_serves_other_files_with_the_same_labels(tmp_path, caplog):
    prepared = write_tagging(tmp_path)
    labels = {"kind": "tagging", "labels": prepared.settings["labels"]}
    check(state(prepared, task="conll2003", settings={**labels, "context": "document"}), prepared)
    assert "--context was document and is sentence now" in caplog.text
    with pytest.raises(ValueError, match=r"--labels was O, B-PER, I-PER and is "):
        check(state(prepared, settings={**labels, "labels": ["O", "B-PER", "I-PER"]}), prepared)
