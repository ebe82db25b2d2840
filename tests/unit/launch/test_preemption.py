"""Stop signals are noted, handlers come back, and data-loader workers live on."""

import multiprocessing
import os
import signal
import time

from roberta_plugin.launch.job import PREEMPTION, STOP_SIGNALS
from roberta_plugin.stop_signals import StopSignals


def test_a_signal_is_noted_and_nothing_else_happens():
    for number in STOP_SIGNALS:
        with StopSignals(STOP_SIGNALS) as stop:
            assert stop.received is None
            os.kill(os.getpid(), number)
            assert stop.received is number


def test_the_handlers_of_before_come_back_and_are_known():
    seen = []
    before = signal.signal(PREEMPTION, lambda number, frame: seen.append(number))
    try:
        with StopSignals(STOP_SIGNALS) as stop:
            os.kill(os.getpid(), PREEMPTION)
        assert seen == []
        stop.handlers_before[PREEMPTION](PREEMPTION, None)
        os.kill(os.getpid(), PREEMPTION)
        assert seen == [PREEMPTION, PREEMPTION]
    finally:
        signal.signal(PREEMPTION, before)


def worker(connection):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a data-loader worker has a handler that ends it
    connection.send("ready")
    connection.send(connection.recv())
    time.sleep(60)


def complain(number, frame):
    raise RuntimeError("a data-loader worker has died")


def test_workers_outlive_the_signals_and_end_with_the_training():
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    before = signal.getsignal(signal.SIGCHLD)
    with StopSignals(STOP_SIGNALS):
        signal.signal(signal.SIGCHLD, complain)  # as torch's data loader does
        process = context.Process(target=worker, args=(theirs,), daemon=True)
        process.start()
        assert ours.recv() == "ready"
        os.kill(process.pid, signal.SIGTERM)
        os.kill(process.pid, PREEMPTION)
        ours.send("alive")
        assert ours.poll(10) and ours.recv() == "alive"
    assert process.exitcode == -signal.SIGKILL
    assert signal.getsignal(signal.SIGCHLD) == before


def test_other_children_keep_their_signals():
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=worker, args=(theirs,), daemon=True)
    process.start()
    assert ours.recv() == "ready"
    os.kill(process.pid, signal.SIGTERM)
    process.join(10)
    assert process.exitcode == -signal.SIGTERM
