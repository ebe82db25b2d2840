"""Options that extensions add to a dataclass."""

import pickle
from dataclasses import dataclass, fields

import pytest

from roberta_plugin import registry
from roberta_plugin.option_slices import compose
from roberta_plugin.registry import TABLE_OPTIONS
from roberta_plugin.settings import Checked, setting


@dataclass(frozen=True, kw_only=True)
class Base(Checked):
    kind: str | None = setting(None, "kind")
    size: int = setting(1, "size")


@dataclass(frozen=True, kw_only=True)
class Slice(Checked):
    colour: str | None = setting(None, "colour", goes_with={"kind": ("bright", None)})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.colour == "grey" and self.size > 1:
            raise ValueError("--colour grey is small.")


@dataclass(frozen=True, kw_only=True)
class Rival(Checked):
    size: int = setting(2, "size")


@pytest.fixture
def add(monkeypatch):
    """Registers a slice of this module for own tables, alone."""
    registry.find_extensions()
    monkeypatch.setattr(TABLE_OPTIONS, "_entries", {})
    monkeypatch.setattr(TABLE_OPTIONS, "_owners", {})
    monkeypatch.setattr(registry, "problems", [])

    def add(name, slice_name, *, package="colours 1.0"):
        TABLE_OPTIONS._entries[name] = f"{__name__}:{slice_name}"
        TABLE_OPTIONS._owners[name] = registry.Extension(name, __name__, package=package)

    return add


def composed():
    return compose(Base, TABLE_OPTIONS, name="Composed", module=__name__)


def test_a_slice_adds_options_and_checks_and_one_that_comes_later_counts(add):
    assert composed()(size=3) == composed()(size=3) and [item.name for item in fields(composed())] == ["kind", "size"]
    add("colours", "Slice")
    made = composed()(size=1, colour="grey")
    assert isinstance(made, Base) and [item.name for item in fields(made)] == ["kind", "size", "colour"]
    with pytest.raises(ValueError, match="--colour grey is small"):
        composed()(size=2, colour="grey")
    with pytest.raises(ValueError, match="--colour goes with --kind bright, not with dark"):
        composed()(kind="dark", colour="red")


@pytest.mark.parametrize(
    ("slice_name", "reason"), [("Rival", "--size of other is an option of Base"), ("None_", "None_")]
)
def test_a_foreign_slice_that_cannot_be_added_is_left_out_and_named(add, caplog, slice_name, reason):
    add("other", slice_name)
    add("colours", "Slice")
    assert [item.name for item in fields(composed())] == ["kind", "size", "colour"]
    (problem,) = registry.problems
    assert reason in problem and "Install a version of colours that suits, or remove it." in problem
    assert problem in caplog.text
    add("own", "Rival", package="roberta_plugin")
    with pytest.raises(ValueError, match="--size of own is an option of Base already"):
        composed()


def test_a_composed_class_is_found_where_it_was_made_and_can_be_pickled():
    from roberta_plugin.prediction.predict import PredictSettings
    from roberta_plugin.prediction.settings import PredictSettings as Same

    settings = PredictSettings(model="m", top_k=3)
    assert PredictSettings is Same and pickle.loads(pickle.dumps(settings)) == settings
