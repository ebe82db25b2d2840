"""Faster training steps and answers on a CPU; other devices use torch's own operators.

linear    fp32 linear layers through oneDNN
products  answers in bf16 or int8
dropout   16 random bits per element instead of one Bernoulli draw
"""
