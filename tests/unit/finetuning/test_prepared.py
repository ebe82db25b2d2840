"""The prepared folder: what is written is read, nothing is half there, and `roberta inspect` says what it is."""

import dataclasses
import errno
import logging
import os
import re
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from roberta_plugin import registry
from roberta_plugin.cli import main
from roberta_plugin.data.mmap_tokens import MmapTokensWriter
from roberta_plugin.finetuning import benchmarks, identity
from roberta_plugin.finetuning.benchmarks import checked_options, options_for
from roberta_plugin.finetuning.examples import (
    Example,
    balanced_weights,
    number_of,
    order_labels,
    positive_weights,
)
from roberta_plugin.finetuning.options import TaskOptions
from roberta_plugin.finetuning.preparation import (
    DataSettings,
    PrepareSettings,
    check_same,
    describe,
    find_faults,
    prepare,
)
from roberta_plugin.finetuning.prepared import Prepared, PreparedWriter
from roberta_plugin.registry import BenchmarkFamily, Extension
from tests.made_extension.benchmark import MadeOptions
from tests.tiny_benchmarks import words_tokenizer, write_made, write_prepared, write_tokenizer


def begin(folder):
    tokenizer, vocabulary = words_tokenizer()
    settings = {"max_length": 8}
    return PreparedWriter(folder, task="made-plain", tokenizer=tokenizer, vocabulary=vocabulary, settings=settings)


def add_split(writer, name):
    """A split of one example."""
    with writer.split(name) as split:
        split.add([np.array([0, 2])])


@pytest.mark.parametrize("name", ["train", "valid", "test"])
def test_what_is_written_is_read(tmp_path, name):
    with begin(tmp_path / "set") as writer, writer.split(name) as split:
        split.add([np.array([0, 9, 2]), np.array([0, 2])], label=3, score=0.1)
        split.add([np.array([0, 7, 8, 2])], label=4, score=2.5)
        split.record({"id": "a", "text": "caf\u00e9\nline"})
        split.array("table", np.eye(3))
    prepared = Prepared.open(tmp_path / "set")
    assert (prepared.task, prepared.settings, prepared.splits) == ("made-plain", {"max_length": 8}, (name,))
    assert len(prepared.vocabulary) == len(words_tokenizer()[1])
    assert prepared.tokenizer.encode("good") == words_tokenizer()[0].encode("good")
    found = prepared.split(name)
    assert len(found) == 2 and found.offsets.tolist() == [0, 2, 3]
    assert [found.sequences[i].tolist() for i in range(3)] == [[0, 9, 2], [0, 2], [0, 7, 8, 2]]
    assert {name: values.tolist() for name, values in found.columns.items()} == {"label": [3, 4], "score": [0.1, 2.5]}
    assert (found.columns["label"].dtype, found.columns["score"].dtype) == (np.int64, np.float64)
    assert np.array_equal(found.array("table"), np.eye(3))
    assert list(found.records()) == [{"id": "a", "text": "caf\u00e9\nline"}]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set"]


def test_a_split_without_examples_or_columns_can_be_read(tmp_path):
    with begin(tmp_path / "set") as writer:
        with writer.split("train"):
            pass
        add_split(writer, "test")
    prepared = Prepared.open(tmp_path / "set")
    assert (len(prepared.split("train")), prepared.split("train").offsets.tolist()) == (0, [0])
    assert prepared.split("test").columns == {}


ELSEWHERE = {"name": "anli", "package": "anli 1.0"}


def test_a_folder_of_an_extension_that_is_not_installed_names_its_package(tmp_path):
    with begin(tmp_path / "set") as writer:
        writer._extensions = [ELSEWHERE]
        add_split(writer, "train")
    said = "set was prepared with the extension anli of anli 1.0, which is not installed: pip install anli."
    with pytest.raises(ValueError, match=said):
        Prepared.open(tmp_path / "set")
    path = tmp_path / "set" / "prepared.json"
    path.write_text(path.read_text().replace('"package"', '"pack"'))
    with pytest.raises(ValueError, match="is damaged: 'extensions' has no names or packages"):
        Prepared.open(tmp_path / "set")


def test_a_task_of_another_package_is_recorded_with_its_package(monkeypatch):
    family = BenchmarkFamily(("ANLI",), "anli.rows:TASKS")
    monkeypatch.setitem(registry.BENCHMARKS._entries, "anli", family)
    monkeypatch.setitem(registry.BENCHMARKS._owners, "anli", Extension("anli", "anli", package="anli 1.0"))
    monkeypatch.setattr(benchmarks, "benchmark_of", lambda task: SimpleNamespace(kind="made"))
    made = {"name": "made", "package": "tests.made_extension"}
    assert benchmarks.brought_by("ANLI", {}) == [ELSEWHERE, made] and benchmarks.brought_by("made", {}) == [made]


