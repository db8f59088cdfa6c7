"""Credit of an attached stream and of its calls, in bytes: see attach.proto."""

from dataclasses import dataclass

__all__ = ["BrokenCredit", "Sizes", "Windows"]

COST_OF_A_FRAME = 64
"""What a frame with a message costs besides that message."""
MOST = 1 << 31
"""Most credit that a side may have been given."""
USED = 16 << 20
"""Most credit that is used, however much is given: so much, and one frame, may wait for a side that takes nothing."""


class BrokenCredit(Exception):
    """The other side did what it has no credit for, or gave more of it than there can be."""


@dataclass(frozen=True)
class Sizes:
    """How much credit a side begins with."""

    call: int
    stream: int


class _Window:
    """The credit of a call or of the stream. One frame may bring it below zero."""

    __slots__ = ("_taken", "_theirs", "_whole", "ours")

    def __init__(self, ours: int, theirs: int) -> None:
        self.ours = min(ours, USED)
        self._theirs = self._whole = theirs
        self._taken = 0

    def receive(self, cost: int) -> None:
        if self._theirs <= 0:
            raise BrokenCredit("a frame was sent without credit for it")
        self._theirs -= cost

    def take(self, cost: int) -> int:
        """What is to be given back, in steps of half the window; mostly 0."""
        self._taken += cost
        if self._taken < self._whole // 2:
            return 0
        back, self._taken = self._taken, 0
        self._theirs += back
        return back

    def grant(self, size: int) -> None:
        if self.ours + size > MOST:
            raise BrokenCredit(f"credit of more than {MOST} bytes was given")
        self.ours = min(self.ours + size, USED)


class Windows:
    """The credit of a stream and of the calls that are open on it. Sizes are those of messages alone."""

    def __init__(self, ours: Sizes, theirs: Sizes) -> None:
        """We begin with credit of `theirs`, and the other side with credit of `ours`."""
        self._ours, self._theirs = ours, theirs
        self._stream = _Window(theirs.stream, ours.stream)
        self._calls: dict[int, _Window] = {}

    def open(self, call_no: int) -> None:
        """A call begins."""
        self._calls[call_no] = _Window(self._theirs.call, self._ours.call)

    def close(self, call_no: int) -> None:
        """A call is over. What comes for it later counts for the stream alone."""
        self._calls.pop(call_no, None)

    def may_send(self, call_no: int) -> bool:
        """Whether there is credit for a message of a call that is open."""
        return self._stream.ours > 0 and self._calls[call_no].ours > 0

    def sent(self, call_no: int, size: int) -> None:
        """Counts a message that was sent."""
        self._stream.ours -= size + COST_OF_A_FRAME
        self._calls[call_no].ours -= size + COST_OF_A_FRAME

    def received(self, call_no: int | None, size: int) -> int:
        """Counts a message that came, and is put where its call finds it: what the stream gives back.

        One that begins a call counts for the stream alone.
        """
        cost = size + COST_OF_A_FRAME
        self._stream.receive(cost)
        if call_no is not None and (call := self._calls.get(call_no)):
            call.receive(cost)
        return self._stream.take(cost)

    def taken(self, call_no: int, size: int) -> int:
        """Counts a message that a call has taken: what the call gives back."""
        call = self._calls.get(call_no)
        return call.take(size + COST_OF_A_FRAME) if call else 0

    def granted(self, call_no: int, size: int) -> None:
        """Takes credit that was given; 0 is the stream."""
        window = self._calls.get(call_no) if call_no else self._stream
        if window:  # A call that is over needs none.
            window.grant(size)
