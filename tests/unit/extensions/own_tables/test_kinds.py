"""Kinds of tables of your own."""

from roberta_plugin.finetuning.benchmarks import kind_of_task
from roberta_plugin.finetuning.kinds import own_kinds
from roberta_plugin.finetuning.options import own_kind_names


def test_kinds_of_tables_are_values_of_kind():
    assert {name.replace("_", "-") for name in own_kinds()} | {"pair"} == set(own_kind_names())
    assert kind_of_task("custom") is None
