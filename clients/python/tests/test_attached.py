"""Agents that dial the daemon: the rules of the stream, against a daemon that is written by hand."""

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import grpc
import pytest
from client import start_frame
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hand import SECONDS, HandCall, HandDaemon, Session

from forge_daemon import Agent, Attached, CannotAttach, InvocationFailed, Turn, UserTurn, Verdict, attach, stream, turn
from forge_daemon.dialling import daemon_of
from forge_daemon.proto import generator_pb2, simulator_pb2, snapshot_pb2, validator_pb2


async def echo(turn: Turn) -> str:
    return turn.user_text


async def one_call(session: Session, text: str = "Hello") -> str:
    """The answer to one turn."""
    call = await session.open("invoke", start_frame(text))
    events = [event async for event in call]
    assert await call.code() is grpc.StatusCode.OK
    return "".join(part.text for part in events[-1].finished.response.parts)


@pytest.fixture
async def hand() -> AsyncIterator[HandDaemon]:
    async with HandDaemon() as daemon:
        yield daemon


# Who it is, and where the daemon is.


async def test_it_says_who_it_is(hand: HandDaemon):
    agent = Agent(echo, id="shop.orders", version="7", max_concurrent=3)
    async with Attached(agent, f"http://{hand.address}/", ids=["a", "b"], token="s3cret") as attached:
        session = await hand.session()
        assert (attached.daemon, attached.names) == (hand.address, ["a", "b"])
        hello = session.hello
        assert (hello.min_revision, hello.max_revision, hello.previous_session_id) == (1, 1, "")
        assert len(hello.instance_id) >= 32
        assert [one.agent_id for one in hello.agents] == ["a", "b"]
        for one in hello.agents:
            assert (one.describe.card.agent_id, one.describe.card.version) == ("shop.orders", "7")
            assert one.describe.limits.max_concurrent_invocations == 3
            assert "tools.stub" in one.describe.capabilities
        assert hand.metadata["authorization"] == "Bearer s3cret"


