// The tools of a real MCP server, over its SDK's transport inside of one process.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { expect, test } from "vitest";
import { z } from "zod";
import { checkAgent } from "../src/agent.js";
import { type Agent, ToolMode } from "../src/index.js";
import { mcpTools } from "../src/mcp.js";
import { play, stubs } from "./adapters.js";

async function connected() {
  const server = new McpServer({ name: "weather", version: "1.4.0" });
  let calls = 0;
  const inputSchema = { city: z.string() };
  server.registerTool("look", { description: "Looks.", inputSchema }, async ({ city }) => {
    calls += 1;
    if (city === "Atlantis") return { isError: true, content: [{ type: "text", text: "no such city" }] };
    return { content: [{ type: "text", text: `${city}: 17` }] };
  });
  const outputSchema = { degrees: z.number() };
  server.registerTool("measure", { inputSchema, outputSchema }, async () => ({
    content: [],
    structuredContent: { degrees: 17 },
  }));
  const [near, far] = InMemoryTransport.createLinkedPair();
  const client = new Client({ name: "test", version: "1" });
  await Promise.all([server.connect(far), client.connect(near)]);
  return { tools: await mcpTools(client), calls: () => calls };
}

const agent = (tools: Agent["card"]["tools"], name: string, params: string): Agent => ({
  card: { id: "a", tools },
  answer: (turn) => turn.call(name, params).catch((error: Error) => `failed: ${error.message}`),
});

test("names, versions and schemas stand in the card", async () => {
  const { tools } = await connected();
  const { agentCard } = checkAgent({ card: { id: "a", tools }, answer: () => "" });
  expect(agentCard.tools).toMatchObject([
    { name: "look", description: "Looks.", version: "1.4.0", type: "function" },
    { name: "measure" },
  ]);
  const schema = JSON.parse(new TextDecoder().decode(agentCard.tools[0]?.inputSchema?.form.value as Uint8Array));
  expect(schema).toMatchObject({ properties: { city: { type: "string" } }, required: ["city"] });
});

test.each([
  ["look", '{"city":"Rome"}', '"Rome: 17"', 1],
  ["measure", '{"city":"Rome"}', '{"degrees":17}', 0],
  ["look", '{"city":"Atlantis"}', "failed: no such city", 1],
  ["look", '{"town":"Rome"}', "failed: ", 0],
])("a live call of %s with %s gives %s", async (name, params, text, times) => {
  const { tools, calls } = await connected();
  const seen = await play(agent(tools, name, params));
  expect([seen.text.startsWith(text), seen.of("toolFinished")[0]?.outcome.case, calls()]).toEqual([
    true,
    text.startsWith("failed") ? "error" : "result",
    times,
  ]);
});

test("with stubs the server is not called", async () => {
  const { tools, calls } = await connected();
  const seen = await play(agent(tools, "look", '{"city":"Rome"}'), { toolMode: ToolMode.STUB }, stubs({ look: "3" }));
  expect([seen.text, calls()]).toEqual(["3", 0]);
});

test("what is no client is refused", async () => {
  await expect(mcpTools({} as never)).rejects.toThrow("mcpTools: takes a connected Client");
});
