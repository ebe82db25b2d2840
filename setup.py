"""Packaging of roberta_plugin; the tool settings live in the dotfiles beside this file."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ONNX = ["onnx>=1.17", "onnxruntime>=1.20", "onnxscript>=0.7"]  # for `roberta export --to onnx`
PARQUET = ["pyarrow>=16"]  # for Parquet, Arrow, and the folders of the library datasets
ZST = ["backports.zstd>=1"]  # for .zst
HTTP = ["aiohttp>=3.9"]  # for https://; other protocols need packages of their own, such as s3fs
SUMMARIES = ["rouge-score>=0.1.2"]  # evaluates extractive summaries
SENTENCES = ["syntok>=1.4.4"]  # for `roberta binarize --split-sentences`
COMPLETION = ["shtab>=1.7"]  # for `roberta --print-completion`
NOUN_PHRASES = ["textblob>=0.19"]  # for WNLI, WSC and WinoGrande; includes its English lexicon
TEST = [
    "pytest>=8",
    "pytest-xdist>=3.5",
    "hypothesis>=6.100",
    "transformers>=5.23",
    "peft>=0.17",
    "sentence-transformers>=6",
    *ONNX,
    *PARQUET,
    *ZST,
    *HTTP,
    *SUMMARIES,
    *SENTENCES,
    *NOUN_PHRASES,
    *COMPLETION,
]
DEV = [*TEST, "ruff>=0.9", "mypy>=1.14", "pre-commit>=4"]


def recipes():
    """The files that a user copies, by folder: `roberta user-dir --recipes` finds them in an installed wheel."""
    names = ("*.yaml", "*.sh", "*.sbatch", "*.def", "Dockerfile", "*.py")
    found = sorted(path for top in ("slurm", "examples") for name in names for path in Path(top).rglob(name))
    return [
        (folder, [str(path) for path in found if path.parent == folder]) for folder in {path.parent for path in found}
    ]


VERSION = re.findall(r'^__version__ = "(.+)"$', Path("roberta_plugin/__init__.py").read_text(), flags=re.MULTILINE)[0]

setup(
    name="roberta_plugin",
    version=VERSION,
    description="The complete RoBERTa (Liu et al. 2019) as a fairseq plugin",
    long_description=(Path(__file__).parent / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    author="The maintainers of roberta_plugin",
    keywords=["RoBERTa", "fairseq", "masked language model", "pretraining", "fine-tuning"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    python_requires=">=3.11,<3.13",
    packages=find_packages(include=["roberta_plugin", "roberta_plugin.*"]),
    package_data={"roberta_plugin": ["py.typed", "launch/recipes/*.yaml", "extensions/*/*.yaml"]},
    data_files=[(f"share/roberta_plugin/{folder}", files) for folder, files in recipes()],
    install_requires=[
        # fairseq's own 0.12.2 fails at import on Python 3.11; this is fairseq main, built for 3.11 and 3.12,
        # and it imports as `fairseq`. See "Which fairseq" in README.md.
        "ve-fairseq==0.12.3",
        "torch>=2.7",
        "numpy>=2",
        "sentencepiece>=0.2.2",  # gives the character offsets of tokens
        "sacremoses>=0.1.1",
        "submitit>=1.5.4",
        "tokenizers>=0.22",
        "huggingface_hub>=0.34",  # models by name; tokenizers brings it along
        "safetensors>=0.4.3",
        "protobuf>=4.21",  # reads the scores in SentencePiece models
        "gigatoken>=0.10,<0.11; platform_system == 'Linux'",  # elsewhere the plain engine gives the same ids
        "fsspec>=2024.2",  # text by URL; torch requires it, too
        "typing-extensions>=4.10",  # marks what overrides a method; torch requires it, too
        "pyyaml>=6",
        "tensorboardX>=2.6",  # writes --tensorboard-logdir
        "matplotlib>=3.8.4",
        "tqdm>=4.66",
        "regex>=2025.11",
        "scipy>=1.16",
        "scikit-learn>=1.4.2",  # the baseline of text classification; fairseq requires it, too
        "packaging>=22",  # reads requirements, for `roberta doctor`
    ],
    extras_require={
        "onnx": ONNX,
        "parquet": PARQUET,
        "zst": ZST,
        "http": HTTP,
        "summaries": SUMMARIES,
        "sentences": SENTENCES,
        "noun-phrases": NOUN_PHRASES,
        "tensorboard": ["tensorboard>=2.17"],  # shows the curves
        "completion": COMPLETION,
        "test": TEST,
        "dev": DEV,
    },
    entry_points={"console_scripts": ["roberta = roberta_plugin.cli:main"]},
)