@pytest.mark.parametrize("record", [{"extensions": [ELSEWHERE]}, {"extension": ELSEWHERE}])
def test_a_checkpoint_of_an_extension_that_is_not_installed_names_its_package(record):
    said = "x.pt was trained with the extension anli of anli 1.0, which is not installed: pip install anli."
    with pytest.raises(ValueError, match=said):
        identity.check_installed({"task_state": {identity.KEY: record}}, checkpoint=Path("x.pt"))


def test_an_error_leaves_no_folder(tmp_path):
    with pytest.raises(RuntimeError), begin(tmp_path / "new") as writer:
        add_split(writer, "train")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_nothing_that_is_there_is_written_over(tmp_path):
    write_prepared(tmp_path / "old")
    with pytest.raises(FileExistsError, match="holds a prepared set already: give --overwrite"):
        begin(tmp_path / "old")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(FileExistsError, match="mine exists: name a folder that is empty or new"):
        begin(tmp_path / "mine")


def test_one_process_at_a_time_writes_a_folder_and_removes_what_a_killed_one_has_left(tmp_path):
    (tmp_path / ".set.partial").mkdir()
    (tmp_path / ".set.partial" / "train.bin").write_bytes(b"half")
    with begin(tmp_path / "set") as first:
        add_split(first, "test")
        with pytest.raises(FileExistsError, match=r"Another process is preparing .*set now"), begin(tmp_path / "set"):
            pass
        late = begin(tmp_path / "set")
    assert len(Prepared.open(tmp_path / "set").split("test")) == 1
    assert not (tmp_path / "set" / "train.bin").exists()
    with pytest.raises(FileExistsError, match="holds a prepared set already"), late:
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_folders_that_are_none_are_refused_with_the_remedy(tmp_path):
    with pytest.raises(FileNotFoundError, match="roberta prepare TASK"):
        Prepared.open(tmp_path)
    prepared = write_prepared(tmp_path / "set")
    with pytest.raises(ValueError, match="no split 'dev'; it has train, valid"):
        prepared.split("dev")
    path = tmp_path / "set" / "train.label.npy"
    np.save(path, np.load(path) + 2**46)  # as of a bit flipped: counting the labels would take petabytes
    with pytest.raises(ValueError, match=r"train\.label\.npy was changed since it was made"):
        _ = prepared.split("train").columns
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"train\.label\.npy does not exist"):
        _ = prepared.split("train").columns


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (r'"format": 2', '"format": 9', "format 9"),
        (r"(?s).*", "{", "damaged"),
        (r'"columns": \[[^]]*\]', '"columns": []', "is damaged: .*columns and arrays of the split 'train'"),
        (r'"examples": 40', '"examples": 7', "is damaged: .*the split 'train' has 40 examples, not 7"),
        (r'"labels": \[[^]]*\]', '"labels": 3', "is damaged: .*the setting 'labels' is not a list"),
    ],
)
def test_a_file_that_was_changed_by_hand_is_named(tmp_path, old, new, message):
    path = write_prepared(tmp_path / "set").folder / "prepared.json"
    path.write_text(re.sub(old, new, path.read_text(), count=1))
    with pytest.raises(ValueError, match=rf"prepared\.json.*{message}"):
        split = Prepared.open(tmp_path / "set").split("train")
        _ = split.columns, split.offsets


@pytest.fixture
def settings(tmp_path):
    return PrepareSettings(
        task="made",
        raw=write_made(tmp_path / "raw", train=1, valid=1, test=1),
        tokenizer=write_tokenizer(tmp_path / "tokenizer"),
        output_dir=tmp_path / "out",
        max_length=40,
        options=MadeOptions(made_length=10),
    )


def test_a_kill_between_two_renames_leaves_nothing_behind(settings):
    """`--overwrite` renames the old folder away, then the new one to its name."""
    prepared = prepare(settings)
    assert prepared.folder == settings.output_dir and len(prepared.split("train")) == 1
    assert prepared.settings == {"max_length": 40, "labels": ["no", "yes"], "made_length": 10, "made_order": "first"}
    before = {path.name: path.read_bytes() for path in settings.output_dir.iterdir()}
    settings.output_dir.rename(settings.output_dir.with_name(".out.0a1b2c3d.old"))
    shutil.copytree(settings.output_dir.with_name(".out.0a1b2c3d.old"), settings.output_dir.with_name(".out.new"))
    prepare(dataclasses.replace(settings, overwrite=True))
    assert {path.name: path.read_bytes() for path in settings.output_dir.iterdir()} == before
    assert sorted(os.listdir(settings.output_dir.parent)) == ["out", "raw", "tokenizer"]


