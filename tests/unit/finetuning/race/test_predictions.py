"""Answers of multiple choice."""

import numpy as np

from roberta_plugin.kinds.choices import answers


def test_the_answer_is_the_most_probable_option_and_the_first_of_equal_ones():
    chances = np.array([0.2, 0.5, 0.3, 0.5, 0.5])
    assert answers(chances, np.array([0, 3, 5])).tolist() == [1, 0]
