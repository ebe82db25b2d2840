"""Options of extensions in the pretraining task of fairseq."""

import dataclasses
import logging
import typing

import pytest
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from hydra.core.config_store import ConfigStore

import roberta_plugin
from roberta_plugin import registry
from roberta_plugin.data.dynamic_masking import Masker
from roberta_plugin.registry import MASKINGS, Extension, MaskingEntry, register
from roberta_plugin.settings import setting
from roberta_plugin.tasks import masked_lm, masked_lm_options
from roberta_plugin.tasks.joined_options import join_options, options_of
from tests.refusals import refused
from tests.tiny_corpus import write_data_bin

roberta_plugin.register()


@dataclasses.dataclass
class Base:
    masking: str = setting("uniform", "how tokens are chosen")
    seed: int = setting(1, "a seed")


@dataclasses.dataclass
class Mine:
    power: float = setting(0.5, "a power", smallest=0)
    names: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Taken:
    seed: int = setting(2, "another seed")


class OwnMasker(Masker):
    pass


HERE = __name__


@pytest.fixture
def added(monkeypatch):
    """Add maskings for a test."""
    registry.find_extensions()
    monkeypatch.setattr(registry, "extensions", dict(registry.extensions))
    monkeypatch.setattr(registry, "problems", registry.problems)
    monkeypatch.setattr(MASKINGS, "_entries", dict(MASKINGS._entries))
    monkeypatch.setattr(MASKINGS, "_owners", dict(MASKINGS._owners))
    before = TASK_DATACLASS_REGISTRY[masked_lm.RobertaMaskedLMTask.name]
    monkeypatch.setitem(TASK_DATACLASS_REGISTRY, masked_lm.RobertaMaskedLMTask.name, before)
    monkeypatch.setattr(masked_lm_options, "RobertaMaskedLMConfig", before)

    def add(name, options=""):
        entry = MaskingEntry(f"{HERE}:OwnMasker", options and f"{HERE}:{options}")
        register(Extension(f"{name}_masking", "own", maskings={name: entry}))

    yield add
    setattr(masked_lm.RobertaMaskedLMTask, "__dataclass", before)
    name = masked_lm.RobertaMaskedLMTask.name
    ConfigStore.instance().store(name=name, group="task", node=before(_name=name), provider="fairseq")
    del registry.problems[:]


def test_the_options_of_an_entry_come_after_ours_and_go_with_it(added):
    added("own", "Mine")
    joined = join_options(Base, [("masking", MASKINGS)], name="Joined")
    fields = {item.name: item for item in dataclasses.fields(joined)}
    assert [*fields] == ["masking", "seed", "power", "names"]
    assert fields["masking"].metadata["help"].startswith("how tokens are chosen")
    assert fields["masking"].metadata["help"].endswith("; one of uniform, own")
    assert fields["power"].metadata["goes_with"] == {"masking": ("own",)}
    assert typing.get_type_hints(joined)["power"] is float
    assert joined(power=2.0).power == 2.0 and joined().names == []
    assert options_of(MASKINGS, "own", joined(power=2.0)) == Mine(power=2.0)
    assert options_of(MASKINGS, "uniform", joined()) is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("Taken", "--seed of own is an option of Base already"),
        ("Missing", ""),
        ("OwnMasker", "must be called with a dataclass type or instance"),
    ],
)
def test_options_that_cannot_be_added_are_left_out_with_one_line(added, caplog, options, reason):
    added("own", options)
    caplog.clear()
    del registry.problems[:]  # each line is logged once in a process
    with caplog.at_level(logging.WARNING):
        joined = join_options(Base, [("masking", MASKINGS)], name="Joined")
    assert [item.name for item in dataclasses.fields(joined)] == ["masking", "seed"]
    (line,) = {record.getMessage() for record in caplog.records}
    assert line.startswith("The options 'own' of own are not used: ") and reason in line
    assert line.endswith(". Install a version of own that suits, or remove it.")


def test_a_late_extension_adds_its_masking_and_options_to_the_registered_task(added, tmp_path):
    data = str(write_data_bin(tmp_path))
    added("own", "Mine")
    config = TASK_DATACLASS_REGISTRY["roberta_masked_lm"]
    task_class = TASK_REGISTRY["roberta_masked_lm"]
    assert vars(task_class)["__dataclass"] is config is masked_lm_options.RobertaMaskedLMConfig
    cfg = config(data=data, tokens_per_sample=32, seed=1, masking="own", power=1.5)
    masker = task_class.setup_task(cfg).build_masker()
    assert type(masker) is OwnMasker and masker.options == Mine(power=1.5)
    refused(
        "--power goes with --masking own: give that, or leave --power out.",
        task_class.setup_task,
        config(data=data, power=1.5),
    )
    refused("--power must be 0 or more, got -1.", task_class.setup_task, config(data=data, masking="own", power=-1))
    refused(
        "--masking lost: There is no masking 'lost'; there are uniform, own. Install the package that brings it, or "
        "name its folder by --user-dir.",
        task_class.setup_task,
        config(data=data, masking="lost"),
    )
