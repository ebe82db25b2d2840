"""A machine that is slower than planned is named once."""

import pytest

from roberta_plugin.pretraining.pace import Pace, in_words


@pytest.mark.parametrize(
    ("seconds_each", "said"), [(5.0, "5 times slower than planned: the rest takes about 1 h 14 min"), (1.2, "")]
)
def test_a_slower_machine_is_named_once_with_the_time_of_the_rest(seconds_each, said):
    time = [0.0]
    pace = Pace(updates=900, hours=900 / 3600, clock=lambda: time[-1])
    remarks = []
    for update in range(1, 60):
        time.append(100 + seconds_each * update)
        remarks.append(pace.remark(update))
    found = list(filter(None, remarks))
    assert len(found) == bool(said) and all(
        said.split(":")[0] in each and "--hours counts an idle machine" in each for each in found
    )


def test_durations_in_words():
    assert [in_words(seconds) for seconds in (12, 840, 4440)] == ["12 s", "14 min", "1 h 14 min"]
