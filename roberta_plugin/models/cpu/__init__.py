"""Faster training steps on a CPU; other devices use torch's own operators.

linear    fp32 linear layers through oneDNN
dropout   16 random bits per element instead of one Bernoulli draw
"""
