"""A prepared folder holds every question of the raw files, with its options in order; also of real RACE."""

import shutil

import numpy as np
import pytest

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.kinds.multiple_choice import question_with_option
from roberta_plugin.finetuning.options import RaceOptions
from roberta_plugin.finetuning.preparation import remarks
from roberta_plugin.finetuning.prepared import Prepared
from tests import tiny_benchmarks
from tests.real_data import unpack
from tests.tiny_benchmarks import examples_of
from tests.tiny_race import write_passage, write_race


def prepared_of(task, raw, output, **options):
    return tiny_benchmarks.prepared_of(task, raw, output, **{"max_length": 120, "question_length": 60, **options})


def texts_of(prepared, sequence):
    """The two texts of a model input."""
    ids = prepared.vocabulary.model_to_tokenizer(prepared.tokenizer)[sequence]
    ends = np.flatnonzero(ids < 0).tolist()
    assert ends[0] == 0
    assert ends[-1] == len(ids) - 1
    assert len(ends) == 4
    return [prepared.tokenizer.decode(ids[a + 1 : b]) for a, b in ((ends[0], ends[1]), (ends[2], ends[3]))]


@pytest.mark.parametrize("order", ["passage", "question"])
def test_every_question_is_there_with_its_options_in_order(tmp_path, order):
    raw = write_race(tmp_path / "raw", train=20, dev=6)
    prepared = prepared_of("race", raw, tmp_path / "set", max_length=512, order=order)
    assert prepared.task == "race"
    assert prepared.settings == {"max_length": 512, "question_length": 60, "order": order}
    assert set(prepared.splits) == {"train", "valid"}
    for split, questions in examples_of("race", raw).items():
        opened, records = prepared.split(split), list(prepared.split(split).records())
        assert len(questions) == len(opened) == {"train": 40, "valid": 12}[split]
        for example, question in enumerate(questions):
            assert opened.columns["label"][example] == question.target
            assert opened.columns["level"][example] == question.columns["level"]
            assert records[example] == {"id": question.id, **question.record, "options": list(question.choices)}
            rows = range(*opened.offsets[example : example + 2])
            passage, asked = question.texts
            expected = [[passage, question_with_option(asked, option)] for option in question.choices]
            if order == "question":
                expected = [pair[::-1] for pair in expected]
            assert [texts_of(prepared, opened.sequences[row]) for row in rows] == expected


def test_long_inputs_are_cut_and_said_so(tmp_path, caplog):
    passage = {"article": "a " * 300, "questions": ["b"], "options": [["c" * 90, "d"]], "answers": ["A"], "id": "1"}
    bare = {"article": "e", "questions": [], "options": [], "answers": [], "id": "2"}
    write_passage(tmp_path / "raw/train/high/1.txt", passage)
    write_passage(tmp_path / "raw/train/high/2.txt", bare)
    prepared = prepared_of("race", tmp_path / "raw", tmp_path / "set")
    opened = prepared.split("train")
    assert opened.sequences.sizes.tolist() == [120, 120]
    assert [len(texts_of(prepared, opened.sequences[row])[1]) for row in (0, 1)] == [60, 3]
    of_question, of_passage = remarks(prepared)
    assert of_question.startswith(
        "train: 1 of 2 questions with an option are longer than 60 tokens and were cut (longest"
    )
    assert of_passage.startswith(
        "train: 2 of 2 passages with question and option are longer than 120 tokens and were cut"
    )
    assert "1 passages have no question and were left out" in caplog.text


def test_a_split_without_questions_is_refused_and_nothing_is_left(tmp_path):
    bare = {"article": "e", "questions": [], "options": [], "answers": [], "id": "2"}
    write_passage(tmp_path / "raw/train/high/2.txt", bare)
    with pytest.raises(ValueError, match="The split train holds no question"):
        prepared_of("race", tmp_path / "raw", tmp_path / "set")
    assert not (tmp_path / "set").exists()


@pytest.fixture(scope="module")
def real_race(shared_data, tmp_path_factory):
    folder = unpack(shared_data, "race", tmp_path_factory.mktemp("race"))
    yield next(path.parent for path in folder.rglob("train") if path.is_dir())
    shutil.rmtree(folder)


@pytest.mark.slow  # 87,866 questions; the official counts, and the form of the files is that of the tests above
def test_real_race_is_read_and_its_dev_split_prepared_within_the_limits(real_race, shared_data, tmp_path):
    counts = {}
    for split, examples in examples_of("race", real_race).items():
        questions = [(each.id, each.columns["level"]) for each in examples]
        counts[split] = [
            (len({question for question in questions if question[1] == level}), sum(o == level for _, o in questions))
            for level in (0, 1)
        ]
    assert counts == {"train": [(6409, 25421), (18726, 62445)], "valid": [(368, 1436), (1021, 3451)]}

    shutil.rmtree(real_race / "train")
    bpe = shared_data / "gpt2_bpe"
    tokenizer, vocabulary = load_tokenizer(bpe), Vocabulary.load(bpe / "dict.txt")
    output = tmp_path / "set"
    benchmark_of("race").prepare(
        real_race, output, tokenizer=tokenizer, vocabulary=vocabulary, max_length=512, options=RaceOptions()
    )
    valid = Prepared.open(output).split("valid")
    assert len(valid) == 4887
    assert np.diff(valid.offsets).tolist() == [4] * 4887
    assert np.bincount(valid.columns["label"]).tolist() == [1067, 1291, 1303, 1226]
    assert np.bincount(valid.columns["level"]).tolist() == [1436, 3451]
    sequences = valid.sequences
    assert sequences.sizes.max() == 512
    assert (sequences.sizes == 512).sum() > 1000
    ends = sequences.starts + sequences.sizes - 1
    assert (sequences.tokens[ends] == vocabulary.eos_id).all()
    assert (sequences.tokens[sequences.starts] == vocabulary.bos_id).all()
    assert (sequences.tokens == vocabulary.eos_id).sum() == 3 * len(sequences)
    assert not (sequences.tokens == vocabulary.unk_id).any()
