"""The help of the options of own tables: what single kinds say of an option comes from these kinds."""

import ast
import inspect

import pytest

from roberta_plugin.extensions.own_tables import benchmark, options
from roberta_plugin.finetuning.kinds import KINDS, option_words
from roberta_plugin.finetuning.options import own_kind_names
from roberta_plugin.prediction import settings


@pytest.mark.parametrize("module", [options, benchmark, settings])
def test_no_text_of_the_program_names_a_kind_that_may_be_deleted(module):
    tree = ast.parse(inspect.getsource(module))
    described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    words = " ".join(node.value for node in texts if id(node) not in described)
    assert not [kind for kind in own_kind_names() if f"{kind}:" in words or f" {kind} " in f" {words} "]


def test_a_kind_says_what_an_option_is_for_it_and_takes_that_along(monkeypatch):
    assert option_words("text_column").keys() == {"question-answering", "tagging"}
    assert "; tagging: tags by default" in options._by_kind("label_column")
    monkeypatch.setattr(KINDS, "_entries", {name: entry for name, entry in KINDS.items() if name != "tagging"})
    assert option_words("text_column").keys() == {"question-answering"} and "tags" not in options._by_kind(
        "label_column"
    )
