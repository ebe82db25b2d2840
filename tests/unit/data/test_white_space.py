"""White space is what Hugging Face's tokenizers take for it, character by character."""

import pytest
from tokenizers import Regex, normalizers

from roberta_plugin.data.white_space import WHITE_SPACE, is_blank, one_line, rstrip, strip
from roberta_plugin.finetuning.records import as_read

SAMPLE = [*(chr(code) for code in range(0x21)), *WHITE_SPACE[6:], "\u180e", "\u200b", "\u2060", "\ufeff"]


def test_it_is_that_of_strip_and_of_regular_expressions_over_all_code_points():
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    text = "".join(characters)
    kept = set(normalizers.Replace(Regex(r"\s"), "").normalize_str(text))
    strip_theirs = normalizers.Strip().normalize_str
    wanted = sorted(WHITE_SPACE)
    assert [each for each in characters if each not in kept] == wanted
    assert [each for each in characters if is_blank(each)] == wanted
    assert [each for each in characters if not strip_theirs(each)] == wanted


@pytest.mark.parametrize("space", SAMPLE, ids=ascii)
def test_a_text_is_read_as_exported_tokenizers_read_it(space):
    text = f"{space} a {space}{space}b{space} {space}"
    theirs = normalizers.Strip().normalize_str(text)
    runs = normalizers.Replace(Regex(r"\s+"), " ").normalize_str(text)
    assert strip(text) == as_read(text, "stripped") == theirs
    assert rstrip(text) == normalizers.Strip(left=False).normalize_str(text)
    assert one_line(text) == as_read(text, "one_line") == normalizers.Strip().normalize_str(runs)
