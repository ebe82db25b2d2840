"""Adversarial NLI (Nie et al. 2020, arXiv 1910.14599): `roberta finetune ANLI`, an extension of roberta_plugin.

benchmark   official files -> examples of classification
"""

from roberta_plugin.registry import BenchmarkFamily, Extension

EXTENSION = Extension("anli", __name__, benchmarks={"anli": BenchmarkFamily(tasks=("ANLI",), rows=".benchmark:TASKS")})
