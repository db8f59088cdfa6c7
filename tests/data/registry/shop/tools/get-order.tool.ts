import { jsonSchema as schemaOf } from '../lib/schemas';
import type { ToolDefinition } from '../lib/context';

export const getOrder = {
  name: 'get_order',
  description: 'Looks up one order by its number.',
  version: `1.4.0`,
  inputSchema: schemaOf,
  async execute({ orderId }: { orderId: string }) {
    return fetch(`https://shop.example/orders/${encodeURIComponent(orderId)}`).then((r) => r.json());
  },
} as const satisfies ToolDefinition;
