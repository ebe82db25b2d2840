import pytest

from roberta_plugin.demo.prose import is_prose, paragraphs_of


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        (
            "Return the sum of all the values.\n\nThe second line is\nwrapped over two of them.",
            ["Return the sum of all the values.", "The second line is wrapped over two of them."],
        ),
        (
            "Compute something useful from the input.\n\n>>> compute(1, 2)\n3\n\nIt works on lists of any length too.",
            ["Compute something useful from the input.", "It works on lists of any length too."],
        ),
        (
            "Use it as in the following example::\n\n    x = call(the, words, in, here, look, like, prose)\n\n"
            "After the example the text goes on.",
            ["Use it as in the following example:", "After the example the text goes on."],
        ),
        (
            "Parameters\n----------\nx : array_like\n    The values to be sorted along the last axis.",
            ["The values to be sorted along the last axis."],
        ),
        (
            ":param name: the name of the file that will be read",
            ["the name of the file that will be read"],
        ),
        (
            "- the first point is made of several words\n- the second point has a few more of them",
            ["the first point is made of several words", "the second point has a few more of them"],
        ),
        (
            "See :class:`~torch.nn.Module` and ``forward`` for *all* the details you need [1]_.",
            ["See torch.nn.Module and forward for all the details you need."],
        ),
        ("x1 = f(y_2) + g[3] {4} -> 5 ; 6 7 8", []),
        ("Too short.", []),
        ("", []),
    ],
)
def test_only_prose_stays_and_it_is_clean(docstring, expected):
    assert list(paragraphs_of(docstring)) == expected


def test_a_paragraph_never_holds_a_line_break():
    paragraphs = list(paragraphs_of("First line of a longer text\n  with a second line\n\tand a third one in it."))
    assert paragraphs
    assert not any("\n" in paragraph or "\t" in paragraph for paragraph in paragraphs)


def test_prose_is_mostly_words():
    assert is_prose("This is a sentence with quite enough words.")
    assert not is_prose("0x00 0x01 0x02 0x03 this is the table of bytes 0x04 0x05 0x06 0x07 0x08")
