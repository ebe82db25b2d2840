"""The table, the JSON and the advice say what the plan has computed."""

from dataclasses import replace

import pytest

from roberta_plugin.planner.network import MACHINES
from roberta_plugin.planner.plan import plan, plan_table
from roberta_plugin.planner.presentation import as_json, as_markdown, batch_advice
from tests.unit.planner.test_plan import PAPER


def test_both_reports_have_the_same_numbers():
    machine = MACHINES["v100"]
    rows = plan_table(PAPER, counts=[8, 1024], machine=machine)
    facts = as_json(PAPER, rows, machine)
    assert [row["num_gpus"] for row in facts["rows"]] == [8, 1024]
    assert facts["training"]["flops"] == PAPER.flops
    text = as_markdown(PAPER, rows, machine)
    assert "355.4 M parameters, 2.01 GFLOPs per token, 4,194,304 tokens per update" in text
    assert f"| 1,024 | 8 x 1 | {rows[1].step:.3g} |" in text
    assert "too much" not in text
    assert "too much" in as_markdown(PAPER, rows, replace(machine, memory_gb=8))


@pytest.mark.parametrize(
    ("machine", "most_per_gpu", "advised", "advice"),
    [
        ("h100", 32, 128, "with batch_size 128, an update on 8 GPUs has 8 forward passes instead of 32."),
        ("h100", 128, 128, "of the sizes that divide the batch, 128 is the largest."),
        ("v100", 256, 32, "with batch_size 32, an update on 8 GPUs has 32 forward passes instead of 4."),
    ],
)
def test_the_advised_batch_fills_the_gpu_and_divides_the_update(machine, most_per_gpu, advised, advice):
    node = MACHINES[machine]
    training = replace(PAPER, most_per_gpu=most_per_gpu)
    found = batch_advice(training, plan(training, num_gpus=8, machine=node), machine=node)
    assert found.endswith(advice)
    fits, twice = (plan(replace(PAPER, most_per_gpu=size), num_gpus=8, machine=node) for size in (advised, 2 * advised))
    assert fits.memory.total <= 0.9e9 * node.memory_gb < twice.memory.total


def test_a_model_of_which_no_block_fits_is_told_from_one_that_does():
    small = replace(MACHINES["v100"], memory_gb=8.0)
    advice = batch_advice(PAPER, plan(PAPER, num_gpus=8, machine=small), machine=small)
    assert advice.startswith("Not even one block fits into 90% of 8 GB: try checkpoint_activations")
