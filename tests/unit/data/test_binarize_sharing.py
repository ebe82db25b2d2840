import multiprocessing
import threading

from roberta_plugin.data.binarize_sharing import Sharing


def test_each_claim_gets_one_idle_worker_and_all_leave_with_the_last_reader():
    sharing = Sharing(multiprocessing.get_context(), num_readers=1)
    assert not sharing.claim()
    taken = []

    def work():
        while (part := sharing.take(lambda: False)) is not None:
            taken.append(part)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    num_given = 0
    while num_given < 50:
        if sharing.claim():
            sharing.give(num_given if num_given % 5 else None)  # None: the reader failed after its claim
            num_given += 1
    sharing.end_reader()
    for worker in workers:
        worker.join(10)
    assert not any(worker.is_alive() for worker in workers)
    assert sorted(taken) == [number for number in range(50) if number % 5]
    assert not sharing.claim()


def test_idle_workers_leave_when_the_run_is_stopped():
    sharing = Sharing(multiprocessing.get_context(), num_readers=1)
    assert sharing.take(lambda: True) is None
