"""What minicons 0.3.39 says about sentences, kept in a file because it needs pandas, accelerate and pillow.

A small model of random weights is exported to Hugging Face's format, as `roberta export` does, and minicons opens that.
Written by: pip install minicons==0.3.39 "transformers<5" && python -m tests.parity.minicons_results
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch

from tests.tiny_checkpoints import state_of
from tests.tiny_tokenizers import train_tokenizer

FILE = Path(__file__).with_name("minicons_0.3.39.json")
TEXT = (
    "The cats that the dog chases don't sleep; some of them aren't here, and a cat was never seen there again.\n" * 20
)
TEXTS = [
    "The cats that the dog chases don't sleep.",
    "The cats that the dog chases doesn't sleep.",
    "Who was never seen there?",
    "cats",
    "Unbelievably, antidisestablishmentarianism wasn't seen in 1969 ...",
    "No caf\u00e9 was seen (\"again\"), and some of the dogs aren't cats: they're here!",
    "is the whale getting the person ?",
]
METRICS = {"pll": "original", "pll-word-l2r": "within_word_l2r"}


def write_model(folder: Path) -> Path:
    """A checkpoint of the model, with its tokenizer."""
    (folder / "text.txt").write_text(TEXT)
    train_tokenizer("byte_level_bpe", [folder / "text.txt"], vocab_size=330, folder=folder)
    torch.save(state_of(folder, max_positions=100), folder / "model.pt")
    return folder


def main() -> None:
    """Write the file anew."""
    from minicons import scorer

    from roberta_plugin.cli import main as roberta

    with tempfile.TemporaryDirectory() as name:
        folder = write_model(Path(name))
        roberta(["export", str(folder), "--to", "huggingface", "--output-dir", str(folder / "exported")])
        model = scorer.MaskedLMScorer(str(folder / "exported"), "cpu")
    found = {
        method: [[log_prob for _, log_prob in tokens] for tokens in model.token_score(TEXTS, PLL_metric=metric)]
        for method, metric in METRICS.items()
    }
    tokens = [[token for token, _ in text] for text in model.token_score(TEXTS, PLL_metric="original")]
    FILE.write_text(json.dumps({"tokens": tokens, **found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
