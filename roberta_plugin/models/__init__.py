"""The model: config -> encoder -> heads. Architecture only; fairseq appears in config, roberta
and roberta_encoder.

config                 options of the architecture, and the sizes tiny, small, base and large
roberta                the registered model `fast_roberta`, in fairseq's words
roberta_encoder        its encoder with the pretraining heads
encoder                ids (B, T)                 -> features (B, T, D); BERT's initial weights
attention/             self-attention and its interchangeable backends
initial_attention      heads that begin by attending to the tokens beside
pretraining_heads      features                   -> logits of the vocabulary, and of next sentences
heads                  features                   -> logits of classes, tags, spans or sentences: fine-tuning
pooling                features                   -> a vector for each text
linear_cross_entropy   features, labels           -> loss, without holding all logits
compiling              torch.compile of the layers, with enough graphs
sharing                layers with the same parameters
adapters               light fine-tuning: frozen layers, low-rank adapters
checkpoints/           state dicts of other layouts, heads and options
precision              a trained model for answers alone, in fp32, bf16 or int8
cpu/                   faster training steps, and faster answers, on a CPU
flops                  FLOPs of a training step, peak FLOP/s of GPUs
"""

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
from roberta_plugin.models import roberta as roberta
