"""Self-attention, with interchangeable backends behind one signature.

self_attention   projections and heads; a backend computes the attention
base             the signature of a backend
registry         the backends for padded batches, and the choice among all of them
packed           backends for packed rows: sequences end to end, without padding
onednn           a CPU backend that keeps the weights of one head in the cache
sequences        bounds of the sequences of a packed row (cu_seqlens, max_seqlen)
"""
