"""What `roberta prepare` and `roberta inspect` show of texts that are too long."""

import re

from roberta_plugin.cli import main


def check_shown(folder, capsys, *, what, fate):
    """Check that a preparation with --max-length 12 has said how many texts do not fit, and that `inspect` repeats it."""
    pattern = rf"train: (\S+) of (\S+) {what} are longer than 12 tokens and were {fate} \(longest (\d+)\)"
    found = re.search(pattern, shown := capsys.readouterr().out)
    assert found, shown
    longer, number, longest = (int(each.replace(",", "")) for each in found.groups())
    assert 0 < longer <= number and longest > 12
    main(["inspect", str(folder)])
    shown = capsys.readouterr().out
    assert found.group().removeprefix("train: ") in shown
    assert "  max length: 12\n" in shown and "None" not in shown and "[" not in shown
