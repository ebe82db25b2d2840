"""Pronouns that are found again in WNLI are those that SuperGLUE's WSC, made of the same texts, marks."""

import json
import re

import pytest

from roberta_plugin.extensions.pronouns.schemas import align
from tests.real_data import unpack
from tests.tiny_glue import unpack_glue
from tests.unit.extensions.texts.glue.test_prepare import official


def letters(text: str) -> str:
    return re.sub(r"\W+", "", text).lower()


@pytest.fixture
def marked(shared_data, tmp_path_factory):
    """Letters of a text -> the numbers of letters before its marked pronouns."""
    places: dict[str, set[int]] = {}
    for path in unpack(shared_data, "superglue", tmp_path_factory.mktemp("superglue")).rglob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            before = entry["text"].split()[: entry["target"]["span2_index"]]
            places.setdefault(letters(entry["text"]), set()).add(len(letters(" ".join(before))))
    return places


def test_pronouns_are_where_wsc_marks_them(shared_data, marked, tmp_path):
    """The rest, 15 rows, is known: texts of which WSC marks another pronoun than WNLI asks for."""
    glue = unpack_glue(shared_data, tmp_path)
    found = []
    for split, rows in official("WNLI", glue).items():
        for row in rows:
            text = row.texts[0]
            if split != "test" and letters(text) in marked:
                found.append(len(letters(text[: align(*row.texts).start])) in marked[letters(text)])
    assert len(found) > 600
    assert len(found) - sum(found) <= 15
