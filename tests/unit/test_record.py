"""One sentence names each difference of two records, by option, old and new value, and the remedy."""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.record import differences, listed, moved, options_of, refuse

SETTINGS = {"max_length": 40, "labels": ["a", "b"], "log_interval": 5, "sha256": "1" * 64}
NAMES = {"data": "--data", "--max-update": "--epochs", "--warmup-updates": ""}


@pytest.mark.parametrize(
    ("before", "now", "options", "expected"),
    [
        (SETTINGS, dict(reversed(SETTINGS.items())), {}, ""),
        ({"a": None}, {}, {}, ""),
        (SETTINGS, SETTINGS | {"max_length": 30}, {}, "--max-length was 40 and is 30 now"),
        (SETTINGS, SETTINGS | {"labels": []}, {"named": str}, "labels was a, b and is nothing now"),
        (SETTINGS, SETTINGS | {"sha256": "2" * 64}, {"named": str}, "sha256 was 11111111 and is 22222222 now"),
        ({"of": {"x": 1, "y": ""}}, {"of": {}}, {"named": str}, "of was x 1, y '' and is nothing now"),
        (SETTINGS, SETTINGS | {"log_interval": 9}, {"free": lambda name: name.startswith("log")}, ""),
        (
            {"lr": "1", "cpu": "true"},
            {"lr": "3", "bf16": "true"},
            {},
            "--lr was 1 and is 3 now; --cpu was true and is not given now; --bf16 was not given and is true now",
        ),
        (options_of(["d", "--lr", "1", "--bf16"]), options_of(["d", "--bf16", "--lr", "1"]), {}, ""),
        (options_of(["d", "--lr", "1", "--bf16"]), options_of(["d", "--lr=1", "--bf16"]), {}, ""),
        (
            options_of(["d", "--keep", "1", "2", "--bf16"]),
            options_of(["e", "--keep", "1", "3"]),
            {"named": lambda name: NAMES.get(name, name)},
            "--data was d and is e now; --keep was 1 2 and is 1 3 now; --bf16 was given and is not given now",
        ),
        (
            options_of(["--max-update", "9", "--warmup-updates", "1"]),
            options_of(["--max-update", "8", "--warmup-updates", "2"]),
            {"named": lambda name: NAMES.get(name, name)},
            "--epochs was 9 and is 8 now",  # the other follows from it
        ),
        (
            options_of(["--warmup-updates", "1"]),
            options_of(["--warmup-updates", "2"]),
            {"named": lambda name: NAMES.get(name, name)},
            "--warmup-updates was 1 and is 2 now",
        ),
    ],
)
def test_each_difference_is_named_with_the_old_and_the_new_value(before, now, options, expected):
    found = differences(before, now, **options)
    assert listed(found) == expected
    sentence = re.escape(f"runs/a was made with other settings: {expected}. Delete it.")
    with pytest.raises(ValueError, match=f"^{sentence}$") if expected else nullcontext():
        refuse("runs/a was made with other settings", found, "Delete it.")


def test_paths_beside_a_folder_that_was_moved_move_along():
    def now(path, before="/a/RTE/runs"):
        return moved(path, before=before, now=Path("/b/RTE/runs"))

    assert [now("/a/RTE/data"), now("/a/RTE/runs/x")] == ["/b/RTE/data", "/b/RTE/runs/x"]
    assert [now("/a/RTE-2/data"), now("1e-5"), now("/a/RTE/data", None)] == ["/a/RTE-2/data", "1e-5", "/a/RTE/data"]


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "is empty"), (b'{"lr', "not valid JSON"), (b"[]", "instead of an object")]
)
def test_a_record_comes_back_equal_and_a_damaged_one_is_named_with_the_remedy(tmp_path, content, message):
    path = tmp_path / "record.json"
    write_json(path, SETTINGS)
    assert differences(read_json(path, keys=("sha256",), remedy="delete it") or {}, SETTINGS) == []
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"record.json .*{message}.*: delete it"):
        read_json(path, keys=("sha256",), remedy="delete it")
