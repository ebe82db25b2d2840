"""Minimal pairs: does a masked LM prefer the grammatical sentence of each pair? BLiMP and Zorro, without training.

settings    of `roberta evaluate blimp` and `zorro`
benchmarks  official files                -> paradigms of pairs, published numbers
evaluation  checkpoints and paradigms     -> scores, stored for each checkpoint; right pairs in percent
report      results of the checkpoints    -> tables beside the published numbers, curves over updates
"""
