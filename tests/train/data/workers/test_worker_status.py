from __future__ import annotations

import os

from roost.train.data.workers.worker_status import Board, Post


def test_what_is_told_in_a_worker_is_seen_here() -> None:
    board = Board(3)
    assert [board.sample(worker) for worker in range(3)] == [None] * 3
    child = os.fork()
    if child == 0:
        post = Post(1, 3, board)
        for index in (7, 0):
            post.reading(index)
        os._exit(0)
    os.waitpid(child, 0)
    assert [board.sample(worker) for worker in range(3)] == [None, 0, None]
    assert [board.num_begun(worker) for worker in range(3)] == [0, 2, 0]
    board.tell(1, -1)
    assert board.sample(1) is None and board.num_begun(1) == 3
    board.close()


def test_the_end_is_heard_everywhere() -> None:
    board = Board(1)
    child = os.fork()
    if child == 0:
        board.end()
        os._exit(3 if board.has_ended else 4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert board.has_ended and board.num_begun(0) == 0 and board.sample(0) is None
    board.close()
