"""Self-attention, with interchangeable backends behind one signature.

self_attention   projections and heads; a backend computes the attention
base             the signature of a backend, and bounds of the sequences of a packed row (cu_seqlens)
registry         all backends, those for padded batches, and the choice among them
torch_flash      packed rows through torch's own flash kernel, with dropout
onednn           a CPU backend that keeps the weights of one head in the cache
"""
