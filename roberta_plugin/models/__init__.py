"""The model: config -> encoder -> heads. Architecture only; fairseq appears in config, roberta, roberta_encoder and
checkpoints.

config                 options of the architecture, and the sizes tiny, mini, small, base and large
roberta                the registered model `fast_roberta`, in fairseq's words
roberta_encoder        its encoder with the heads of pretraining: ids -> features at all or some positions
encoder                ids (B, T)                 -> features (B, T, D)
sharing                layers with the same parameters
initial_weights        BERT's, and heads that attend to the neighboring tokens
initial_counts         embeddings, heads and LM head that begin as counts of neighboring tokens
attention              self-attention and the choice among its backends
positions              rotary positions, and which layers attend to a local window
attention_kernels      their signature; attention on a CPU, and of packed rows on a GPU
hopper_attention       attention of packed rows by cuDNN and FlashAttention-3
gelu                   GELU after a linear layer
gelu_kernels           its kernels for a GPU, in Triton
fp8                    a training's products in 8-bit floating point
compiling              torch.compile of layers, embeddings, head and loss
heads                  features                   -> logits of the vocabulary, next sentences, classes, tags, spans
linear_cross_entropy   features, labels           -> loss, without holding all logits
adapters               light fine-tuning: frozen layers, low-rank adapters
checkpoints            a checkpoint -> its model, by its options
state_dicts            its parameters: names of other layouts, and what of them fits a model
head_parameters        heads of a checkpoint and of the model
precision              a trained model for predictions alone, in fp32, bf16 or int8
cpu                    faster training steps, and faster predictions, on a CPU
flops                  FLOPs of a training step, peak FLOP/s of GPUs
"""

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
from roberta_plugin.models import roberta as roberta