def test_a_full_disk_is_named_and_leaves_nothing_behind(settings, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")  # without a name, as of a write

    monkeypatch.setattr(MmapTokensWriter, "write", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/\.out\.partial/train\.(bin|jsonl)'"):
        prepare(settings)
    assert sorted(os.listdir(settings.output_dir.parent)) == ["raw", "tokenizer"]


def test_only_what_is_given_is_compared_unless_the_official_files_are(settings):
    prepared = prepare(settings)
    task = settings.task
    check_same(prepared, DataSettings(task=task))
    check_same(prepared, DataSettings(task=task, raw=settings.raw, max_length=40, options=settings.options))
    check_same(prepared, DataSettings(task=task, options=MadeOptions(made_order="first")))
    with pytest.raises(ValueError, match="--made-order was first and is last now"):
        check_same(prepared, DataSettings(task=task, options=MadeOptions(made_order="last")))
    with pytest.raises(ValueError, match="--made-length was 10 and is 20 now"):
        check_same(prepared, DataSettings(task=task, raw=settings.raw))
    with pytest.raises(ValueError, match="made has MadeOptions, got TaskOptions"):
        DataSettings(task=task, options=TaskOptions())
    with pytest.raises(ValueError, match="is prepared for made, not for made-too: give another --data"):
        check_same(prepared, DataSettings(task="made-too"))


PATH = Path("model.pt")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("set") / "set", task="made")


def state(prepared, **changes):
    return {"task_state": {identity.KEY: {**identity.describe(prepared), **changes}}}


def check(found, prepared):
    identity.check_words(found, prepared, checkpoint=PATH)
    identity.check_task(found, prepared, checkpoint=PATH)


def test_the_data_of_training_are_accepted_and_so_are_checkpoints_that_say_nothing(prepared):
    same_question = state(prepared, task="made-too")
    for found in (state(prepared), same_question, {}, {"task_state": None}, {"task_state": {}}):
        check(found, prepared)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"task": "made-plain"},
            r"model\.pt was fine-tuned on made-plain, but .*set/prepared\.json has data for made: the head answers",
        ),
        (
            {"settings": {"max_length": 30, "made_order": "last"}},
            r"set/prepared\.json has: .*--made-order was last and is not given now",
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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_length": 512}, "--max-length was 512 and is 30 now"),
        ({"delimiter": ";", "id_column": None}, "--delimiter was ; and is not given now"),
    ],
)
def test_other_lengths_and_another_way_to_read_a_table_are_a_warning(prepared, caplog, changes, said):
    with caplog.at_level(logging.WARNING):
        check(state(prepared, settings={**prepared.settings, **changes}), prepared)
    assert said in caplog.text


def test_of_a_model_that_was_made_elsewhere_only_what_is_known_is_compared(prepared):
    known = {"task": "made-too", "settings": {"max_length": 30}, identity.IS_INFERRED: True}
    check({"task_state": {identity.KEY: known}}, prepared)
    with pytest.raises(ValueError, match="was fine-tuned on made-plain"):
        check({"task_state": {identity.KEY: {**known, "task": "made-plain"}}}, prepared)


def test_classes_are_found_by_their_names(prepared):
    assert identity.class_order(["YES", "No"], prepared, checkpoint=PATH) == [1, 0]  # the data have no, yes
    of_three = SimpleNamespace(folder=PATH, settings={"labels": ["no", "perhaps", "yes"]})
    assert identity.class_order(["yes", "no", "perhaps"], of_three, checkpoint=PATH) == [1, 2, 0]
    with pytest.raises(ValueError, match=r"model\.pt has the classes yes, yes, but .*set has the classes no, yes"):
        identity.class_order(["yes", "yes"], prepared, checkpoint=PATH)


def found(labels, given=None):
    examples = [Example(path=Path("my.csv"), line=line, id="", texts=("a",)) for line in range(2, len(labels) + 2)]
    return order_labels([*zip(labels, examples, strict=True)], given, path="my.csv")


def test_labels_are_sorted_as_numbers_if_they_are_and_the_user_may_order_them():
    assert found(["10", "9", "9", "-1"]) == ["-1", "9", "10"]
    assert found(["10", "9", "x"]) == ["10", "9", "x"]
    assert found(["b", "a"], ["b", "c", "a"]) == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("labels", "given", "message"),
    [
        (["a", "b", "c"], ["a", "b"], r"my\.csv, line 4: the label 'c' is none of --labels a b"),
        (["a", "a"], None, r"all rows have the label 'a', so there is nothing to learn"),
        ([], None, "no row has a label"),
        ([str(number / 7) for number in range(30)], None, "30 different values in 30 rows.* --kind regression"),
    ],
)
def test_a_column_that_is_not_one_of_labels_is_refused(labels, given, message):
    with pytest.raises(ValueError, match=message):
        found(labels, given)


