"""What a kind says of itself agrees with the heads, tasks, options and outputs that the other rooms have."""

from dataclasses import fields

import pytest

import roberta_plugin
from roberta_plugin.finetuning.benchmarks import kind_of_task
from roberta_plugin.finetuning.kinds import KINDS, OWN, TASK_KINDS, kind_class, table_kind
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.kinds.tables import TableKind
from roberta_plugin.finetuning.options import OWN_KINDS
from roberta_plugin.models.heads import HEADS
from roberta_plugin.prediction.settings import PredictSettings


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_found_by_its_name_with_a_head_and_outputs_that_exist(name):
    kind, entry = kind_class(name), KINDS[name]
    assert kind.name == name
    assert kind.head in (*HEADS, "masked_lm", "")
    assert set(kind.outputs) <= set(RawOutputs._fields)
    assert issubclass(kind, TableKind) >= entry.is_own
    assert set(entry.options) <= {item.name for item in fields(PredictSettings)}
    assert entry.task_kind in ("", *TASK_KINDS)


def test_a_kind_is_trained_by_a_task_that_names_its_head_as_the_kind_does():
    roberta_plugin.register()  # another test may not have imported fairseq before
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    trained = [kind_class(name) for name in KINDS if name not in ("fill_mask", "score")]
    for kind in trained:
        assert CRITERION_REGISTRY[kind.task].name == kind.task
        if kind.head not in ("", "masked_lm"):
            assert TASK_DATACLASS_REGISTRY[kind.task]().classification_head_name == kind.default_head_name


def test_kinds_of_tables_are_values_of_kind():
    assert {name.replace("_", "-") for name in OWN} | {"pair"} == set(OWN_KINDS)
    with pytest.raises(ValueError, match=r"no kind 'pronoun' of own data, as prepared\.json has it; there are classif"):
        table_kind({"kind": "pronoun"})
    with pytest.raises(ValueError, match=r"window_pooling of prepared\.json is 'x', which is none of mean, max"):
        _ = table_kind({"kind": "classification", "window_pooling": "x"}).window_pooling
    with pytest.raises(ValueError, match="no kind of task 'sorting'; there are fill_mask"):
        kind_class("sorting")


def test_a_task_has_the_kind_of_its_benchmark():
    assert kind_of_task("squad2") == "question_answering" and kind_of_task("STS-B") == "regression"
    assert kind_of_task("custom") is kind_of_task("unknown") is None
