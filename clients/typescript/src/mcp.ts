/**
 * The tools of an MCP server, for agents that call them: names and schemas for the card, and calls through the turn.
 *
 * With stubs the server is asked for its list of tools only.
 */
import { type Tool, tool } from "./tool.js";

/** The most pages of a list that are read: a server that always names a further one is broken. */
const MAX_PAGES = 100;

/** A connected `Client` of `@modelcontextprotocol/sdk`. */
export interface McpClient {
  // biome-ignore lint/suspicious/noExplicitAny: the SDK's own types differ from version to version.
  listTools(params?: any): Promise<{ tools: McpTool[]; nextCursor?: string | undefined }>;
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  callTool(params: any, schema?: any, options?: any): Promise<unknown>;
  getServerVersion?(): { version: string } | undefined;
}

/** A tool as an MCP server lists it. */
export interface McpTool {
  name: string;
  description?: string | undefined;
  inputSchema: object;
}

/**
 * The tools of the server that the client is connected to, for `card.tools`. Calls that go through the turn
 * (`turn.call(name, params)`) are made at the server in the mode LIVE alone.
 *
 * A call gives the server's structured content, else its text; a result with `isError` is a failed call.
 */
export async function mcpTools(client: McpClient): Promise<Tool<Record<string, unknown>>[]> {
  if (typeof client?.listTools !== "function" || typeof client.callTool !== "function") {
    throw new TypeError("mcpTools: takes a connected Client of @modelcontextprotocol/sdk");
  }
  const version = client.getServerVersion?.()?.version ?? "";
  return (await listed(client)).map(({ name, description = "", inputSchema }) =>
    tool({
      name,
      description,
      version,
      inputSchema: inputSchema as Record<string, unknown>,
      async run(args: Record<string, unknown>, { signal }) {
        const result = (await client.callTool({ name, arguments: args }, undefined, { signal })) as McpResult;
        const text = (result.content ?? []).map((block) => block.text ?? `[${block.type}]`).join("\n");
        if (result.isError) throw new Error(text || `${name} failed`);
        return result.structuredContent ?? text;
      },
    }),
  );
}

async function listed(client: McpClient): Promise<McpTool[]> {
  const tools: McpTool[] = [];
  let cursor: string | undefined;
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const { tools: more, nextCursor } = await client.listTools(cursor === undefined ? undefined : { cursor });
    tools.push(...more);
    if (!nextCursor) return tools;
    cursor = nextCursor;
  }
  throw new Error(`mcpTools: the server's list of tools has more than ${MAX_PAGES} pages`);
}

interface McpResult {
  content?: { type: string; text?: string }[];
  structuredContent?: unknown;
  isError?: boolean;
}
