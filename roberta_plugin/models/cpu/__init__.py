"""What makes a training step fast on a CPU; other devices keep torch's own operators.

linear        fp32 matrix products through oneDNN
dropout       16 random bits per element instead of one Bernoulli draw
activations   the activation functions by name
"""
