"""A lost rank is named; tests/integration/test_lost_ranks.py loses some."""

from types import SimpleNamespace

import pytest

from roberta_plugin.fairseq_workarounds import lost_ranks


@pytest.mark.parametrize("text", ["soon", "-1", "3", "inf", "nan"])
def test_a_limit_that_is_not_one_is_refused(monkeypatch, text):
    monkeypatch.setenv(lost_ranks.VARIABLE, text)
    with pytest.raises(ValueError, match=f"ROBERTA_LOST_RANK_SECONDS is '{text}': give seconds, 10 or more, or 0"):
        lost_ranks.limit_s()


def test_the_limit_is_five_minutes_unless_given(monkeypatch):
    monkeypatch.delenv(lost_ranks.VARIABLE, raising=False)
    assert lost_ranks.limit_s() == 300
    monkeypatch.setenv(lost_ranks.VARIABLE, "0")
    assert lost_ranks.limit_s() == 0


class FakeWatch(SimpleNamespace):
    """Says what it was made with, and keeps what it hears."""

    def suspects(self):
        return self.found

    def leave(self, words):
        self.words = words


def fail(error):
    with lost_ranks.watched():
        raise error


def test_the_error_of_a_collective_names_the_lost_rank(monkeypatch):
    monkeypatch.setattr(lost_ranks, "_watch", FakeWatch(found="rank 1 on node7 (process 9) has given no sign of life"))
    with pytest.raises(lost_ranks.LostRankError, match="Lost rank: rank 1 on node7") as caught:
        fail(RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer"))
    assert "Connection closed by peer" in str(caught.value.__cause__)


def test_an_error_of_our_own_stays_as_it_is_and_is_handed_on(monkeypatch):
    watch = FakeWatch(found="rank 1 is gone")
    monkeypatch.setattr(lost_ranks, "_watch", watch)
    with pytest.raises(ValueError, match=r"^no$"):
        fail(ValueError("no"))
    assert watch.words == "ValueError: no"


def test_where_nobody_is_missing_the_error_stays_as_it_is(monkeypatch):
    monkeypatch.setattr(lost_ranks, "_watch", FakeWatch(found=""))
    with pytest.raises(RuntimeError, match=r"^gloo"):
        fail(RuntimeError("gloo: out of buffers"))


def test_the_process_that_starts_the_ranks_adds_nothing():
    def starts(code):
        def call():
            raise lost_ranks.ProcessExitedException("a rank ended", error_index=0, error_pid=1, exit_code=code)

        return call

    with pytest.raises(SystemExit) as end:
        lost_ranks.call_main(starts(lost_ranks.EXIT_CODE))
    assert end.value.code == lost_ranks.EXIT_CODE
    with pytest.raises(lost_ranks.ProcessExitedException):
        lost_ranks.call_main(starts(1))
