"""Listeners come in their order, once, and leave fairseq's function as it was."""

from types import SimpleNamespace

import pytest

from roberta_plugin import fairseq_workarounds
from roberta_plugin.fairseq_workarounds import hooks


class Owner:
    """Has one function of each kind."""

    @staticmethod
    def static(word):
        return word

    def method(self, word):
        return (self, word)


def adds(letter):
    return lambda fairseqs, *args: fairseqs(*args[:-1], args[-1] + letter)


def test_the_first_listener_is_the_outermost_and_a_second_install_changes_nothing():
    owner = SimpleNamespace(call=lambda word: f"<{word}>")
    listeners = [adds("a"), adds("b")]
    hooks._hook(owner, "call", listeners)
    once = owner.call
    hooks._hook(owner, "call", listeners)
    assert owner.call is once
    assert owner.call("x") == "<xab>"


def test_methods_and_static_methods_stay_so(monkeypatch):
    for name in ("static", "method"):
        monkeypatch.setattr(Owner, name, vars(Owner)[name])  # back at the end
        hooks._hook(Owner, name, [adds("a")])
    owner = Owner()
    assert Owner.static("x") == owner.static("x") == "xa"
    assert owner.method("x") == (owner, "xa")


def test_a_further_listener_comes_first_and_leaves():
    owner = SimpleNamespace(call=lambda word: word)
    hooks._hook(owner, "call", [adds("b")])
    for _ in range(2):
        with pytest.raises(KeyError), hooks.listening(owner, "call", adds("a")):
            assert owner.call("x") == "xab"
            raise KeyError
        assert owner.call("x") == "xb"
    plain = SimpleNamespace(call=lambda word: word)
    with hooks.listening(plain, "call", adds("a")):
        assert plain.call("x") == "xa"
    assert plain.call("x") == "x"


def test_fairseqs_own_function_is_found_behind_the_listeners():
    def own(word):
        return word

    found = []
    owner = SimpleNamespace(call=own)
    hooks._hook(owner, "call", [adds("a"), lambda fairseqs, word: found.append(hooks.function_behind(fairseqs))])
    owner.call("x")
    assert found == [own]


def test_every_function_of_the_table_is_there_and_has_one_place():
    tables = (fairseq_workarounds.LISTENERS, fairseq_workarounds.OF_TRAININGS)
    names = [(str(owner), name) for table in tables for owner, name in table]
    assert len(names) == len(set(names)) > 20
    for table in tables:
        for (owner, name), listeners in table.items():
            assert listeners
            assert owner == hooks.PROGRAM or hasattr(owner, name), name
