"""The head of the model that a training starts from: what the training keeps of it."""

from pathlib import Path

import torch

from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.kinds import kind_class
from roberta_plugin.finetuning.starting_head import starting_head, take_over_head
from tests.tiny_conversions import HEAD

PATH = Path("model.pt")


def state_with(kind, labels, *, name=HEAD, num_rows=None, task="made up"):
    rows = num_rows or len(labels)
    weight = torch.arange(rows * 2.0).view(rows, 2)
    prefix = f"{kind.head}_heads.{name}."
    settings = {"labels": labels} if labels else {}
    return {
        "model": {f"{prefix}out_proj.weight": weight, f"{prefix}out_proj.bias": weight[:, 0], f"{prefix}dense.bias": 1},
        "cfg": {"task": {}, "model": {}},
        "task_state": {identity.KEY: {"task": task, "settings": settings}},
    }


def check_rows(name, theirs, ours, rows, said):
    """Check which rows of a head with the labels `theirs` a training with the labels `ours` keeps, and what it says."""
    kind = kind_class(name)({"labels": ours})
    state = state_with(kind, theirs, num_rows=len(theirs) or 2)
    found = starting_head(state, kind, HEAD, checkpoint=PATH)
    assert found.rows == rows
    assert said in found.line if said else not found.line
    prefix = f"{kind.head}_heads.{HEAD}."
    fresh = {
        f"{prefix}out_proj.weight": torch.full((len(ours), 2), -1.0),
        f"{prefix}out_proj.bias": -torch.ones(len(ours)),
    }
    take_over_head(state, kind, HEAD, fresh=fresh, checkpoint=PATH)
    if not rows:
        assert not state["model"], "a new head has nothing of it"
        return
    bias = [-1.0 if row is None else 2.0 * row for row in rows]
    assert state["model"][f"{prefix}out_proj.bias"].tolist() == bias
    assert state["model"][f"{prefix}out_proj.weight"][:, 0].tolist() == bias
    assert state["model"][f"{prefix}dense.bias"] == 1
