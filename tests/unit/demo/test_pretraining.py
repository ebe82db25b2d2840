"""The demo's text from docstrings, and its training."""

from pathlib import Path

import pytest

import roberta_plugin
from roberta_plugin.demo import pretraining
from roberta_plugin.demo.pretraining import (
    SPLITS,
    choose_split,
    documents,
    pretrain,
    prose_paragraphs,
    train_command,
    write_corpus,
)

DOCSTRING = """Return a list of the values
    of this mapping.

    >>> mapping.values() and some more words of prose here
    [1, 2]

    Short one.

    x = f(y[0]); z = g(x) + h(w)

    The following code returns the keys of it::
"""


def test_paragraphs_of_prose_are_kept_each_on_a_line():
    assert list(prose_paragraphs(DOCSTRING)) == [
        "Return a list of the values of this mapping.",
        "The following code returns the keys of it:",
    ]


def test_the_split_depends_on_the_name_alone_and_a_few_percent_are_held_out():
    splits = [choose_split(f"module{number}.py") for number in range(5000)]
    assert splits == [choose_split(f"module{number}.py") for number in range(5000)]
    assert [splits.count(split) / 5000 for split in SPLITS] == pytest.approx([0.88, 0.04, 0.08], abs=0.02)


def test_a_sentence_of_the_training_text_is_not_held_out(tmp_path):
    names = {split: next(f"{n}.py" for n in range(1000) if choose_split(f"{n}.py") == split) for split in SPLITS}
    same = "This one is in all of the 3 documents."
    longer = "THIS one is in all of the 4 documents. It has another sentence here, too."
    found = [
        (names[split], [same if split == "train" else longer, f"Only the document of {split} has this paragraph."])
        for split in reversed(SPLITS)
    ]
    write_corpus(tmp_path, [*found, ("empty.py", ["Too short."])])
    texts = {split: (tmp_path / f"{split}.txt").read_text() for split in SPLITS}
    assert texts["train"] == f"{same}\nOnly the document of train has this paragraph.\n"
    assert texts["test"] == "Only the document of test has this paragraph.\n"
    with pytest.raises(ValueError, match=r"no docstrings for test\.txt"):
        write_corpus(tmp_path, found[1:])


def test_source_files_are_parsed_and_never_run(tmp_path, monkeypatch):
    (tmp_path / "pydoc_data").mkdir()
    (tmp_path / "test").mkdir()
    (tmp_path / "good.py").write_text('"""Of the module."""\nraise SystemExit\ndef f():\n    """Of f."""\n')
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "test" / "test_it.py").write_text('"""Of a test."""\n')
    (tmp_path / "pydoc_data" / "topics.py").write_text("topics = {'if': 'The if statement.'}\n")
    monkeypatch.setattr(pretraining.sysconfig, "get_path", lambda name: str(tmp_path))
    assert list(documents()) == [("good.py", ["Of the module.", "Of f."]), ("topics/if", ["The if statement."])]


def option(command, name):
    assert command.count(name) == 1, name
    return command[command.index(name) + 1]


def test_the_command_is_the_real_one_whose_learning_rate_ends_with_the_training():
    command = train_command(Path("bin"), Path("there"), updates=1000, seed=7)
    assert Path(command[0]).name == "fairseq-train" and command[1] == "bin"
    assert Path(option(command, "--user-dir")) == Path(roberta_plugin.__file__).parent
    assert (option(command, "--seed"), option(command, "--save-dir")) == ("7", "there")
    assert option(command, "--max-update") == option(command, "--total-num-update") == "1000"
    assert 0 < int(option(command, "--warmup-updates")) < 200
    assert option(command, "--save-interval-updates") == "125"


@pytest.mark.parametrize(
    ("given", "cores", "expected"), [("3", 8, "3"), ("", 2, "2"), ("", 64, str(pretraining.MAX_THREADS))]
)
def test_threads_are_those_of_the_environment_or_of_the_machine(monkeypatch, tmp_path, given, cores, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    monkeypatch.setattr(pretraining, "num_cores", lambda: cores)
    used = []

    def lines_of(command, **options):
        used.append(options["environment"])
        yield 'x | train_inner | {"num_updates": "10", "loss": "9.0", "wps": "100"}'

    monkeypatch.setattr(pretraining, "lines_of", lines_of)
    pretrain(["fairseq-train"], log=tmp_path / "train.log", updates=10, lock=-1)
    assert used == [{"OMP_NUM_THREADS": expected}]
