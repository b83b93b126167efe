"""The partitions that are ours, with a runner for each. Lives in the runners' loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.counted import counted
from snapreplay.errors import AccessError, Reaction, SnapreplayError
from snapreplay.service.config.settings import Settings
from snapreplay.service.control.operations import OnDone, OperationState
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.assignment import Holding, Share
from snapreplay.service.core.phase import Phase
from snapreplay.service.core.refusals import DuplicateInstance
from snapreplay.service.core.repeats import Repeats
from snapreplay.service.partition.runner import PartitionRunner, tell_defect
from snapreplay.service.partition.standby import Standbys, StandbyTask
from snapreplay.service.partition.takeovers import Takeovers
from snapreplay.service.ports import Cluster, ConsumerGroup, EndSeen, Reader, TopicPartition
from snapreplay.service.preflight import inspect
from snapreplay.service.runtime.broadcasting import as_seen_by
from snapreplay.service.runtime.context import ClusterView, Context, Identity
from snapreplay.service.runtime.pulse import Pulse
from snapreplay.service.runtime.tasks import watched, with_app
from snapreplay.service.runtime.witnesses import Witnesses
from snapreplay.service.topics.requirements import MissingInput, own_topics

log = logging.getLogger("snapreplay.supervisor")

# Kafka clients refresh metadata as often; a changed partition count moves keys at once.
WATCH_SECONDS = 30.0
TOPIC_WATCH_SECONDS = 1.0
END_WATCH_SECONDS = 1.0
_NOTHING = Share()


class Supervisor:
    """Starts and ends runners as the group says, in the runners' loop. A partition keeps its runner through a
    rebalance, until the group has given it to another process: the fence keeps that safe."""

    def __init__(
        self,
        app: App[Any],
        settings: Settings,
        cluster: Cluster,
        view: ClusterView,
        identity: Identity,
        board: StatusBoard,
        on_failed: Callable[[int, BaseException], None],
    ) -> None:
        """Take `on_failed`, which hears what made a partition FAILED, or a DuplicateInstance."""
        cluster = as_seen_by(app, cluster)
        self._app, self._settings, self.cluster = app, settings, cluster
        self._view, self._board, self._on_failed = view, board, on_failed
        self.group: ConsumerGroup | None = None
        """Whom to ask after a fence; to be set before the first assignment."""
        self.pulse = Pulse()
        """Of the runners' loop: tells them about standstills; to be set before the first assignment."""
        self._copies = asyncio.Semaphore(1)  # a takeover does not wait for copies that are loaded
        witness_group = names.witness_group(app.app_id)
        self._witnesses = Witnesses(witness_group)
        restores = asyncio.Semaphore(settings.restore.concurrency)
        common = Context(app, settings, cluster, view, identity, partition=-1, restores=restores)
        self._common = replace(common, witnesses=self._witnesses, neighbours=lambda: len(self._runners))
        """What the partitions share; `_context` fills in the rest."""
        self._increments = names.increments_topic(app.app_id)
        self._committer = cluster.offset_committer(witness_group)
        self._runners: dict[int, PartitionRunner] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._ending: dict[int, asyncio.Task[None]] = {}
        self._shrinking: asyncio.Task[None] | None = None
        self._stopped = False
        # Not ours any more, and not ended. By task, because one partition may have several.
        self._held: dict[asyncio.Task[None], PartitionRunner] = {}
        self._undo: dict[asyncio.Task[None], Callable[[], None]] = {}  # of their release
        self._refused: SnapreplayError | None = None
        self._inspecting = asyncio.Lock()  # else an older answer may come last, and refuse what was repaired
        self.standbys = Standbys(self._copying, board, lambda number: number in self._runners or number in self._ending)
        """The warm copies of others' partitions."""
        self._given: tuple[set[int], Share] = set(), Share()  # the last assignment
        patience_seconds = settings.group.session_timeout_ms / 1000
        self._takeovers = Takeovers(app.app_id, self.standbys, patience_seconds, self._start, self._again, self._rejoin)
        self._retries: dict[OnDone, asyncio.Task[None]] = {}
        self._unsaved_before: list[SnapreplayError] = []
        self.unsaved: list[SnapreplayError] = []
        """After `stop`: the states that were nowhere else and could not be written in time."""
        self._watches = [
            asyncio.get_running_loop().create_task(watch)
            for watch in (
                self._watch_cluster(),
                self._watch_topics(),
                self._watch_ends(),
                self._witnesses.keep_writing(self._committer),
            )
        ]

    @property
    def holding(self) -> Holding:
        """The partitions that are processed or copied here, without those that the group has given away: it would give
        them back. Any thread."""
        given, share = self._given  # a restarted static member is given what the share names as its predecessor's
        given_away = share.owned_besides(self._common.identity.process_id) - given - self.taken_over
        facts = {number: runner.facts for number, runner in dict(self._runners).items() if number not in given_away}
        owned = {number: each for number, each in facts.items() if each.phase is not Phase.FENCED}
        epochs = {number: each.owner_epoch for number, each in owned.items() if each.owner_epoch is not None}
        replicas = self._settings.standby.replicas
        return Holding(frozenset(owned), self.standbys.warm, replicas, epochs, self.standbys.lags)

    @property
    def taken_over(self) -> frozenset[int]:
        """The partitions that are processed here although the group has not given them to us yet. Any thread."""
        return self._takeovers.partitions

    @property
    def runners(self) -> Mapping[int, PartitionRunner]:
        """The runners of the partitions that are ours now."""
        return self._runners

    @property
    def held(self) -> frozenset[int]:
        """The partitions that have a runner, also those that it only ends. Any thread."""
        ending = (runner.increments.partition for runner in tuple(self._held.values()))
        return frozenset(self._runners).union(ending)

    def assigned(self, partitions: set[int], share: Share = _NOTHING) -> None:
        """Apply the whole new assignment, and hold the copies of this share only. After `stop` nothing starts: this
        process is a member a little longer."""
        if self._stopped:
            return
        self._given = partitions, share
        under_way = self.taken_over & self._runners.keys()
        fenced = frozenset(number for number in under_way if self._runners[number].phase is Phase.FENCED)
        partitions = partitions | self._takeovers.assigned(partitions, share, fenced)
        if self._shrinking is not None:
            self._shrinking.cancel()
        if set(self._runners) - partitions:
            shrinking = asyncio.get_running_loop().create_task(self._shrink(partitions))
            self._shrinking = watched(shrinking, "the release of partitions")
        for runner in self._runners.values():
            runner.on_reassigned()
        for number in sorted(partitions - set(self._runners)):
            if not self._taken_back(number):
                self._start(number)
        gives_away = self.group is not None and self.group.gives_away
        # An assignment without any partition may mean only that a topic does not exist any more.
        if share.owned or share.copies or gives_away or any(peer.owned for peer in share.peers):
            self.standbys.hold(set(share.copies), frozenset(share.next), self._rejoin)

    def take_over(self, process_id: str, why: str, *, silent_seconds: float | None) -> None:
        """Take over from a process that seems to be dead. The group learns of it by our claim."""
        if not self._stopped and self._refused is None:
            self._takeovers.suspect(process_id, why, silent_seconds=silent_seconds)

    def retry(self, number: int, done: OnDone) -> None:
        """Let a FAILED partition recover again; the cluster is inspected before. `done` hears what became of it."""
        runner = self._runners.get(number)
        if runner is None:
            done(OperationState.FAILED, None, "this process no longer owns the partition")
            return
        task = self._retries[done] = asyncio.get_running_loop().create_task(self._retry(runner, done))

        def ended(task: asyncio.Task[None]) -> None:
            self._retries.pop(done, None)
            if task.cancelled():  # where `withdraw` did it, this changes nothing any more
                done(OperationState.FAILED, None, "the process has stopped")

        task.add_done_callback(ended)

    def withdraw(self, number: int, done: OnDone) -> None:
        """Withdraw what `done` waits for: it is not begun, or given up."""
        if (retry := self._retries.get(done)) is not None:
            retry.cancel()
        if (runner := self._runners.get(number)) is not None:
            runner.withdraw(done)

    def stand_aside(self, error: DuplicateInstance) -> None:
        """End every partition and let it wait for a new assignment: another process has the same instance id."""
        for runner in self._runners.values():
            runner.refuse(error)

    async def stop(self, *, last_snapshot: bool, deadline_seconds: float) -> None:
        """End every runner after its batch, and a last snapshot if asked for. What is late is cut off."""
        self._stopped = True
        self._takeovers.end()
        copies = asyncio.get_running_loop().create_task(self.standbys.end())
        for retry in self._retries.values():
            retry.cancel()
        if self._shrinking is not None:
            self._shrinking.cancel()
        for runner in self._runners.values():
            runner.stop(last_snapshot=last_snapshot)
        # They may be waiting for a topic, so the watch continues.
        self._held |= {self._tasks[number]: runner for number, runner in self._runners.items()}
        self._runners.clear()
        ending, tasks = list(self._held.values()), list(self._held)
        if tasks:
            held, began = counted(len(tasks), "partition"), asyncio.get_running_loop().time()
            log.info("%s: the current batch is finished, then they end", held)
            _, late = await asyncio.wait(tasks, timeout=deadline_seconds)
            for task in late:
                task.cancel()
            if late:
                ended = counted(len(late), "partition")
                log.warning("%s did not end within %.1f s", ended, deadline_seconds)
                await asyncio.wait(late)
            log.info("%s ended after %.2f s", held, asyncio.get_running_loop().time() - began)
        for watch in self._watches:
            watch.cancel()  # those of the topics and the ends have something to close
        await asyncio.wait(self._watches)
        await asyncio.wait([copies])
        await self._witnesses.end(self._committer)
        self.unsaved = [error for runner in ending if (error := runner.unsaved) is not None]
        self.unsaved += self._unsaved_before

    async def _shrink(self, partitions: set[int]) -> None:
        """Release what is not assigned, unless the topic is deleted: then the group assigns nothing."""
        increments, said = self._increments, Repeats()
        while True:
            try:
                there = increments in await self.cluster.topic_ids([increments])
            except SnapreplayError as error:
                now = asyncio.get_running_loop().time()
                line = said.line(f"partitions are not released yet: {error}", now)
                if line is not None:
                    log.warning("%s", line)
                await asyncio.sleep(TOPIC_WATCH_SECONDS)
                continue
            break
        for number in sorted(set(self._runners) - partitions - self.taken_over) if there else ():
            self._release(number)

    def _again(self) -> None:
        """Take the last assignment once more: what was taken over is not ours."""
        self.assigned(*self._given)

    def _rejoin(self) -> None:
        if self.group is not None:
            self.group.rejoin()

    def _context(self, number: int) -> Context:
        return replace(self._common, view=self._view, partition=number, group=self.group, pulse=self.pulse)

    def _copying(self, number: int) -> Context:
        return replace(self._context(number), restores=self._copies)

    def _start(self, number: int) -> None:
        failed, claimed = partial(self._on_failed, number), partial(self._takeovers.claimed, number)
        runner = PartitionRunner(self._context(number), self._board, failed, claimed)
        self._runners[number] = runner
        if self._refused is not None:
            runner.refuse(self._refused)
        started = _after(self._ending.get(number), self.standbys.taken(number), runner)
        task = asyncio.get_running_loop().create_task(started, name=with_app(f"partition-{number}"))
        self._tasks[number] = task
        task.add_done_callback(partial(tell_defect, runner))

    def _taken_back(self, number: int) -> bool:
        """Resume a runner that still has the state of a partition that is ours again."""
        task = self._ending.get(number)
        runner = self._held.get(task) if task is not None else None
        if task is None or runner is None or not runner.take_back():
            return False
        self._undo.pop(task)()
        del self._ending[number], self._held[task]
        self._tasks[number], self._runners[number] = task, runner
        if self._refused is not None:
            runner.refuse(self._refused)
        return True

    def _release(self, number: int) -> None:
        """Stop a partition without asking for a last snapshot: another process owns it now, or soon, and fences us."""
        runner = self._runners.pop(number)
        runner.stop(last_snapshot=False)
        task = self._tasks.pop(number)
        self._ending[number], self._held[task] = task, runner
        late = asyncio.get_running_loop().call_later(self._settings.timeouts.revoke_ms / 1000, runner.cut_off)

        def forget(_: object) -> None:
            late.cancel()
            self._forget(number, task)

        def undo() -> None:
            late.cancel()
            task.remove_done_callback(forget)

        task.add_done_callback(forget)
        self._undo[task] = undo

    def _forget(self, number: int, task: asyncio.Task[None]) -> None:
        runner = self._held.pop(task, None)
        died = not task.cancelled() and task.exception() is not None
        if runner is not None and died and runner.unsaved is not None:
            self._unsaved_before.append(runner.unsaved)  # the state in its memory went with it
        self._undo.pop(task, None)
        self._witnesses.forget(TopicPartition(self._increments, number))
        if self._ending.get(number) is task:
            del self._ending[number]
        if number not in self._runners:
            self._board.forget(number)
            self.standbys.freed(number, runner.leave if runner is not None and not died else lambda: None)

    async def _retry(self, runner: PartitionRunner, done: OnDone) -> None:
        try:
            found = await self._inspected()
        except SnapreplayError as error:
            done(OperationState.FAILED, None, error.message)
        except Exception as error:  # any error must end the operation, with its text
            log.exception("the cluster could not be inspected")
            done(OperationState.FAILED, None, repr(error))
        else:
            runner.retry(found, done)

    async def _inspected(self) -> ClusterView | SnapreplayError:
        """Return the cluster as it is now, or why all partitions are refused, also those that start later.

        Raises:
            MissingInput: no refusal, because the partitions wait for the input.
        """
        try:
            async with self._inspecting:
                view = await inspect(self._app, self._settings, self.cluster, running=self._view)
        except SnapreplayError as error:
            if isinstance(error, AccessError):
                log.warning("the cluster could not be inspected: %s", error)
            # A partition whose input is missing reports that and waits.
            if error.reaction is Reaction.RETRY or isinstance(error, MissingInput):
                raise
            self._refused = error
            return error
        for misfit in sorted(set(view.misfits).difference(self._view.misfits)):
            log.error("%s", misfit)
        for sentence in sorted(set(view.left_out.values()).difference(self._view.left_out.values())):
            log.warning("%s", sentence)
        self._view, self._refused = view, None
        return view

    @property
    def view(self) -> ClusterView:
        """The cluster as it was inspected last."""
        return self._view

    async def _watch_cluster(self) -> None:
        """Watch for partitions added to an input: they move keys at once."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                await self._look()
            except Exception:  # the watch must outlive one failed look
                log.exception("watching the cluster failed; trying again")

    async def _look(self) -> None:
        known = self._refused
        try:
            found = await self._inspected()
        except SnapreplayError:
            return
        if isinstance(found, SnapreplayError) and (known is None or known.message != found.message):
            log.error("the cluster has changed: %s", found)
        for runner in self._runners.values():
            runner.refuse(found) if isinstance(found, SnapreplayError) else runner.view_seen(found)

    async def _watch_topics(self) -> None:
        """Watch for topics that are deleted or get another id, by one small request a second."""
        own = own_topics(self._app, self._settings)[:2]
        inputs = set(self._app.input_names)
        watch = self.cluster.topic_watch()
        try:
            while True:
                await asyncio.sleep(TOPIC_WATCH_SECONDS)
                if not (self._runners or self._held):
                    continue
                try:
                    inputs |= set(self._view.matched)  # also those that no longer exist: they may come back
                    ids = await watch.ids((*sorted(inputs), *own))
                    for runner in (*self._runners.values(), *self._held.values()):
                        runner.topics_seen(ids)
                except SnapreplayError as error:
                    log.debug("cannot ask for topic ids: %s", error)
                except Exception:  # else a lost topic would go unnoticed
                    log.exception("watching the topics failed; trying again")
        finally:
            await watch.close()

    async def _watch_ends(self) -> None:
        """Watch for increments of others where no commit of this process shows a fence: each second, ask for the ends
        that have changed."""
        reader: Reader | None = None
        ids: dict[str, str] = {}
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(END_WATCH_SECONDS)
                quiet = [each for each in (*self._runners.values(), *self._held.values()) if each.is_quiet]
                if not quiet:
                    continue
                asked_at, ends = loop.time(), dict[TopicPartition, EndSeen]()
                try:
                    known = {self._increments: self._view.topic_ids.get(self._increments, "")}
                    if reader is not None and ids != known:  # the topic was created again
                        old, reader = reader, None
                        await old.close()
                    if reader is None:
                        reader, ids = await self.cluster.reader(patient=True, topic_ids=known), known
                    ends = await reader.ends_seen({each.increments for each in quiet})
                except SnapreplayError as error:
                    log.debug("cannot ask where the increments end: %s", error)
                except Exception:  # else a newer owner would go unnoticed
                    log.exception("watching the increments failed; trying again")
                for each in quiet:
                    each.end_seen(*ends.get(each.increments, (None, asked_at)))
        finally:
            if reader is not None:
                await reader.close()


async def _after(earlier: asyncio.Task[None] | None, standby: StandbyTask | None, runner: PartitionRunner) -> None:
    """Run one runner at a time per partition: the same transactional id. It continues from the standby's copy."""
    try:
        if earlier is not None:
            await asyncio.wait([earlier])
        if standby is not None:
            await standby.hand_over_to(runner.take)
    except asyncio.CancelledError:
        if standby is not None:
            await standby.end()
        raise
    await runner.run()
