"""Former names of modules, and of what is in them, that extensions hold now."""

import importlib
import sys

import pytest

from roberta_plugin import registry
from tests.unit.test_registry import in_fork

NAMES = [
    f"roberta_plugin.{name}" for extension in registry.all_extensions().values() for name in sorted(extension.moved)
]
FORMER = [name for name in NAMES if ":" not in name]


@pytest.mark.parametrize("name", FORMER)
def test_a_former_name_is_imported_with_a_warning_that_names_the_one_of_today(name, monkeypatch):
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.warns(DeprecationWarning, match=rf"{name} is roberta_plugin\.extensions\.\S+ now") as caught:
        module = importlib.import_module(name)
    now = sys.modules[str(next(each.message for each in caught if name in str(each.message))).split()[2]]
    assert module is not now and now.__spec__.name == now.__name__
    assert vars(now).items() >= {key: value for key, value in vars(module).items() if key[:2] != "__"}.items()


@pytest.mark.parametrize("name", [name for name in NAMES if ":" in name])
def test_a_former_name_of_a_module_of_today_is_the_same_object(name):
    module, _, attribute = name.partition(":")
    with pytest.warns(DeprecationWarning, match=rf"{module}\.{attribute} is roberta_plugin\.extensions\.\S+ now"):
        found = getattr(importlib.import_module(module), attribute)
    assert found.__module__.startswith("roberta_plugin.extensions.") and found.__name__ == attribute
    with pytest.raises(AttributeError, match=f"has no {attribute}s"):
        getattr(importlib.import_module(module), f"{attribute}s")


def test_the_importing_line_is_warned_of_and_other_names_are_refused_as_ever(tmp_path):
    name = FORMER[-1]
    done = in_fork(f"import roberta_plugin\nimport {name}\nimport {name}_there_is_none\n", tmp_path)
    assert f"ModuleNotFoundError: No module named '{name}_there_is_none'" in done.stderr
    assert f"<string>:2: DeprecationWarning: {name} is roberta_plugin.extensions." in done.stderr
