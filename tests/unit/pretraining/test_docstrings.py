"""Docstrings -> prose, split by documents; nothing of the training text is held out."""

import pytest

from roberta_plugin.pretraining import docstrings
from roberta_plugin.pretraining.docstrings import SPLITS, documents, paragraphs_of, split_of, write_corpus

DOCSTRING = """Return a list of the values
    of this mapping.

    >>> mapping.values() and some more words of prose here
    [1, 2]

    Short one.

    x = f(y[0]); z = g(x) + h(w)

    The following code returns the keys of it::
"""


def test_paragraphs_of_prose_are_kept_each_on_a_line():
    assert list(paragraphs_of(DOCSTRING)) == [
        "Return a list of the values of this mapping.",
        "The following code returns the keys of it:",
    ]


def test_the_split_depends_on_the_name_alone_and_a_few_percent_are_held_out():
    splits = [split_of(f"module{number}.py") for number in range(5000)]
    assert splits == [split_of(f"module{number}.py") for number in range(5000)]
    assert [splits.count(split) / 5000 for split in SPLITS] == pytest.approx([0.88, 0.04, 0.08], abs=0.02)


def test_a_sentence_of_the_training_text_is_not_held_out(tmp_path):
    names = {split: next(f"{n}.py" for n in range(1000) if split_of(f"{n}.py") == split) for split in SPLITS}
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
    monkeypatch.setattr(docstrings.sysconfig, "get_path", lambda name: str(tmp_path))
    assert list(documents()) == [("good.py", ["Of the module.", "Of f."]), ("topics/if", ["The if statement."])]
