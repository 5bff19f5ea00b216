"""The flow: plan, write at the same time, check, propose, decide, approve.

Where everybody is stands on the board: sections are tasks, checking, editing and answering are reactions, the end is an
approval. So a process may be killed at any moment, and the next one goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from itertools import count
from typing import Any, TypeVar

from crdt_board import Approval, Board, ClaimedTask, Decision, Event, InvalidValue, StepResult, TaskLost

from .board import Comment, Draft, Proposal, Section, Stuck, body, changed, outline, room_below
from .model import Model, ModelFailed, Verdict

WRITERS = ("writer-1", "writer-2", "writer-3")
CLAIM_SECONDS = 5.0
"""After how long others take over what a dead process was at."""
ATTEMPTS = 20
"""How often a piece of work is begun before it is given up: a process that is killed in it counts, too."""

Say = Callable[[str, str], None]
"""Shows what an agent does: its name, and what."""
Person = Callable[[Board[Draft], Approval], Coroutine[Any, Any, None]]
"""Brings a question before a person, who may as well decide elsewhere."""

_Answer = TypeVar("_Answer")


class Flow:
    def __init__(self, board: Board[Draft], model: Model, person: Person, say: Say) -> None:
        self._board = board
        self._model = model
        self._person = person
        self._say = say
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, topic: str) -> None:
        """Bring the draft to its end: published or rejected.

        Raises:
            ModelFailed: the model gave no answer; run again to go on.
            Stuck: something was given up.
            BoardError: the board was closed or failed.
        """
        self._check_facts(self._board.as_agent("fact-checker"))
        self._edit(self._board.as_agent("editor"))
        writers = [self._board.as_agent(name) for name in WRITERS]
        for writer in writers:
            self._answer_proposals(writer)
        work: list[asyncio.Future[None]] = [asyncio.create_task(self._lead(topic)), self._failure]
        work += [asyncio.create_task(self._write_sections(writer)) for writer in writers]
        try:
            finished, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in work:
                each.cancel()
            await asyncio.gather(*work, return_exceptions=True)
        for each in finished:
            each.result()

    # The planner.

    async def _lead(self, topic: str) -> None:
        """Plan, wait until nobody has anything to do, have it approved. What was done before is not done again."""
        board = self._board
        board.announce(role="planner")
        await board.step("plan", ttl=CLAIM_SECONDS).run(self._plan, topic)
        for key, section in sorted(board.snapshot().sections.items(), key=lambda item: item[1].order):
            task = await board.tasks.put(key, key=f"write {key}", queue="write", attempts=ATTEMPTS)
            if task.state != "done":
                held = f", which {task.agent} of an earlier run may still be at" if task.state == "claimed" else ""
                self._say(board.agent, f"wants a section {section.title!r}{held}")
                await board.tasks.retry(task)  # if it failed in an earlier run
        await board.step("finish", ttl=CLAIM_SECONDS).run(self._finish, await self._approval())

    async def _plan(self, topic: str) -> StepResult[None]:
        self._say(self._board.agent, f"plans {topic!r}")
        planned = await self._model.plan(topic, len(WRITERS))
        outlines = {" ".join(each.title.split()): each.brief for each in planned}  # one line, each title once
        sections = {
            f"s{number}": Section(title=title, brief=brief, order=number)
            for number, (title, brief) in enumerate(outlines.items(), start=1)
        }
        patch = {"topic": topic, "sections": sections, "draft": outline(topic, list(outlines))}
        return StepResult(None, patch=patch)

    async def _finish(self, decision: Decision) -> StepResult[str]:
        status = "published" if decision.option == "approve" else "rejected"
        self._say(self._board.agent, f"the draft is {status}: {decision}")
        return StepResult(status, patch={"status": status})

    async def _approval(self) -> Decision:
        """Ask when all are done; ask again when somebody has changed the draft meanwhile."""
        board = self._board
        for number in count(1):
            await board.settled()
            self._check_done()
            approval = await board.ask("Publish this draft?", about=["draft"], key=f"publish-{number}")
            asking = asyncio.create_task(self._person(board, approval))
            try:
                decision = await approval.decided()
            finally:
                asking.cancel()
            if decision.state == "decided":
                return decision
            self._say(board.agent, f"asks again: {decision}")
        raise AssertionError("counting ends never")

    def _check_done(self) -> None:
        now = self._board.snapshot()
        stuck = [f"section {each.title!r}" for each in now.sections.values() if each.state != "checked"]
        stuck += [f"the comment on {each.quote!r}" for each in now.comments.values() if each.state == "open"]
        stuck += [f"the proposal for {each.old!r}" for each in now.proposals.values() if each.state == "proposed"]
        if stuck:
            raise Stuck(f"given up after {ATTEMPTS} attempts: {', '.join(stuck)}")

    # Writers.

    async def _write_sections(self, writer: Board[Draft]) -> None:
        while True:
            try:
                async with writer.tasks.claim("write", ttl=CLAIM_SECONDS) as task:
                    await self._write(writer, task)
            except TaskLost as lost:  # this process stood still for too long: somebody else writes it
                self._say(writer.agent, str(lost))

    async def _write(self, writer: Board[Draft], task: ClaimedTask) -> None:
        key = str(task.payload)
        section, draft = writer.snapshot().sections[key], writer.state.draft
        self._say(writer.agent, f"writes {section.title!r}")
        writer.announce(role="writer", step=section.title, focus="draft")
        start, stop = room_below(str(draft), section.title)
        draft.delete(start, stop)  # what a process that was killed has left there
        async with (
            draft.edit_stream(start) as stream,
            aclosing(self._model.write(writer.state.topic, section.title, section.brief)) as tokens,
        ):
            words = sentence = ""
            async for token in tokens:
                task.check()
                more = token.replace("\n", " ") if words else token.lstrip("# \n")  # headings are the planner's
                stream.write(more)
                words, sentence = words + more, sentence + more
                if sentence.rstrip().endswith((".", "!", "?")):
                    self._say(writer.agent, f"… {sentence.strip()}")
                    sentence = ""
        written = changed(writer.snapshot().sections, key, state="written", writer=writer.agent)
        await writer.commit(f"write {key}", patch={"sections": written}, task=task)
        self._say(writer.agent, f"has written {section.title!r}")

    def _answer_proposals(self, writer: Board[Draft]) -> None:
        @writer.on(
            "proposals/*",
            when=lambda proposal: proposal.state == "proposed" and proposal.author == writer.agent,
            name=f"answer as {writer.agent}",
            attempts=ATTEMPTS,
            ttl=CLAIM_SECONDS,
        )
        async def answer(event: Event) -> dict[str, Any]:
            key = str(event.key)
            proposal = writer.snapshot().proposals[key]
            comment = writer.snapshot().comments[key].text
            verdict = await self._from_model(self._model.judge(proposal.old, proposal.new, comment))
            text, passage = str(writer.state.draft), writer.state.draft.anchor_from(proposal.anchor)
            if passage.quote != proposal.old:
                verdict = Verdict(accepted=False, reason="the passage is another one by now")
            state = "accepted" if verdict.accepted else "refused"
            self._say(writer.agent, f"has {state} {proposal.new!r}: {verdict.reason}")
            answered = changed(writer.snapshot().proposals, key, state=state, reason=verdict.reason)
            if not verdict.accepted:
                return {"proposals": answered}
            return {
                "proposals": answered,
                "draft": text[: passage.start] + proposal.new + text[passage.stop :],  # only what differs is written
            }

    # The fact checker and the editor.

    def _check_facts(self, checker: Board[Draft]) -> None:
        @checker.on("sections/*", when=lambda section: section.state == "written", attempts=ATTEMPTS, ttl=CLAIM_SECONDS)
        async def check(event: Event) -> dict[str, Any]:
            key, title = str(event.key), event.value.title
            self._say(checker.agent, f"checks {title!r}")
            passage = body(str(checker.state.draft), title)
            comments = {}
            for number, remark in enumerate(await self._from_model(self._model.check(title, passage)), start=1):
                try:
                    anchor = checker.state.draft.anchor(remark.quote)
                except InvalidValue as missing:  # models do not always quote exactly
                    self._say(checker.agent, f"drops a remark: {missing}")
                    continue
                self._say(checker.agent, f"on {remark.quote!r}: {remark.comment}")
                comments[f"{key}-{number}"] = Comment(
                    section=key, anchor=str(anchor), quote=remark.quote, text=remark.comment
                )
            now = checker.snapshot()
            return {
                "comments": {**now.comments, **comments},
                "sections": changed(now.sections, key, state="checked"),
            }

    def _edit(self, editor: Board[Draft]) -> None:
        @editor.on("comments/*", when=lambda comment: comment.state == "open", attempts=ATTEMPTS, ttl=CLAIM_SECONDS)
        async def propose(event: Event) -> dict[str, Any]:
            key = str(event.key)
            comment = editor.snapshot().comments[key]
            old = editor.state.draft.anchor_from(comment.anchor).quote
            if not old:  # somebody has deleted the passage
                return {"comments": changed(editor.snapshot().comments, key, state="answered")}
            new = await self._from_model(self._model.propose(old, comment.text))
            self._say(editor.agent, f"proposes {new!r}")
            now = editor.snapshot()
            author = now.sections[comment.section].writer
            return {
                "proposals": {**now.proposals, key: Proposal(anchor=comment.anchor, old=old, new=new, author=author)},
                "comments": changed(now.comments, key, state="answered"),
            }

    # When the model fails.

    async def _from_model(self, answer: Awaitable[_Answer]) -> _Answer:
        """Wait for an answer. Without one the whole flow ends, and the reaction is left for the next process."""
        try:
            return await answer
        except ModelFailed as failed:
            if not self._failure.done():
                self._failure.set_exception(failed)
            until_closed: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
            return await until_closed
