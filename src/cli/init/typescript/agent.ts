// An agent for Forge: it greets people, and counts the letters of their names.
import { type Agent, tool } from "forge-daemon";

const countLetters = tool({
  name: "count_letters",
  description: "Counts the letters of a name.",
  inputSchema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
  run: ({ name }: { name: string }) => name.length,
});

export const agent: Agent = {
  card: { id: "hello", version: "1", tools: [countLetters] },
  // Your agent goes here.
  async answer(turn) {
    if (!turn.userText.startsWith("Hello, I am ")) {
      return "Sorry, all I can do is greet people: say 'Hello, I am ...' and get a greeting.";
    }
    const name = turn.userText.slice("Hello, I am ".length);
    const letters = await turn.call(countLetters, { name });
    return `Hello ${name}, nice to meet you. Your name has ${letters} letters.`;
  },
};
