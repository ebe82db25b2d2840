"""The table of tasks and the packages behind it agree."""

import pytest

import roberta_plugin
from roberta_plugin.finetuning.benchmarks import BENCHMARKS, TASKS, benchmark_of
from roberta_plugin.kinds import KINDS, OWN, kind_class


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_a_suite_that_knows_it(task):
    benchmark = benchmark_of(task)
    for name in ("prepare", "recipe", "score", "paper"):
        assert hasattr(benchmark, name)


def test_every_fairseq_task_is_registered_with_a_criterion_of_its_name():
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    roberta_plugin.register()  # another test may not have imported fairseq before
    for name in {kind_class(kind).task for kind in OWN}:
        assert TASK_REGISTRY[name].__module__.startswith("roberta_plugin.")
        assert CRITERION_REGISTRY[name].__module__.startswith("roberta_plugin.")
    assert {folder.kind for folder in BENCHMARKS.values()} - {""} <= KINDS.keys()


def test_an_unknown_task_is_named_with_those_there_are():
    with pytest.raises(ValueError, match=r"no fine-tuning task 'cola'; there are CoLA, "):
        benchmark_of("cola")
