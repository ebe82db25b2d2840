"""The demo's corpus: documents of source files, prose of docstrings, splits without repetition."""

import pytest

from roberta_plugin.demo.corpus import (
    TEST_SHARE,
    VALID_SHARE,
    Document,
    find_documents,
    find_package,
    is_prose,
    language_reference,
    make_splits,
    package_documents,
    paragraphs_of,
    split_of,
    write_corpus,
)

NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def sentence(number):
    words = " ".join(NUMBERS[int(digit)] for digit in str(number))
    return f"The sentence that is called {words} stands here alone."


def documents(count, *, common=None):
    for number in range(count):
        own = [sentence(10 * number + k) for k in range(3)]
        yield Document(f"package/{number}.py", [*own, *([common] if common else [])])


def name_in(split):
    return next(f"package/{number}.py" for number in range(1000) if split_of(f"package/{number}.py") == split)


def test_the_shares_of_the_splits_are_as_stated():
    names = [f"package/{number}.py" for number in range(20_000)]
    splits = [split_of(name) for name in names]
    assert splits.count("valid") / len(names) == pytest.approx(VALID_SHARE, abs=0.005)
    assert splits.count("test") / len(names) == pytest.approx(TEST_SHARE, abs=0.005)
    assert splits == [split_of(name) for name in names]


def test_every_paragraph_is_in_one_split_once():
    splits = make_splits(documents(300, common="A paragraph that all of these documents share."))
    paragraphs = [paragraph for texts in splits.values() for text in texts for paragraph in text.paragraphs]
    assert len(paragraphs) == len(set(paragraphs)) == 3 * 300 + 1
    assert all(len(texts) > 2 for texts in splits.values())


def test_paragraphs_that_differ_in_case_digits_and_marks_are_the_same():
    texts = ["It returns the 2 largest values of the list.", "It returns the 3 largest values (of the list)!"]
    splits = make_splits([Document("package/0.py", texts), Document("package/1.py", [sentence(1)])])
    assert sum(len(text.paragraphs) for texts in splits.values() for text in texts) == 2


@pytest.mark.parametrize("held_out_first", [True, False])
@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_held_out_paragraph_that_shares_a_sentence_with_the_training_text_is_dropped(split, held_out_first):
    shared = sentence(1)
    train = Document(name_in("train"), [f"{shared} {sentence(2)}"])
    held_out = Document(name_in(split), [f"{sentence(3)} {shared}", sentence(4)])
    splits = make_splits([held_out, train] if held_out_first else [train, held_out])
    assert splits["train"][0].paragraphs == [f"{shared} {sentence(2)}"]
    assert splits[split][0].paragraphs == [sentence(4)]


def test_the_files_hold_a_paragraph_a_line_and_a_blank_line_between_documents(tmp_path):
    counts = write_corpus(tmp_path, documents(200))
    text = (tmp_path / "train.txt").read_text()
    parts = text.rstrip("\n").split("\n\n")
    assert len(parts) == counts["train_documents"]
    assert all(len(part.splitlines()) == 3 for part in parts)
    assert counts["train_paragraphs"] == 3 * len(parts)
    assert counts["train_bytes"] == len(text.encode())


def test_max_bytes_limits_the_text(tmp_path):
    counts = write_corpus(tmp_path, documents(5000), max_bytes=60_000)
    total = sum(counts[f"{split}_bytes"] for split in ("train", "valid", "test"))
    assert 55_000 < total < 65_000


def test_too_little_text_is_refused_by_the_name_of_the_option(tmp_path):
    with pytest.raises(ValueError, match="--max-megabytes"):
        write_corpus(tmp_path, documents(1))


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_docstrings_come_in_the_order_of_the_source_and_nothing_is_run(tmp_path):
    write(
        tmp_path / "module.py",
        '"""The module."""\nraise SystemExit("this file was run")\n'
        'class A:\n    """The class."""\n    def f(self):\n        """The method."""\n'
        'async def g():\n    """The coroutine."""\nx = "no docstring"\n',
    )
    (document,) = package_documents("made_up", tmp_path)
    assert document.name == "made_up/module.py"
    assert document.docstrings == ["The module.", "The class.", "The method.", "The coroutine."]


