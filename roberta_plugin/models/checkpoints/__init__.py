"""Checkpoints: reading them safely, and building and filling models from them.

loading    a file -> tensors and plain values, nothing run
building   these -> a model, from an allow-list of names and options
options    these -> the options that build a model like it
heads      heads and sizes beside those of the model that loads it
pairs      segment embeddings and next-sentence prediction, which only one of the two may have
names      parameter names: older fairseq -> ours
"""
