"""What `roberta prepare` and `roberta inspect` show of texts that are too long."""

import re

from roberta_plugin.cli import main
from tests.tiny_benchmarks import write_tokenizer


def check_shown(folder, capsys, task, *options, what, fate):
    """Check that `roberta prepare` of files in FOLDER/raw says how many texts do not fit, and that `inspect` repeats it."""
    words = (
        "--raw",
        folder / "raw",
        "--tokenizer",
        write_tokenizer(folder / "tokenizer"),
        "--max-length",
        12,
        *options,
    )
    assert main(["prepare", task, *map(str, words), "--output-dir", str(folder / "out")]) == 0
    pattern = rf"train: (\S+) of (\S+) {what} are longer than 12 tokens and were {fate} \(longest (\d+)\)"
    found = re.search(pattern, shown := capsys.readouterr().out)
    assert found, shown
    longer, number, longest = (int(each.replace(",", "")) for each in found.groups())
    assert 0 < longer <= number and longest > 12
    main(["inspect", str(folder / "out")])
    shown = capsys.readouterr().out
    assert found.group().removeprefix("train: ") in shown
    assert "  max length: 12\n" in shown and "None" not in shown and "[" not in shown
