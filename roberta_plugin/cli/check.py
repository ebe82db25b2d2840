"""`roberta check`: what is in a text, before anything is trained on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from roberta_plugin.cli.command import command
from roberta_plugin.data.text_inputs import InputSettings, LineRules
from roberta_plugin.data.text_inputs_files import TextInput
from roberta_plugin.progress import Progress
from roberta_plugin.reports import markdown_table
from roberta_plugin.settings import REQUIRED, Checked, setting


@dataclass(frozen=True, kw_only=True)
class CheckSettings(Checked):
    """Settings of `roberta check`, whose options they are."""

    text: Sequence[str] = setting(REQUIRED, "text files, tables, patterns or URLs", flag="text", nargs="+")
    valid: Sequence[str] = setting(
        (), "held-out text", nargs="+", action="extend", default_text="what `roberta pretrain` would hold out"
    )
    tokenizer: Sequence[Path] = setting(
        (),
        "tokenizers to compare on the text: folders, or names such as openai-community/gpt2",
        nargs="+",
        gives="tokenizer",
    )


@command(CheckSettings, LineRules, InputSettings, skip=("keep_spaces", "split_sentences", "skip_bad_lines"))
def check(settings: CheckSettings, rules: LineRules, reading: InputSettings) -> int:
    """Looks at a text for pretraining: its size, repeated lines, lines that are also in the held-out part, HTML,
    letters in a wrong encoding, normal forms, control characters, scripts, and how tokenizers split it. Shows the first
    lines with each fault, and what to do. More than 100 MB are sampled.
    """
    from roberta_plugin.pretraining.text_look import NOT_COMPARED, look_at

    reading = replace(reading, rules=rules)
    sources = [reading.sources(patterns) if patterns else [] for patterns in (settings.text, settings.valid)]
    reading.check_used(source for each in sources for source in each)
    for source in (source for each in sources for source in each):
        if source.is_stream:
            raise ValueError(f"{source.name} is a pipe, which can be read only once: write the text to a file first.")
    total = sum(source.size for source in sources[0])
    with Progress("reading the text", total) as bar:
        look = look_at(*sources, rules=rules, on_read=lambda num_bytes: bar.show(bar.n + num_bytes))
    if not look.check.lines:
        names = ", ".join(source.name for source in sources[0])
        raise ValueError(f"{names[:200]}: there is no text, only blank lines or nothing.")
    print("\n".join(look.check.describe()))
    if look.is_too_large:
        print(NOT_COMPARED)
    if look.overlap is not None and not look.overlap_is_large:
        print(look.overlap.describe())
    if settings.tokenizer:
        print(f"\n{table_of_tokenizers(settings.tokenizer, sources[0], rules)}")
    warnings = look.warnings()
    print("\n" + "\n".join(f"- {warning}" for warning in warnings) if warnings else "\nNo faults found.")
    return 0


def table_of_tokenizers(folders: Sequence[Path], sources: Sequence[TextInput], rules: LineRules) -> str:
    """The figures of each tokenizer on the beginning of the text."""
    from roberta_plugin.data.tokenizers import load_tokenizer
    from roberta_plugin.data.tokenizers.figures import measure
    from roberta_plugin.pretraining.texts import documents

    rows = []
    for folder in folders:
        lines = (line for document in documents(sources, replace(rules, skip_bad_lines=True)) for line in document)
        figures = measure(load_tokenizer(folder), lines)
        assert figures is not None
        rows.append(
            (
                folder.name,
                f"{figures.tokens_per_word:.2f}",
                f"{figures.bytes_per_token:.2f}",
                f"{figures.whole:.1%}",
                f"{figures.unknown:.2%}",
            )
        )
    head = ("tokenizer", "tokens per word", "bytes per token", "words that are one token", "unknown tokens")
    return markdown_table(head, rows)
