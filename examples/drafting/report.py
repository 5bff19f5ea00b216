"""What has become of the draft: the text, the comments, who wrote it, and its versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

from crdt_board import Board

from .board import Draft


async def report(board: Board[Draft]) -> AsyncIterator[str]:
    """Line by line."""
    now, draft = board.snapshot(), board.state.draft
    yield f"== The text ({now.status}) =="
    yield str(draft)
    yield "== Comments, on what their passages say now =="
    passages = {key: draft.anchor_from(comment.anchor) for key, comment in now.comments.items()}
    for key, passage in sorted(passages.items(), key=lambda item: item[1]):
        comment = now.comments[key]
        yield f"[{passage.start}:{passage.stop}] {passage.quote!r}"
        yield f"    comment: {comment.text}"
        if proposal := now.proposals.get(key):
            yield f"    {proposal.state} by {proposal.author}: {proposal.new!r} ({proposal.reason})"
    yield "\n== Who wrote it =="
    chars: Counter[str] = Counter()
    for stretch in await board.blame("draft"):
        chars[stretch.agent] += len(stretch.text)
    for agent, number in chars.most_common():
        yield f"{agent:<14}{number:>6} characters, {number / chars.total():.0%}"
    yield "\n== Versions =="
    for made in reversed(await board.checkpoints()):
        yield f"{made.version:>3}  {made.step:<20} {made.agent:<14} {made.pointer}"


def shown(text: str) -> str:
    """Text of a model or of another agent as a terminal may see it: nothing in it steers the terminal."""
    return "".join(char if char.isprintable() or char == "\n" else "�" for char in text)
