"""A training step with XLM-R's vocabulary of 250,002 symbols: memory and time beside fairseq's `roberta`.

    python -m tests.benchmarks.bench_vocabulary [--write] [--blocks 4 16] [--layers 2]

Models of base's width (768, 12 heads) and few layers, since the layers are not what is measured; blocks of 512 tokens
of which 15 % are predicted, no dropout, fp32, one thread. Each measurement is a process of its own. "Beyond the
weights" is what the peak of the resident set grows by in the second step, forward and backward, over the weights and
their gradients; fairseq's loss is that of its criterion `masked_lm` (the logits of the masked positions, a
log-softmax in fp32). CPU seconds are the median of the steps after the first.
"""

from __future__ import annotations

from tests.benchmarks.harness import Report, apart, load, options

VOCABULARY, LENGTH, STEPS = 250_002, 512, 3
MEASURE = """
import json, resource, sys, time
from tests.benchmarks.bench_vocabulary import step_of
side, blocks, layers, steps = sys.argv[1], *map(int, sys.argv[2:])
step, model = step_of(side, blocks=blocks, layers=layers)
weights = sum(parameter.numel() * 4 for parameter in model.parameters())
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
for parameter in model.parameters():
    parameter.grad = parameter.detach().clone()
before, seconds, losses = resident(), [], []
for _ in range(steps):
    start = time.process_time()
    losses.append(step())
    seconds.append(time.process_time() - start)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"beyond": peak - before, "weights": weights, "seconds": seconds[1:], "loss": losses[0]}))
"""


def step_of(side: str, *, blocks: int, layers: int):
    """A function that makes a step of a model of this side and returns its loss, and the model."""
    from argparse import Namespace

    import torch
    import torch.nn.functional as F
    from fairseq.models.roberta import RobertaModel
    from fairseq.models.roberta.model import base_architecture

    from roberta_plugin.models.roberta import FastRobertaModel
    from tests.tiny_models import TinyTask, gathered

    options = Namespace(
        encoder_layers=layers, max_positions=LENGTH, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0
    )
    task = TinyTask(num_symbols=VOCABULARY - 5, max_positions=LENGTH)
    torch.manual_seed(1)
    if side == "fairseq":
        base_architecture(options)
        model = RobertaModel.build_model(options, task)
    else:
        model = FastRobertaModel.build_model(options, task)
    tokens = torch.randint(5, VOCABULARY - 1, (blocks, LENGTH))
    masked = torch.rand(tokens.shape).lt(0.15)
    targets = torch.randint(5, VOCABULARY - 1, (int(masked.sum()),))
    predicted = gathered(masked, targets)

    def step() -> float:
        if side == "fairseq":
            logits = model(tokens, masked_tokens=masked)[0]
            loss = F.nll_loss(F.log_softmax(logits, dim=-1, dtype=torch.float32), targets, reduction="sum")
        else:
            loss = model(tokens, predicted=predicted)[0]
        loss.backward()
        return float(loss) / len(targets)

    return step, model


def main() -> None:
    """Measure both sides in turn."""
    parser = options(__doc__)
    parser.add_argument("--blocks", type=int, nargs="+", default=[4, 16], help="blocks of a step")
    parser.add_argument("--layers", type=int, default=2)
    args = parser.parse_args()
    report = Report("vocabulary_cpu1", "Training with 250,002 symbols", __doc__)
    report.text(load("start"))
    rows = []
    for blocks in args.blocks:
        words = (blocks, args.layers, STEPS)
        found = {side: apart(MEASURE, side, *words, OMP_NUM_THREADS="1") for side in ("fairseq", "ours")}
        for side, result in found.items():
            ratio = result["beyond"] / found["ours"]["beyond"]
            seconds = sorted(result["seconds"])[len(result["seconds"]) // 2]
            row = (blocks, side, f"{result['beyond'] / 1e6:,.0f}", f"{ratio:.1f}", f"{seconds:.1f}")
            rows.append((*row, f"{result['loss']:.3f}"))
    report.rows(("blocks", "side", "beyond the weights, MB", "x ours", "CPU s a step", "loss, nats"), rows)
    report.text(f"The weights have {result['weights'] / 1e6:,.0f} MB, and their gradients as much.")
    report.show(write=args.write)


if __name__ == "__main__":
    main()
