import pytest

from roberta_plugin.demo import source_documents
from roberta_plugin.demo.source_documents import find_package, language_reference, package_documents


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
    documents = source_documents.find_documents()
    first = [next(documents) for _ in range(20)]
    assert len({document.name for document in first}) == 20
    assert sum(len(docstring) for document in first for docstring in document.docstrings) > 10_000


def test_a_package_that_is_not_there_is_named():
    with pytest.raises(FileNotFoundError, match="no_such_package_anywhere"):
        find_package("no_such_package_anywhere")
