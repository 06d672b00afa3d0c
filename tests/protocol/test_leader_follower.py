"""Tasks that take turns: one waits for work, and whoever received some does it at once."""

from collections.abc import Callable

import trio
import trio.testing

from fleetd.server.connection import LeaderFollowers


class Post:
    """Pieces of work that come in, each done when the test says so."""

    def __init__(self) -> None:
        self.send, self._come = trio.open_memory_channel[str](100)
        self.begun: list[str] = []
        self.by: dict[str, str] = {}
        self.finish: dict[str, trio.Event] = {}

    async def receive(self) -> str | None:
        try:
            return await self._come.receive()
        except trio.EndOfChannel:
            return None

    async def work(self, piece: str) -> None:
        self.begun.append(piece)
        self.by[piece] = str(id(trio.lowlevel.current_task()))
        await self.finish.setdefault(piece, trio.Event()).wait()

    def done(self, *pieces: str) -> None:
        for piece in pieces:
            self.finish.setdefault(piece, trio.Event()).set()


async def run(post: Post, left: Callable[[], None] = lambda: None) -> None:
    async with trio.open_nursery() as nursery:
        await LeaderFollowers(nursery, post.receive, post.work).run()
    left()


async def test_work_begins_in_the_order_it_came_while_earlier_work_goes_on(
    nursery: trio.Nursery,
) -> None:
    post = Post()
    nursery.start_soon(run, post)
    for piece in "abcde":
        post.send.send_nowait(piece)
    await trio.testing.wait_all_tasks_blocked()
    assert post.begun == list("abcde")
    post.done(*"abcde")
    post.send.close()


async def test_two_tasks_are_enough_for_work_that_comes_piece_by_piece(
    nursery: trio.Nursery,
) -> None:
    post = Post()
    nursery.start_soon(run, post)
    for piece in "abcdefgh":
        post.send.send_nowait(piece)
        await trio.testing.wait_all_tasks_blocked()
        post.done(piece)
        await trio.testing.wait_all_tasks_blocked()
    assert len(set(post.by.values())) == 2
    post.send.close()


async def test_after_a_crowd_only_one_task_waits_beside_the_one_that_receives() -> None:
    post = Post()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, post)
        for piece in "abcdefgh":
            post.send.send_nowait(piece)
        await trio.testing.wait_all_tasks_blocked()
        post.done(*"abcdefgh")
        await trio.testing.wait_all_tasks_blocked()
        (relay,) = nursery.child_tasks
        (inner,) = relay.child_nurseries
        # The first of them may be the one that opened the nursery.
        assert len(inner.child_tasks) <= 2
        nursery.cancel_scope.cancel()


async def test_it_is_over_when_nothing_comes_any_more_and_all_is_done() -> None:
    post = Post()
    over = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, post, over.set)
        post.send.send_nowait("a")
        post.send.close()
        await trio.testing.wait_all_tasks_blocked()
        assert not over.is_set()
        post.done("a")
        await over.wait()


async def test_who_waits_for_a_turn_can_be_cancelled(nursery: trio.Nursery) -> None:
    post = Post()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as inner:
            inner.start_soon(run, post)
            post.send.send_nowait("a")
            post.done("a")
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught
