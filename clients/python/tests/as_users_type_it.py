"""Code as users write it with types everywhere. Nothing runs it: mypy checks it, as strictly as it can."""

from typing import Any

from forge_daemon import (
    Agent,
    BlockingTurn,
    ToolFailed,
    Turn,
    UserTurn,
    Verdict,
    attach,
    forge_run,
    serve,
    tool,
    wrap_tools,
)
from forge_daemon.proto.simulator_pb2 import NextInputRequest
from forge_daemon.proto.validator_pb2 import ValidateRequest


@tool
async def find_order(number: int) -> dict[str, Any]:
    """Finds an order by its number."""
    return {"number": number, "state": "on its way"}


@tool(name="x", description="y")
def blocking(number: int) -> int:
    return number


async def answer(turn: Turn) -> str:
    try:
        order = await turn.call(find_order, '{"number": 7}')
        with turn.model_turn() as record:
            record.usage.input_tokens = 7
    except ToolFailed as failure:
        return f"I could not find your order: {failure}"
    found = await find_order(7)
    (find,) = wrap_tools(turn, [find_order])
    return f"You asked {turn.user_text!r}. I found {order}{found}{await find(7)}"


def plain(turn: BlockingTurn) -> str:
    return turn.call("find_order", {"number": 7}) + str(blocking(3))


async def play(request: NextInputRequest) -> UserTurn:
    return UserTurn(request.goal)


def judge(request: ValidateRequest) -> Verdict:
    return Verdict(True)


agent = Agent(answer, id="shop.orders", version="1.0.0", tools=[find_order, blocking], simulator=play, validator=judge)
other = Agent(plain, id="x")
run = forge_run("a.json", agent)
if __name__ == "__main__":
    serve(agent)
    attach(agent, "http://127.0.0.1:7460", ids=["a", "b"], token="x")
    attach(plain, id="a")
    serve(plain)
