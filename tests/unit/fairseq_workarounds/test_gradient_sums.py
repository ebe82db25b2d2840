"""Gradients of several ranks: --gradient-sum fp32 rounds their sum once, also as views of buckets."""

import json
from types import SimpleNamespace

import pytest
import torch

from roberta_plugin.fairseq_workarounds.gradient_sums import wrap_model
from tests.unit.fairseq_workarounds.test_hooks import printed

OPTIONS = {"ddp_backend": "pytorch_ddp", "ddp_comm_hook": "none"}
RANKS = """
import json
import sys
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from roberta_plugin.fairseq_workarounds.gradient_sums import wrap_model

RANKS, SIZE = 3, 2000

def gradient_of(rank):
    return (torch.randn(SIZE, generator=torch.Generator().manual_seed(rank)) * 8.0**rank).bfloat16()

def wrapped(gradient_sum, group, is_view):
    '''A model in torch's wrapper, as fairseq makes it but without a GPU.'''
    def fairseqs(options, model, process_group, device):
        process_group = process_group[1] if isinstance(process_group, tuple) else process_group
        return DistributedDataParallel(model, process_group=process_group, gradient_as_bucket_view=is_view)
    model = torch.nn.Linear(SIZE, 1, bias=False).bfloat16()
    model.cfg = SimpleNamespace(gradient_sum=gradient_sum)
    options = SimpleNamespace(ddp_backend="pytorch_ddp", ddp_comm_hook="none")
    return wrap_model(fairseqs, options, model, process_group=group, device="cpu")

def work(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    found = {}
    for gradient_sum in ("fp32", "half"):
        for is_view in (False, True):
            model = wrapped(gradient_sum, ("global", dist.group.WORLD) if is_view else dist.group.WORLD, is_view)
            with model.no_sync():  # two batches of --update-freq; the second one is summed over the ranks
                model(gradient_of(rank)[None]).backward()
            model(gradient_of(rank)[None]).backward()
            found[f"{gradient_sum} {is_view}"] = model.module.weight.grad.flatten().tolist()
    if rank == RANKS - 1:
        print(json.dumps({"found": found, "gradients": [gradient_of(rank).tolist() for rank in range(RANKS)]}), flush=True)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.start_processes(work, args=(sys.argv[1],), nprocs=RANKS, start_method="fork")
"""


def test_the_sum_over_ranks_in_fp32_is_rounded_once(tmp_path):
    lines = printed(RANKS, str(tmp_path), fork_of="fairseq")[0].splitlines()
    answer = json.loads(next(line for line in lines if line.startswith("{")))
    found = {name: torch.tensor(values) for name, values in answer["found"].items()}
    exact = 2 * torch.tensor(answer["gradients"], dtype=torch.float64).mean(dim=0)
    once = exact.float().bfloat16().float()
    assert torch.equal(found["fp32 False"], found["fp32 True"]) and torch.equal(found["half False"], found["half True"])
    assert found["fp32 False"].ne(once).float().mean() < 1e-2, "the third of a sum may round to either side"
    assert found["half False"].ne(once).float().mean() > 0.1, "guard: in bf16 the sum is another one"
    errors = {name: (values - exact).square().sum() for name, values in found.items()}
    assert errors["fp32 False"] < 0.8 * errors["half False"]


@pytest.mark.parametrize(("given", "said"), [
    ({"ddp_backend": "legacy_ddp"}, "needs --ddp-backend pytorch_ddp, and this is legacy_ddp"),
    ({"ddp_comm_hook": "fp16"}, "contradicts --ddp-comm-hook fp16"),
])  # fmt: skip
def test_what_cannot_sum_in_fp32_is_refused(given, said):
    model = torch.nn.Linear(2, 2)
    model.cfg = SimpleNamespace(gradient_sum="fp32")
    is_legacy = given.get("ddp_backend") == "legacy_ddp"
    wrapper = SimpleNamespace() if is_legacy else SimpleNamespace(register_comm_hook=lambda *_: None)
    with pytest.raises(ValueError, match=said):
        wrap_model(lambda *_, **__: wrapper, SimpleNamespace(**{**OPTIONS, **given}), model)


def test_without_the_option_the_wrapper_is_fairseq_s():
    for model in (torch.nn.Linear(2, 2), SimpleNamespace(cfg=SimpleNamespace(gradient_sum="half"))):
        wrapper = object()
        assert wrap_model(lambda *_, wrapper=wrapper: wrapper, SimpleNamespace(**OPTIONS), model) is wrapper
