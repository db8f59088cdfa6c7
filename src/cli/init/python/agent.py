"""An agent for Forge: it greets people, and counts the letters of their names."""

from forge_daemon import Agent, Turn, serve, tool


@tool
def count_letters(name: str) -> int:
    """Counts the letters of a name."""
    return len(name)


async def answer(turn: Turn) -> str:
    """Your agent goes here."""
    if not turn.user_text.startswith("Hello, I am "):
        return "Sorry, all I can do is greet people: say 'Hello, I am ...' and get a greeting."
    name = turn.user_text.removeprefix("Hello, I am ")
    letters = await turn.call(count_letters, {"name": name})
    return f"Hello {name}, nice to meet you. Your name has {letters} letters."


agent = Agent(answer, id="hello", version="1", tools=[count_letters])

if __name__ == "__main__":
    serve(agent)
