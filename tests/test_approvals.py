import asyncio
from crdt_board import open_board, BoardModel, Text
import pytest


class Finding(BoardModel):
    title: str = ""
    notes: Text


class Job(BoardModel):
    status: str = ""
    draft: Text
    findings: dict[str, Finding] = {}


async def test_smoke(tmp_path):
    async with open_board(tmp_path / "b.db", "b", Job, agent="a") as board:
        board.state.draft.append("hello")
        board.state.findings["f1"].title = "x"
        a = await board.ask("Ship it?", about=["draft", "findings/f1"])
        b = await board.ask("Ship it?", about=["findings/f1"], expires=0.2)
        c = await board.ask("Ship it?", about=["draft"])
        assert a.state == "pending"
        board.state.findings["f1"].notes.append("more")
        print(await a.decided(2))
        print(await b.decided(2))
        print(await board.decide(c.id, "approve"))
        print(await c.decided(2))
        print(board.approvals)