def test_a_label_that_training_lacks_is_named():
    example = Example(path=Path("my.csv"), line=2, id="", texts=("a",))
    said = r"my\.csv, line 2: no row of the training table has the label 'z'; it has a, b"
    with pytest.raises(ValueError, match=said):
        number_of("z", ["a", "b"], example)
    assert number_of("b", ["a", "b"], example) == 1


def test_balanced_weights_are_those_of_scikit_learn_and_present_and_absent_labels_weigh_the_same():
    labels = ["a", "b", "c"]
    column = np.array(["a"] * 7 + ["b"] * 2 + ["c"])
    weights = balanced_weights(labels, Counter(column.tolist()))
    assert weights == pytest.approx(compute_class_weight("balanced", classes=np.array(labels), y=column))
    assert balanced_weights(labels, Counter({"a": 1, "b": 3})) == [2.0, 2 / 3, 1.0]
    assert positive_weights(labels, Counter({"a": 2, "b": 10}), 10) == [4.0, 1.0, 1.0]


def test_an_option_of_another_task_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"--doc-stride is not an option of made-plain: it has none\."):
        options_for("made-plain", {"doc_stride": 1})
    with pytest.raises(
        ValueError, match=r"not an option of made: it has --made-length, --made-order, --made-limit, --made-draws\."
    ):
        options_for("made", {"doc_stride": 1})
    with pytest.raises(ValueError, match="--made-ties is not an option of made"):
        options_for("made", {"made_ties": True})
    with pytest.raises(ValueError, match="made has MadeOptions, got TaskOptions"):
        checked_options("made", TaskOptions())
    with pytest.raises(ValueError, match="--made-ties is not an option of made"):
        checked_options("made", MadeOptions(made_ties=True))


def test_what_is_not_given_is_the_default():
    assert options_for("made", {"made_order": None}) == checked_options("made", None) == MadeOptions()
    assert options_for("made-plain") == TaskOptions()
    assert MadeOptions(made_draws=5, made_length=64).given("prepare") == {"made_length": 64}


@pytest.fixture
def inspected(tmp_path):
    tokenizer, vocabulary = words_tokenizer()
    ids = vocabulary.tokenizer_to_model(tokenizer)
    good, bad = (ids[tokenizer.encode(word)] for word in ("good", "bad"))
    settings = {"max_length": 9, "labels": ["no", "yes"]}
    folder = tmp_path / "set"
    with PreparedWriter(
        folder, task="made-plain", tokenizer=tokenizer, vocabulary=vocabulary, settings=settings
    ) as writer:
        with writer.split("train") as split:
            split.add([np.concatenate([[0], good, [2, 2], bad, [2]])], label=1, score=0.5)
            split.add([np.concatenate([[0], bad, [2]])], label=1, score=2.0)
            split.add([np.concatenate([[0], bad, [2]])], label=0, score=2.0)
        with writer.split("test"):
            pass
    return Prepared.open(folder)


def test_counts_labels_and_texts_are_shown_and_many_values_as_a_range(inspected, tmp_path):
    lines = list(describe(inspected, inspected.split("train")))
    assert lines[0] == "3 examples, 3 sequences, 12 tokens"
    assert lines[1:] == ["label: no 1, yes 2", "score: 0.5 1, 2.0 2", "example 0: good | bad"]
    assert find_faults(inspected, inspected.split("train")) == []
    assert list(describe(inspected, inspected.split("test"))) == ["0 examples, 0 sequences, 0 tokens"]
    assert find_faults(inspected, inspected.split("test")) == []
    many = write_prepared(tmp_path / "many", num_examples=40)
    assert any(line.startswith("weight: 0.0 to 5.57") for line in describe(many, many.split("train")))


@pytest.mark.parametrize("name", ["train.bin", "train.idx", "train.label.npy", "exchanged labels"])
def test_what_is_not_sound_is_said_and_the_exit_code_tells(inspected, name, capsys):
    if name == "exchanged labels":
        name = "train.label.npy"
        np.save(inspected.folder / name, 1 - np.load(inspected.folder / name))
    else:
        content = bytearray((inspected.folder / name).read_bytes())
        content[-3] ^= 1
        (inspected.folder / name).write_bytes(content)
    assert main(["inspect", str(inspected.folder)]) == 1
    shown = capsys.readouterr().out
    assert "train: NOT SOUND" in shown and "test: sound" in shown
    assert f"{name} was changed since it was made: its SHA-256 differs from prepared.json" in shown


def test_a_data_bin_of_fairseqs_own_fine_tuning_is_refused_with_the_ways_that_read_it(tmp_path):
    (tmp_path / "input0").mkdir()
    (tmp_path / "label").mkdir()
    with pytest.raises(
        FileNotFoundError, match=r"data-bin of fairseq's own .* --task sentence_prediction.*--train FILE"
    ):
        Prepared.open(tmp_path)