def test_docstrings_set_by_a_call_are_found(tmp_path):
    write(
        tmp_path / "docs.py",
        'add_docstr(thing, r"""\nfirst line\n    indented\n""" + "tail\\nof it")\nother("no\\ndoc")\n',
    )
    (document,) = package_documents("made_up", tmp_path)
    assert document.docstrings == ["first line\n    indented", "tail\nof it"]


def test_tests_broken_files_and_files_without_docstrings_are_left_out(tmp_path):
    write(tmp_path / "good.py", '"""Good."""')
    write(tmp_path / "broken.py", '"""Broken."""\ndef (')
    write(tmp_path / "empty.py", "x = 1")
    write(tmp_path / "tests" / "test_it.py", '"""A test."""')
    write(tmp_path / "site-packages" / "other.py", '"""Another package."""')
    assert [document.name for document in package_documents("p", tmp_path)] == ["p/good.py"]


def test_names_do_not_depend_on_where_the_package_lies(tmp_path):
    for folder in ("one", "two/deeper"):
        write(tmp_path / folder / "sub" / "module.py", '"""Text."""')
    names = [
        [document.name for document in package_documents("p", tmp_path / folder)] for folder in ("one", "two/deeper")
    ]
    assert names[0] == names[1] == ["p/sub/module.py"]


def test_topics_of_the_language_reference_are_documents_of_their_own(tmp_path):
    write(tmp_path / "topics.py", "topics = {'while': 'The while statement.', 'assert': 'Assert statements.'}")
    documents = list(language_reference(tmp_path / "topics.py"))
    assert [document.name for document in documents] == ["topics/assert", "topics/while"]
    assert documents[1].docstrings == ["The while statement."]
    assert list(language_reference(tmp_path / "missing.py")) == []


def test_this_python_has_documents():
    documents = find_documents()
    first = [next(documents) for _ in range(20)]
    assert len({document.name for document in first}) == 20
    assert sum(len(docstring) for document in first for docstring in document.docstrings) > 10_000


def test_a_package_that_is_not_there_is_named():
    with pytest.raises(FileNotFoundError, match="no_such_package_anywhere"):
        find_package("no_such_package_anywhere")


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        (
            "Return the sum of all the values.\n\nThe second line is\nwrapped over two of them.",
            ["Return the sum of all the values.", "The second line is wrapped over two of them."],
        ),
        (
            "Compute something useful from the input.\n\n>>> compute(1, 2)\n3\n\nIt works on lists of any length too.",
            ["Compute something useful from the input.", "It works on lists of any length too."],
        ),
        (
            "Use it as in the following example::\n\n    x = call(the, words, in, here, look, like, prose)\n\n"
            "After the example the text goes on.",
            ["Use it as in the following example:", "After the example the text goes on."],
        ),
        (
            "Parameters\n----------\nx : array_like\n    The values to be sorted along the last axis.",
            ["The values to be sorted along the last axis."],
        ),
        (
            ":param name: the name of the file that will be read",
            ["the name of the file that will be read"],
        ),
        (
            "- the first point is made of several words\n- the second point has a few more of them",
            ["the first point is made of several words", "the second point has a few more of them"],
        ),
        (
            "See :class:`~torch.nn.Module` and ``forward`` for *all* the details you need [1]_.",
            ["See torch.nn.Module and forward for all the details you need."],
        ),
        ("x1 = f(y_2) + g[3] {4} -> 5 ; 6 7 8", []),
        ("Too short.", []),
        ("", []),
    ],
)
def test_only_prose_stays_and_it_is_clean(docstring, expected):
    assert list(paragraphs_of(docstring)) == expected


def test_a_paragraph_never_holds_a_line_break():
    paragraphs = list(paragraphs_of("First line of a longer text\n  with a second line\n\tand a third one in it."))
    assert paragraphs
    assert not any("\n" in paragraph or "\t" in paragraph for paragraph in paragraphs)


def test_prose_is_mostly_words():
    assert is_prose("This is a sentence with quite enough words.")
    assert not is_prose("0x00 0x01 0x02 0x03 this is the table of bytes 0x04 0x05 0x06 0x07 0x08")
