export interface ShopContext {
  client: { post<T>(path: string, body: unknown): Promise<T> };
}

export interface ToolDefinition<S = unknown> {
  name: string;
  description: string;
  version?: string;
  schema?: S;
}
