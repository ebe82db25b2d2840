"""How far a study is, and how long it will take at the speed since this start."""

from roberta_plugin.experiments.studies.progress import StudyProgress


def test_time_left_counts_the_work_of_this_start_only():
    seconds = 100.0
    progress = StudyProgress(1000.0, now=lambda: seconds)
    progress.begin(0.4)  # 40 % were done before
    assert progress.describe(0.4) == "study: 40 % of the work done"
    seconds = 160.0  # 20 % in a minute: the other 40 % take two
    assert progress.describe(0.6) == "study: 60 % of the work done, about 0:02:00 left"


def test_the_work_of_earlier_stages_counts():
    progress = StudyProgress(10.0)
    progress.finish(4.0)
    assert progress.share(1.0) == 0.5
    assert progress.share(99.0) == 1.0
    assert StudyProgress(0.0).share(0.0) == 1.0
