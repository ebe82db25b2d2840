"""Each promise and each option has an owner in the ledger."""

import pytest

from tests.ledger import PACKAGE, PAGE, REPOSITORY, SOURCES, folders, options_of, options_without_class, table
from tests.needed_extensions import describes_all


@pytest.mark.parametrize("name", folders(PACKAGE / "extensions"))
def test_each_extension_has_a_source_and_a_page(name):
    assert name in SOURCES, f"add who asks for {name}, and its page, to SOURCES of tests/ledger.py"
    source, page = SOURCES[name]
    assert source and (REPOSITORY / page).is_file()


def test_each_option_belongs_to_a_dataclass_of_one_folder():
    found = {path: options_without_class(path) for path in PACKAGE.rglob("*.py")}
    assert not {path: calls for path, calls in found.items() if calls}
    owned = [option for path in PACKAGE.rglob("*.py") for option in options_of(path)]
    assert len(owned) > 200 and "CommonPredictSettings.task_kind" in owned


@describes_all()
def test_the_page_is_what_the_folders_say():
    assert PAGE.read_text() == table(), "the ledger is out of date: python -m tests.ledger"