@pytest.mark.parametrize(
    ("given", "authority", "is_encrypted"),
    [
        ("http://127.0.0.1:7460", "127.0.0.1:7460", False),
        ("grpc://staging:1", "staging:1", False),
        ("HTTP://localhost:7460/", "localhost:7460", False),
        ("staging:7460", "staging:7460", False),
        ("[::1]:7460", "[::1]:7460", False),
        ("local", "127.0.0.1:7460", False),
        ("https://forge.example.com", "forge.example.com:443", True),
        ("grpcs://forge.example.com:8443", "forge.example.com:8443", True),
    ],
)
def test_addresses(given: str, authority: str, is_encrypted: bool, monkeypatch: pytest.MonkeyPatch):
    found = daemon_of(given, None)
    assert (found.authority, found.is_encrypted) == (authority, is_encrypted)
    monkeypatch.setenv("FORGE_DAEMON", given)
    assert daemon_of(None, None) == found


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (None, "none is named; give its address or set FORGE_DAEMON"),
        ("", "none is named"),
        ("ftp://127.0.0.1:1", "only http:// and https:// are known"),
        ("127.0.0.1", "there is no port"),
        ("http://", "there is no host"),
        ("http://:7460", "there is no host"),
        ("http://127.0.0.1:99999", "Port out of range"),
        ("http://127.0.0.1:7460/x", "it must be a host and a port, and nothing else"),
        ("http://me:pass@127.0.0.1:7460", "it must be a host and a port, and nothing else"),
    ],
)
def test_addresses_that_are_none(given: str | None, why: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("FORGE_DAEMON", raising=False)
    with pytest.raises(CannotAttach) as raised:
        daemon_of(given, None)
    assert why in str(raised.value)
    assert str(raised.value).startswith("cannot attach to ")
    assert "pass" not in str(raised.value)


def test_a_token_does_not_travel_in_plain_text():
    for daemon in ("local", "localhost:1", "http://[::1]:1", "https://staging"):
        assert daemon_of(daemon, "abc").metadata == (("authorization", "Bearer abc"),)
    for daemon in ("http://staging:7460", "10.0.0.1:7460"):
        with pytest.raises(CannotAttach, match="the token would travel in plain text; use https://, or a tunnel"):
            daemon_of(daemon, "abc")
    for token in ("", "abc\n", "a b", "schlüssel"):
        with pytest.raises(CannotAttach, match="the token is empty, or holds blanks") as raised:
            daemon_of("local", token)
        assert repr(token)[1:-1] not in str(raised.value) or not token


def certificate(folder: Path) -> tuple[bytes, bytes]:
    """A key and a certificate of localhost."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    (folder / "ca.pem").write_bytes(pem)
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()), pem


async def test_an_encrypted_daemon(tmp_path: Path):
    async with HandDaemon(credentials=grpc.ssl_server_credentials([certificate(tmp_path)])) as hand:
        url = f"https://localhost:{hand.address.rpartition(':')[2]}"
        process = await start(tmp_path, url)
        assert "CERTIFICATE_VERIFY_FAILED" in (await process.stderr.readline()).decode()
        process.terminate()
        await process.communicate()
        process = await start(tmp_path, url, GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=str(tmp_path / "ca.pem"))
        session = await hand.session()
        assert await one_call(session, "0") == "done"
        process.terminate()
        async with asyncio.timeout(5):
            await process.communicate()
        assert process.returncode == 0


async def test_names_that_are_none():
    for names, why in [
        ({"id": "a", "ids": ["b"]}, "takes `id` or `ids`, and not both"),
        ({"ids": "abc"}, "ids: a list of names, not a text; for one name use id='abc'"),
        ({"ids": []}, "ids: empty"),
        ({"ids": ["a", 3]}, "ids: a name is a text, not 3"),
        ({"id": ""}, "id: a name is a text, not ''"),
    ]:
        with pytest.raises((TypeError, ValueError)) as raised:
            Attached(echo, "local", **names)
        assert why in str(raised.value)
    with pytest.raises(TypeError, match="an event loop runs here; use `async with Attached"):
        attach(echo, "local")
    with pytest.raises(TypeError, match="agent: a function or an Agent, not int"):
        Attached(3, "local")  # type: ignore[arg-type]


# What comes over the stream.


async def test_every_part_answers(hand: HandDaemon):
    async def write(request: generator_pb2.GenerateRequest) -> AsyncIterator[dict[str, Any]]:
        for number in range(1000):
            yield {"id": f"case-{number}"}

    def capture(path: str) -> float:
        if path == "long":
            raise RuntimeError("x" * 10_000_000)
        return {"prices.AAPL": 178.5}[path]

    agent = Agent(
        echo,
        id="a",
        simulator=lambda request: UserTurn(f"I want {request.goal}"),
        validator=lambda request: Verdict(request.criteria == "polite", "because"),
        generator=write,
        snapshot=capture,
    )
    async with Attached(agent, hand.address):
        session = await hand.session()

        async def answers(kind: str, request: Any) -> list[Any]:
            call = await session.open(kind, request)
            found = [message async for message in call]
            assert await call.code() is grpc.StatusCode.OK, await call.details()
            return found

        (described,) = await answers("describe", {})
        assert (described.card.agent_id, described.revision) == ("a", 1)
        (said,) = await answers("next_input", simulator_pb2.NextInputRequest(goal="tea"))
        assert said.input.parts[0].text == "I want tea"
        (judged,) = await answers("validate", validator_pb2.ValidateRequest(criteria="polite"))
        assert (judged.passed, judged.reason) == (True, "because")
        *cases, last = await answers("generate", generator_pb2.GenerateRequest(count=5))
        assert ([one.case.raw for one in cases][4], last.summary.produced) == (b'{"id": "case-4"}', 5)
        (captured,) = await answers("capture", snapshot_pb2.CaptureRequest(paths=["prices.AAPL", "b"]))
        assert captured.data.raw == b'{"prices": {"AAPL": 178.5}}'
        assert list(captured.unresolved) == ["b"]
        # A status is the end of a call, and of nothing else, however long it is.
        call = await session.open("capture", snapshot_pb2.CaptureRequest(paths=["long"]))
        assert await call.code() is grpc.StatusCode.INTERNAL
        assert len(await call.details()) == 900
        call = await session.open("validate", validator_pb2.ValidateRequest())
        assert (await call.code(), await call.details()) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "criteria: there is nothing to judge by",
        )
        assert await one_call(session, "still here") == "still here"


async def test_calls_that_cannot_be_answered(hand: HandDaemon):
    async with Attached(echo, hand.address, id="a"):
        session = await hand.session()
        for kind, more, status, why in [
            ("next_input", {}, grpc.StatusCode.UNIMPLEMENTED, "this process does not play that part"),
            ("invoke", {"agent_id": "other"}, grpc.StatusCode.NOT_FOUND, "'other' is not attached here"),
        ]:
            call = await session.open(kind, **more)
            assert (await call.code(), why in await call.details()) == (status, True)
        # A call of a later revision, and one whose message is none.
        for number, unknown, status in [
            (100, b"\xa2\x06\x01x", grpc.StatusCode.UNIMPLEMENTED),
            (101, b"\x22\x02\xff\xff", grpc.StatusCode.INTERNAL),
        ]:
            session.calls[number] = call = HandCall(session, number, "invoke", is_read=True)
            opened = b"\x08" + bytes([number]) + b"\x12\x01a" + unknown
            await session.write(b"\x12" + bytes([len(opened)]) + opened)
            assert await call.code() is status
        session._last = 200
        assert await one_call(session) == "Hello"


async def test_the_time_of_a_call_is_kept(hand: HandDaemon):
    left = asyncio.Event()

    async def slow(turn: Turn) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            left.set()

    async with Attached(slow, hand.address):
        session = await hand.session()
        call = await session.open("invoke", start_frame(), timeout={"nanos": 100_000_000})
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await asyncio.wait_for(left.wait(), 1)


async def test_a_message_that_is_too_large_ends_its_call():
    async with HandDaemon(max_message_bytes=1000) as hand, Attached(echo, hand.address):
        session = await hand.session()
        call = await session.open("invoke", start_frame("x" * 2000))
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert re.fullmatch(r"a message has 20\d\d bytes, and the daemon takes 1000", await call.details())
        assert await one_call(session) == "Hello"


async def test_pings_are_answered_while_it_is_busy(hand: HandDaemon):
    async with Attached(lambda turn: time.sleep(0.5), hand.address):
        session = await hand.session()
        await session.open("invoke", start_frame())
        began = time.monotonic()
        await session.tell(ping={"nonce": 42})
        assert (await session.heard()).nonce == 42
        assert time.monotonic() - began < 0.3


# Credit.


async def test_a_call_that_nobody_reads_holds_up_no_other(hand: HandDaemon):
    async def talks(turn: Turn) -> str:
        if turn.user_text == "much":
            for _ in range(200):
                turn.say("x" * 10_000)
                await asyncio.sleep(0)
        return turn.user_text

    async with Attached(talks, hand.address):
        session = await hand.session()
        unread = await session.open("invoke", start_frame("much"), is_read=False)
        for _ in range(2):
            found = await asyncio.gather(*(one_call(session, str(number)) for number in range(100)))
            assert found == [str(number) for number in range(100)]
        # Its credit, and one message.
        assert 256 << 10 <= unread.received <= (256 << 10) + 10_200
        # Read at last, it comes to its end.
        await session.tell(window={"call_no": unread.number, "bytes": 1 << 30})
        assert await unread.code() is grpc.StatusCode.OK
        assert unread.received > 2_000_000


async def test_the_credit_of_the_stream_holds_up_all_calls():
    async with HandDaemon(stream_window_bytes=10_000) as hand, Attached(echo, hand.address):
        session = await hand.session()
        session.gives_back = False
        calls = [await session.open("invoke", start_frame("x" * 3000), is_read=False) for _ in range(9)]
        await asyncio.sleep(0.2)
        assert 10_000 <= sum(call.received for call in calls) < 14_000
        for _ in range(9):
            await session.tell(window={"call_no": 0, "bytes": 10_000})
        assert [await call.code() for call in calls] == [grpc.StatusCode.OK] * 9


async def test_it_gives_back_what_it_has_taken(hand: HandDaemon):
    """As much as came on the wire, whoever encoded it."""
    calls: asyncio.Queue[Turn] = asyncio.Queue()

    async def waits(turn: Turn) -> None:
        calls.put_nowait(turn)
        await asyncio.Event().wait()

    async with Attached(waits, hand.address):
        session = await hand.session()
        opened = start_frame()
        call = await session.open("invoke", opened)
        # A result whose encoding is longer than it needs to be: its call_id comes twice.
        invoke = field(3, field(1, b"x" * 10_000) + field(1, b"x"))
        frame = field(3, b"\x08\x01" + field(2, invoke))
        cost, count = len(invoke) + 64, 800
        for number in range(count):
            # Never more than there is credit for.
            await until(lambda sent=number * cost: sent < (256 << 10) + call.granted)
            await session.write(frame)
        total = cost * count
        await until(lambda: call.granted >= total - (128 << 10))
        assert call.granted <= total
        total += opened.ByteSize() + 64
        assert total - (2 << 20) <= session.granted <= total


def field(number: int, content: bytes) -> bytes:
    """A field of a message as it stands on the wire."""
    length, size = b"", len(content)
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


async def until(holds: Callable[[], bool]) -> None:
    """Waits for something that nobody tells."""
    async with asyncio.timeout(SECONDS):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([{"window": {"call_no": 0, "bytes": (1 << 32) - 1}}], "credit of more than 2147483648 bytes was given"),
        ([{"open": {"call_no": 1, "agent_id": "a", "invoke": {}}}], "the number of a call came again"),
        ([{"welcome": {}}], "a second welcome"),
        ([b"\xff"], "a frame cannot be read"),
        (
            [{"send": {"call_no": 1, "invoke": start_frame("x" * 100_000)}}] * 4,
            "a frame was sent without credit for it",
        ),
    ],
)
async def test_a_daemon_that_breaks_the_rules_is_left(
    hand: HandDaemon,
    frames: list[Any],
    why: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    async def blocks(turn: Turn) -> None:
        await asyncio.Event().wait()

    # What is read of a call counts as taken, and an endpoint reads at once.
    monkeypatch.setattr(stream._Messages, "__anext__", _first_only)
    async with Attached(blocks, hand.address):
        session = await hand.session()
        await session.open("invoke", start_frame())
        for frame in frames:
            await (session.write(frame) if isinstance(frame, bytes) else session.tell(**frame))
        again = await hand.session()
        assert again.hello.previous_session_id == session.id
        assert again.hello.instance_id == session.hello.instance_id
        assert f"the daemon broke the rules of the stream: {why}" in caplog.text


async def _first_only(messages: Any) -> Any:
    if messages._first is None:
        await asyncio.Event().wait()
    first, messages._first = messages._first, None
    return first


async def test_what_nobody_reads_is_bounded(hand: HandDaemon, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(turn, "MAX_WAITING_BYTES", 1 << 20)
    said: list[int] = []

    async def endless(turn: Turn) -> None:
        said.append(0)
        while True:
            turn.say("x" * 1000)
            said[-1] += 1
            await asyncio.sleep(0)

    async with Attached(endless, hand.address):
        session = await hand.session()
        call = await session.open("invoke", start_frame(), is_read=False)
        await until(lambda: bool(said) and said[0] >= (1 << 20) // 1100)
        await asyncio.sleep(0.2)
        assert said[0] < 1500
        await session.tell(window={"call_no": call.number, "bytes": 1 << 30})
        *_, last = [event async for event in call]
        assert last.finished.error.reason == "UNREAD"
        assert "nobody reads them" in last.finished.error.message


async def test_what_nobody_reads_of_many_turns_is_bounded(hand: HandDaemon, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(turn, "MAX_WAITING_BYTES_OF_ALL", 8 << 20)
    failed: list[str] = []

    async def endless(turn: Turn) -> str | None:
        if turn.user_text != "endless":
            return turn.user_text
        try:
            while True:
                turn.say("x" * 10_000)
                await asyncio.sleep(0)
        except InvocationFailed as failure:
            failed.append(str(failure))
            raise

    async with Attached(endless, hand.address) as attached:
        session = await hand.session()
        calls = [await session.open("invoke", start_frame("endless"), is_read=False) for _ in range(20)]
        await until(lambda: len(failed) == 20)
        assert set(failed) == {"more than 1 MiB of what the turn has said wait, and nobody reads them"}
        waiting = attached._parts.endpoint._waiting
        # What was said, and as much again in the last event.
        assert 8 << 20 < waiting.bytes < 60 << 20
        # Others are asked as ever.
        assert await one_call(session) == "Hello"
        for call in calls:
            await session.tell(reset={"call_no": call.number})
        await until(lambda: waiting.bytes == 0)


# When the stream breaks.


async def test_it_comes_back(hand: HandDaemon):
    left, begun = asyncio.Event(), asyncio.Event()

    async def waits(turn: Turn) -> str:
        if turn.user_text != "wait":
            return turn.user_text
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return "never"

    async with Attached(waits, hand.address):
        first = await hand.session()
        await first.open("invoke", start_frame("wait"))
        await asyncio.wait_for(begun.wait(), SECONDS)
        first.end()
        began = time.monotonic()
        second = await hand.session()
        assert time.monotonic() - began < 1
        assert second.hello.previous_session_id == first.id
        # What the broken stream's call did has been stopped.
        await asyncio.wait_for(left.wait(), 1)
        assert await one_call(second) == "Hello"
        second.end((grpc.StatusCode.UNAVAILABLE, "the daemon is shutting down"))
        assert (await hand.session()).hello.previous_session_id == second.id


async def test_a_daemon_that_is_silent_is_left(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    async with HandDaemon(ping_interval={"nanos": 100_000_000}) as hand, Attached(echo, hand.address):
        first = await hand.session()
        for nonce in range(8):
            await asyncio.sleep(0.1)
            await first.tell(ping={"nonce": nonce})
        assert first.said.qsize() >= 6
        assert (await hand.session()).hello.previous_session_id == first.id
        assert "nothing was heard of the daemon" in caplog.text


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (grpc.StatusCode.FAILED_PRECONDITION, "REVISION_UNSUPPORTED: this daemon speaks revisions 7 to 9"),
        (grpc.StatusCode.ALREADY_EXISTS, "instance is attached already"),
        (grpc.StatusCode.PERMISSION_DENIED, "agents attach over loopback only"),
        (grpc.StatusCode.UNAUTHENTICATED, "who are you?"),
        (grpc.StatusCode.ABORTED, "TAKEN_OVER: the instance attached again"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "WINDOW_OVERRUN: a frame was sent without credit"),
    ],
)
async def test_refused_for_good(hand: HandDaemon, status: grpc.StatusCode, message: str):
    hand.refusals.append((status, message))
    with pytest.raises(CannotAttach) as raised:
        async with Attached(echo, hand.address):
            pass
    assert str(raised.value) == f"cannot attach to {hand.address}: {status.name}: {message}"
    # Also when it was attached before.
    async with Attached(echo, hand.address) as attached:
        (await hand.session()).end((status, message))
        with pytest.raises(CannotAttach, match=status.name):
            await asyncio.wait_for(attached.wait_for_end(), SECONDS)


async def test_refused_for_now(hand: HandDaemon, caplog: pytest.LogCaptureFixture):
    hand.refusals += [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "1000 processes are attached"),
        (grpc.StatusCode.INTERNAL, "x"),
    ]
    async with Attached(echo, hand.address):
        await hand.session()
    assert "not attached, trying again in" in caplog.text
    assert "1000 processes are attached" in caplog.text


# Leaving.


async def test_it_finishes_what_it_has(hand: HandDaemon):
    go = asyncio.Event()

    async def waits(turn: Turn) -> str:
        await go.wait()
        return turn.user_text

    attached = Attached(waits, hand.address)
    await attached.start()
    session = await hand.session()
    answer = asyncio.create_task(one_call(session, "one"))
    await asyncio.sleep(0.05)
    stopping = asyncio.create_task(attached.stop())
    assert (await session.heard()).reason
    # A call that the daemon opened before it knew.
    late = asyncio.create_task(one_call(session, "late"))
    await asyncio.sleep(0.05)
    assert not stopping.done()
    go.set()
    assert [await answer, await late] == ["one", "late"]
    await asyncio.wait_for(stopping, 2)
    await asyncio.wait_for(session.is_closed.wait(), 2)


async def test_it_leaves_what_does_not_end(hand: HandDaemon):
    async def waits(turn: Turn) -> None:
        await asyncio.Event().wait()

    attached = Attached(waits, hand.address)
    await attached.start()
    session = await hand.session()
    await session.open("invoke", start_frame())
    began = time.monotonic()
    await attached.stop(0.3)
    assert 0.3 <= time.monotonic() - began < 1.5


AGENT = """
import asyncio, sys
from forge_daemon import attach

async def answer(turn):
    await asyncio.sleep(float(turn.user_text))
    return "done"

attach(answer, sys.argv[1], ids=["a", "b"])
"""


async def start(tmp_path: Path, daemon: str, **environment: str) -> asyncio.subprocess.Process:
    (tmp_path / "agent.py").write_text(AGENT)
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "agent.py", daemon, cwd=tmp_path, stdout=pipe, stderr=pipe, env=os.environ | environment
    )


async def test_as_a_process(hand: HandDaemon, tmp_path: Path):
    process = await start(tmp_path, hand.address)
    session = await hand.session()
    assert (await process.stdout.readline()).decode() == f"attached to {hand.address} as a, b\n"
    answer = asyncio.create_task(one_call(session, "0.5"))
    await asyncio.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    assert await answer == "done"
    async with asyncio.timeout(5):
        out, error = await process.communicate()
    assert (process.returncode, out, error) == (0, b"", b"")


async def test_as_a_process_that_is_asked_twice(hand: HandDaemon, tmp_path: Path):
    process = await start(tmp_path, hand.address)
    session = await hand.session()
    await process.stdout.readline()
    await session.open("invoke", start_frame("60"))
    process.send_signal(signal.SIGTERM)
    await session.heard()
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(5):
        assert b"Traceback" not in (await process.communicate())[1]


async def test_a_process_without_a_daemon(tmp_path: Path):
    async with HandDaemon() as hand:
        address = hand.address
    process = await start(tmp_path, address)
    line = (await process.stderr.readline()).decode()
    assert line.startswith("not attached, trying again in ")
    assert "Connection refused" in line
    async with HandDaemon(address) as hand:
        await hand.session()
        assert (await process.stdout.readline()).decode() == f"attached to {address} as a, b\n"
        hand.refusals.append((grpc.StatusCode.INVALID_ARGUMENT, "hello.agents[0].agent_id"))
    async with HandDaemon(address) as hand:
        hand.refusals.append((grpc.StatusCode.INVALID_ARGUMENT, "hello.agents[0].agent_id"))
        async with asyncio.timeout(SECONDS):
            _, error = await process.communicate()
    assert process.returncode == 1
    assert error.decode().splitlines()[-1] == f"cannot attach to {address}: INVALID_ARGUMENT: hello.agents[0].agent_id"
    process = await start(tmp_path, "staging")
    _, error = await process.communicate()
    wanted = "cannot attach to staging: there is no port; write it like http://127.0.0.1:7460\n"
    assert (process.returncode, error.decode()) == (1, wanted)
    process = await start(tmp_path, address)
    await process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(5):
        await process.communicate()
    assert process.returncode == 0
