"""Which rank is missing, from heartbeats in a store; tests/integration/test_heartbeats.py loses some."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from roberta_plugin.fairseq_workarounds import heartbeats
from roberta_plugin.fairseq_workarounds.heartbeats import (
    FEWEST,
    NUM_KEPT,
    STALL_LIMITS,
    UPDATING,
    Durations,
    ForwardClock,
    Heartbeat,
    Heartbeats,
    Slowest,
    Verdict,
    Watch,
)
from tests.conftest import REPOSITORY
from tests.forked_training import run_python
from tests.tiny_corpus import environment

BEAT_S = 0.02
ALIVE = Heartbeat(count=1, steps=4, host="node7", process=123)


def test_a_rank_whose_heartbeat_stays_the_same_is_silent():
    beats = Heartbeats(beat_s=1.0)
    beats.note(0, ALIVE)
    beats.note(1, ALIVE)
    for count in range(2, 7):
        beats.pass_time(1.0)
        beats.note(0, replace(ALIVE, count=count))
        beats.note(1, ALIVE)
    assert beats.silent(6.0) == Verdict()
    text = "rank 1 on node7 (process 123) has sent no heartbeat for 5 s"
    assert beats.silent(5.0) == Verdict(text, ("node7",))


def test_a_rank_that_was_itself_stopped_accuses_nobody():
    """As in a job that is suspended for an hour and resumed."""
    beats = Heartbeats(beat_s=1.0)
    beats.note(1, ALIVE)
    beats.pass_time(3600.0)
    assert beats.silent(3.0) == Verdict()


def test_a_rank_at_its_end_is_not_missed_and_one_that_failed_is_quoted():
    beats = Heartbeats(beat_s=1.0)
    beats.note(1, replace(ALIVE, has_left=True))
    beats.note(2, replace(ALIVE, error="ValueError: no"))
    beats.pass_time(2.0)
    text = "rank 2 on node7 (process 123) has ended with ValueError: no"
    assert beats.silent(2.0) == Verdict(text), "its node is not at fault"


def hang(seconds, *beats_of):
    """Ranks that send heartbeats for so long, and begin no step."""
    beats = Heartbeats(beat_s=1.0)
    for count in range(seconds):
        for rank, sign in enumerate(beats_of):
            beats.note(rank, replace(sign, count=count))
        beats.pass_time(1.0)
    return beats


def test_the_rank_with_the_fewest_steps_holds_up_the_others():
    late = replace(ALIVE, steps=4, host="node8", doing="saving")
    beats = hang(50, replace(ALIVE, steps=5), late, replace(ALIVE, steps=5))
    assert beats.silent(2.0) == Verdict()
    assert beats.behind(11.0) == Verdict()
    text = "no step was begun for 50 s: step 5 waits for rank 1 on node8 (process 123), which is saving"
    assert beats.behind(50 / STALL_LIMITS) == Verdict(text, ("node8",))
    beats.note(1, replace(ALIVE, count=50, steps=6))
    assert beats.behind(10.0) == Verdict()


def test_without_a_rank_behind_nobody_is_accused():
    assert hang(50, ALIVE, ALIVE).behind(10.0) == Verdict("no step was begun for 50 s; all ranks are in step 4")


@pytest.mark.parametrize(
    ("doing", "update_s", "patience"),
    [
        (UPDATING, 0.5, 20),  # twice the limit
        (UPDATING, 2.0, 40),  # twenty updates
        (UPDATING, 0.0, 50),  # not known yet
        ("saving", 0.5, 50),
        ("validating", 4.0, 80),
    ],
)
def test_patience_is_several_updates_and_longer_for_checkpoints_and_validation(doing, update_s, patience):
    updating = replace(ALIVE, doing=UPDATING, update_s=0.5)
    busy = replace(ALIVE, doing=doing, update_s=update_s)
    assert hang(patience - 1, updating, busy).behind(10.0) == Verdict()
    assert hang(patience, updating, busy).behind(10.0).text


def test_the_slowest_rank_is_the_one_with_the_longest_work_of_its_own():
    beats = hang(1, *(replace(ALIVE, host=f"n{rank}", own_s=own) for rank, own in enumerate((1.0, 1.2, 3.0, 1.0))))
    assert beats.slowest() == Slowest(rank=2, host="n2", median_s=3.0, worst_s=0.0, all_s=1.1)
    beats.note(1, ALIVE)
    assert beats.slowest() is None, "a rank that has not measured yet"
    assert hang(1, replace(ALIVE, own_s=1.0)).slowest() is None, "a rank alone"


def test_before_the_first_step_nobody_is_hurried():
    assert hang(1000, replace(ALIVE, steps=0)).behind(10.0) == Verdict()


class BreakingStore:
    """A store of rank 0, which is there for the others until `breaks` is set."""

    def __init__(self, store):
        self._store = store
        self.breaks = False

    def __getattr__(self, name):
        if self.breaks:
            raise dist.DistNetworkError("Connection reset by peer")
        return getattr(self._store, name)


class Clock:
    """Time that passes while all threads wait, of which one runs at once: a busy machine changes nothing.

    It takes the place of the modules `time` and `threading`, for code that waits by what is defined here.
    """

    Lock = staticmethod(threading.Lock)

    def __init__(self):
        self.now, self._turns, self._waiting, self._running = 0.0, threading.Condition(), [], None

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.wait(seconds, lambda: False)

    def wait(self, seconds, is_over):
        """Let others run until so much time has passed or `is_over`; whether it is."""
        with self._turns:
            self._take_turn(self._queued(seconds, is_over))
        return is_over()

    def _queued(self, seconds, is_over):
        place = (self.now + seconds, is_over)
        self._waiting.append(place)
        return place

    def _take_turn(self, place):
        self._pass_turn()
        self._turns.wait_for(lambda: self._running is place)

    def _pass_turn(self):
        at, place = min(
            ((self.now if each[1]() else each[0], each) for each in self._waiting), key=lambda pair: pair[0]
        )
        self.now, self._running = max(self.now, at), place
        self._waiting.remove(place)
        self._turns.notify_all()

    def Event(self):  # noqa: N802 -- as in threading
        flag = SimpleNamespace(value=False)
        return SimpleNamespace(
            set=lambda: setattr(flag, "value", True),
            is_set=lambda: flag.value,
            wait=lambda seconds: self.wait(seconds, lambda: flag.value),
        )

    def Thread(self, target, daemon):  # noqa: N802
        has_ended = threading.Event()

        def run(place):
            with self._turns:
                self._turns.wait_for(lambda: self._running is place)
            try:
                target()
            finally:
                with self._turns:
                    has_ended.set()
                    self._pass_turn()

        def start():
            threading.Thread(target=run, args=(self._queued(0.0, lambda: True),), daemon=daemon).start()

        return SimpleNamespace(start=start, join=lambda seconds: self.wait(seconds, has_ended.is_set))


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(heartbeats, "time", made)
    monkeypatch.setattr(heartbeats, "threading", made)
    return made


class Ranks:
    """Watches of several ranks, in one process; what they end with is kept."""

    def __init__(self, clock, number, limit_s=0.4):
        self.ends, self._clock = {}, clock
        store = dist.HashStore()
        self.stores = [BreakingStore(store) for _ in range(number)]
        self.watches = [
            Watch(
                self.stores[rank],
                rank=rank,
                world_size=number,
                limit_s=limit_s,
                beat_s=BEAT_S,
                end=lambda found, rank=rank: self.ends.setdefault(rank, found.text),
            )
            for rank in range(number)
        ]
        for watch in self.watches:
            watch.start()

    def lose(self, rank):
        """As a rank that is killed: it writes nothing more, and takes the store along if it is rank 0."""
        for store in self.stores if rank == 0 else [self.stores[rank]]:
            store.breaks = True

    def stop(self):
        for watch in self.watches:
            watch.is_over.set()
        self._clock.sleep(10.0)


@pytest.fixture
def ranks(clock):
    made = Ranks(clock, 3)
    yield made
    made.stop()


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_all_other_ranks_end_and_name_the_lost_one(clock, ranks, lost):
    clock.sleep(10 * BEAT_S)
    ranks.lose(lost)
    clock.sleep(0.4 - 2 * BEAT_S)
    assert ranks.ends == {}, "before the limit"
    clock.sleep(10 * BEAT_S)
    others = {rank: found for rank, found in ranks.ends.items() if rank != lost}
    assert sorted(others) == [rank for rank in range(3) if rank != lost]
    assert all(found.startswith(f"rank {lost} on ") and "no heartbeat" in found for found in others.values())


def test_ranks_that_give_beats_of_life_go_on_without_a_step(clock, ranks):
    clock.sleep(4.0)  # the limit is 0.4
    assert ranks.ends == {}
    assert ranks.watches[1].suspects() == ""


@pytest.mark.parametrize("lost", [0, 1])
def test_a_failed_collective_finds_its_rank_before_the_limit(clock, lost):
    ranks = Ranks(clock, 3, limit_s=1000.0)
    try:
        clock.sleep(10 * BEAT_S)
        ranks.lose(lost)
        assert ranks.watches[2].suspects().startswith(f"rank {lost} on ")
    finally:
        ranks.stop()


def test_an_orderly_end_is_not_missed_and_an_error_is_handed_on(clock, ranks):
    clock.sleep(10 * BEAT_S)
    ranks.watches[2].leave()
    ranks.watches[1].leave("ValueError: no such file")
    assert "rank 1 on" in (found := ranks.watches[0].suspects())
    assert found.endswith("has ended with ValueError: no such file")


def test_median_and_worst_of_the_last_ones():
    durations = Durations()
    for _ in range(FEWEST - 1):
        durations.append(9.0)
    assert durations.median_and_longest() == (0.0, 0.0)
    for number in range(NUM_KEPT):
        durations.append(float(number % 10))
    assert durations.median_and_longest() == (4.5, 9.0)


def test_forward_passes_of_an_update_add_up_and_those_of_a_validation_do_not_count(monkeypatch):
    now, model = iter(range(100)), torch.nn.Linear(2, 2)  # each look at the clock a second later
    monkeypatch.setattr(heartbeats, "time", SimpleNamespace(perf_counter=lambda: float(next(now))))
    clock = ForwardClock(model)
    assert clock.take() is None
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()
    model.eval()
    model(torch.ones(1, 2))
    assert clock.take() == 2.0
    assert clock.take() is None


@pytest.mark.parametrize("text", ["soon", "-1", "3", "inf", "nan"])
def test_a_limit_that_is_not_one_is_refused(monkeypatch, text):
    monkeypatch.setenv(heartbeats.VARIABLE, text)
    with pytest.raises(ValueError, match=f"ROBERTA_LOST_RANK_SECONDS is '{text}': give seconds, 10 or more, or 0"):
        heartbeats.limit_s()


def test_the_limit_is_five_minutes_unless_given(monkeypatch):
    monkeypatch.delenv(heartbeats.VARIABLE, raising=False)
    assert heartbeats.limit_s() == 300
    monkeypatch.setenv(heartbeats.VARIABLE, "0")
    assert heartbeats.limit_s() == 0


class FakeWatch(SimpleNamespace):
    """Says what it was made with, and keeps what it hears."""

    def suspects(self):
        return self.found

    def leave(self, words):
        self.words = words


def fail(error):
    with heartbeats.watched():
        raise error


GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer"


@pytest.mark.parametrize(
    ("found", "error", "message"),
    [
        ("rank 1 on node7 (process 9) has sent no heartbeat", RuntimeError(GLOO), "Lost rank: rank 1 on node7"),
        ("rank 1 is gone", ValueError("no"), r"^no$"),  # an error of our own stays as it is, and is handed on
        ("", RuntimeError("gloo: out of buffers"), r"^gloo"),  # nobody is missing
    ],
)
def test_the_error_of_a_collective_names_the_lost_rank_and_others_stay(monkeypatch, found, error, message):
    watch = FakeWatch(found=found)
    monkeypatch.setattr(heartbeats, "_watch", watch)
    is_lost = message.startswith("Lost")
    with pytest.raises(heartbeats.LostRankError if is_lost else type(error), match=message) as caught:
        fail(error)
    assert not is_lost or GLOO in str(caught.value.__cause__)
    assert not isinstance(error, ValueError) or watch.words == "ValueError: no"


def test_the_process_that_starts_the_ranks_adds_nothing():
    def starts(code):
        def call():
            raise heartbeats.ProcessExitedException("a rank ended", error_index=0, error_pid=1, exit_code=code)

        return call

    with pytest.raises(SystemExit) as end:
        heartbeats.call_main(starts(heartbeats.EXIT_CODE))
    assert end.value.code == heartbeats.EXIT_CODE
    with pytest.raises(heartbeats.ProcessExitedException):
        heartbeats.call_main(starts(1))


@pytest.fixture
def watch(monkeypatch):
    """A watch in a training whose forward passes take a second."""
    made = SimpleNamespace(heartbeat=heartbeats.Heartbeat(), updates=Durations(), own_work=Durations())
    monkeypatch.setattr(heartbeats, "_watch", made)
    monkeypatch.setattr(heartbeats, "_forward", SimpleNamespace(take=lambda: 1.0))
    monkeypatch.setattr(heartbeats, "_data_since", None)
    return made


def test_the_heartbeats_say_what_a_rank_is_doing_and_how_long_its_work_takes(watch, monkeypatch):
    now, seen = [0.0], []
    monkeypatch.setattr(heartbeats.time, "perf_counter", lambda: now[0])

    def passing(seconds):
        def fairseqs(*args):
            seen.append(watch.heartbeat.doing)
            now[0] += seconds

        return fairseqs

    def epoch():
        seen.append(watch.heartbeat.doing)
        for number in range(6):
            now[0] += 2.0  # waiting for data
            heartbeats.train_step(passing(5.0))
            heartbeats.validate_and_save((lambda: heartbeats.validate(passing(50.0))) if number == 0 else print)
            if number == 1:
                heartbeats.save_checkpoint(passing(500.0))  # by the clock, after fairseq's own end of an update

    heartbeats.train(epoch)
    assert seen == ["beginning an epoch", "updating", "validating", "updating", "saving", *["updating"] * 4]
    assert watch.heartbeat.doing == ""
    assert (watch.heartbeat.steps, watch.updates.median_and_longest()[0]) == (6, 5.0)
    assert watch.own_work.median_and_longest() == (3.0, 3.0), "the first update has not waited for data"


def test_a_rank_that_ends_writes_the_stacks_of_all_its_threads_and_names_the_nodes():
    program = """if True:
        import threading
        from roberta_plugin.fairseq_workarounds import heartbeats
        from roberta_plugin.fairseq_workarounds.heartbeats import Verdict

        def hangs():
            threading.Event().wait()

        threading.Thread(target=hangs, daemon=True).start()
        heartbeats.on_lost.append(lambda error: print(error.nodes))
        heartbeats.end_process(Verdict("rank 3 on n2 has sent no heartbeat", ("n2",)))
    """
    done = run_python(program, cwd=REPOSITORY, environment=environment(), fork_of="fairseq")
    assert done.returncode == heartbeats.EXIT_CODE, done.stderr
    assert done.stdout == "('n2',)\n"
    assert " in hangs\n" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("LostRankError: Lost rank: rank 3 on n2")


def test_many_ranks_beat_more_slowly_and_five_times_within_the_limit():
    beats = {
        (ranks, limit): heartbeats.seconds_a_beat(ranks, limit_s=limit)
        for ranks in (2, 256, 1024)
        for limit in (10, 300)
    }
    assert beats == {(2, 10): 2, (2, 300): 2, (256, 10): 2, (256, 300): 2, (1024, 10): 2, (1024, 300): 8}
