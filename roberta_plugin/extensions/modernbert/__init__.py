"""Hugging Face's ModernBERT: reads its folders, and writes models with its layers as such folders.

family   config.json and names of parameters <-> options and names of ours
"""

from roberta_plugin.registry import Extension

EXTENSION = Extension(
    "modernbert", __name__, position=140, moved={"conversion.modernbert": ".family"}, families={"modernbert": ".family"}
)
