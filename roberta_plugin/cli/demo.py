"""`roberta demo`: `roberta pretrain` on the docstrings of this Python; the same command resumes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from roberta_plugin.cli import pretrain
from roberta_plugin.cli.command import command
from roberta_plugin.pretraining.recipe import load
from roberta_plugin.pretraining.run import PretrainSettings
from roberta_plugin.settings import Checked, setting


@dataclass(frozen=True, kw_only=True)
class DemoSettings(Checked):
    """The fields are options of `roberta demo`."""

    output_dir: Path = setting(Path("runs/demo"), "folder for all files of the run")
    updates: int = setting(8000, "length of the pretraining: some four minutes of a fast core", smallest=20)
    seed: int = setting(1, "seed of weights, masks and order")


@command(DemoSettings)
def demo(settings: DemoSettings) -> int:
    """Takes text from the docstrings of the installed Python and pretrains a small RoBERTa on it, as `roberta pretrain`
    does with your own. Nothing is downloaded. After an interruption, the same command resumes.
    """
    from roberta_plugin.pretraining.docstrings import SPLITS, documents, write_corpus

    folder, recipe = settings.output_dir.absolute(), load("demo")
    text = {split: folder / "corpus" / f"{split}.txt" for split in SPLITS}
    if not text["train"].is_file():
        pretrain.say("Text: the docstrings in the source files of this Python")
        text["train"].parent.mkdir(parents=True, exist_ok=True)
        write_corpus(text["train"].parent, documents())
    of_text = PretrainSettings(
        data=[str(text["train"])],
        valid=[str(text["valid"])],
        test=[str(text["test"])],
        vocab_size=recipe.vocab_size,
        recipe="demo",
        updates=settings.updates,
        output_dir=folder,
    )
    return pretrain.run(of_text, further=["--cpu", "--seed", str(settings.seed)])
