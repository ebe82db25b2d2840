"""A lost rank is named; tests/integration/test_lost_ranks.py loses some."""

from types import SimpleNamespace

import pytest

from roberta_plugin.fairseq_workarounds import lost_ranks
from roberta_plugin.signs_of_life import Durations
from tests.conftest import REPOSITORY
from tests.forked_training import run_python
from tests.tiny_corpus import environment


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
    monkeypatch.setattr(lost_ranks, "_watch", FakeWatch(found="rank 1 on node7 (process 9) has sent no heartbeat"))
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


@pytest.fixture
def watch(monkeypatch):
    """A watch in a training whose forward passes take a second."""
    made = SimpleNamespace(steps=0, doing="", updates=Durations(), own_work=Durations())
    monkeypatch.setattr(lost_ranks, "_watch", made)
    monkeypatch.setattr(lost_ranks, "_forward", SimpleNamespace(take=lambda: 1.0))
    monkeypatch.setattr(lost_ranks, "_data_since", None)
    return made


def test_the_signs_say_what_a_rank_is_doing_and_how_long_its_work_takes(watch, monkeypatch):
    now, seen = [0.0], []
    monkeypatch.setattr(lost_ranks.time, "perf_counter", lambda: now[0])

    def passing(seconds):
        def fairseqs(*args):
            seen.append(watch.doing)
            now[0] += seconds

        return fairseqs

    def epoch():
        seen.append(watch.doing)
        for number in range(6):
            now[0] += 2.0  # waiting for data
            lost_ranks.train_step(passing(5.0))
            lost_ranks.validate_and_save((lambda: lost_ranks.validate(passing(50.0))) if number == 0 else print)
            if number == 1:
                lost_ranks.save_checkpoint(passing(500.0))  # by the clock, after fairseq's own end of an update

    lost_ranks.train(epoch)
    assert seen == ["beginning an epoch", "updating", "validating", "updating", "saving", *["updating"] * 4]
    assert watch.doing == ""
    assert (watch.steps, watch.updates.median) == (6, 5.0)
    assert (watch.own_work.median, watch.own_work.worst) == (3.0, 3.0), "the first update has not waited for data"


def test_a_rank_that_ends_writes_the_stacks_of_all_its_threads_and_names_the_nodes():
    program = """if True:
        import threading
        from roberta_plugin.fairseq_workarounds import lost_ranks
        from roberta_plugin.signs_of_life import Verdict

        def hangs():
            threading.Event().wait()

        threading.Thread(target=hangs, daemon=True).start()
        lost_ranks.on_lost.append(lambda error: print(error.nodes))
        lost_ranks.end_process(Verdict("rank 3 on n2 has sent no heartbeat", ("n2",)))
    """
    done = run_python(program, cwd=REPOSITORY, environment=environment(), fork_of="fairseq")
    assert done.returncode == lost_ranks.EXIT_CODE, done.stderr
    assert done.stdout == "('n2',)\n"
    assert " in hangs\n" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("LostRankError: Lost rank: rank 3 on n2")
