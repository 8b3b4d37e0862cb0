"""Letters as files: whole or not there, one per delivery, and errors that name the folder."""

import asyncio
from pathlib import Path

import pytest

from postledger.errors import UnavailableError
from postledger.workers.providers.base import NotBegun
from postledger.workers.providers.registry import make
from postledger.workers.replies import classify
from tests.workers.providers.mails import Permit, envelope


def entries(folder: Path, pattern: str = "*") -> list[Path]:
    return sorted(folder.rglob(pattern))


async def test_named_after_the_delivery_and_written_over(tmp_path: Path):
    provider = make(f"file://{tmp_path}/new/folder", concurrency=2)
    await provider.open()
    for body in (b"first\r\n", b"second\r\n"):
        reply = await provider.send(envelope(body=body, delivery="12.3"), Permit())
        assert (reply.code, reply.text) == (250, "written as 12.3.eml")
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["12.3.eml"]
    assert (tmp_path / "new" / "folder" / "12.3.eml").read_bytes() == envelope(body=b"second\r\n").content


@pytest.mark.parametrize("delivery", ["../../escape", "a/b", "..", "\u00fc \0"])
async def test_no_delivery_leaves_the_folder(tmp_path: Path, delivery: str):
    folder = tmp_path / "letters"
    provider = make(f"file://{folder}", concurrency=1)
    await provider.open()
    assert classify(await provider.send(envelope(delivery=delivery), Permit())).accepted
    assert [path.parent for path in entries(tmp_path, "*.eml")] == [folder]


async def test_a_folder_with_odd_characters(tmp_path: Path):
    provider = make(f"file://{tmp_path}/the%20letters%3F", concurrency=1)
    await provider.open()
    assert (tmp_path / "the letters?").is_dir()


async def test_open_tells_of_a_folder_that_cannot_be(tmp_path: Path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(UnavailableError, match=rf"cannot write into the folder {tmp_path}/taken/letters: Not a dir"):
        await make(f"file://{tmp_path}/taken/letters", concurrency=1).open()


async def test_a_folder_that_vanished_is_nobody_s_failure(tmp_path: Path):
    permit = Permit()
    with pytest.raises(NotBegun, match="No such file or directory") as refusal:
        await make(f"file://{tmp_path}/gone", concurrency=1).send(envelope(), permit)
    assert classify(refusal.value.reply).kind == "retry"
    assert permit.asked == 0


async def test_a_name_that_cannot_be_given_is_not_taken_for_sent(tmp_path: Path):
    provider = make(f"file://{tmp_path}", concurrency=1)
    (tmp_path / "7.1.eml").mkdir()
    reply = await provider.send(envelope(delivery="7.1"), Permit())
    assert (reply.code, classify(reply).accepted) == (None, False)
    assert [path.name for path in entries(tmp_path)] == ["7.1.eml"]


async def test_cancelled_at_any_moment_leaves_a_whole_letter_or_none(tmp_path: Path):
    provider = make(f"file://{tmp_path}", concurrency=1)
    content = envelope(body=b"x" * 1_000_000 + b"\r\n")
    taken = 0
    for turns in range(40):
        sending = asyncio.create_task(
            provider.send(type(content)(content.sender, content.recipient, content.content, str(turns)), Permit())
        )
        for _ in range(turns):
            await asyncio.sleep(0.0002)
        sending.cancel()
        letter = tmp_path / f"{turns}.eml"
        try:
            assert classify(await sending).accepted
            assert letter.read_bytes() == content.content
            taken += 1
        except asyncio.CancelledError:
            assert not letter.exists()
    assert [path.suffix for path in entries(tmp_path)] == [".eml"] * taken
