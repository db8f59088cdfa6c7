import { z } from 'zod';
import type { ToolDefinition, ShopContext } from '../lib/context';
import { ORDER_VERSION } from '../lib/versions';

const schema = z.object({
  orderId: z.string().describe('Order number, such as "A-1001"'),
  reason: z.enum(['changed_mind', 'too_late', 'other']).default('other'),
});

export const cancelOrderTool: ToolDefinition<typeof schema> = {
  name: 'cancel_order',
  description:
    'Cancels an order that has not been shipped. ' +
    'Use when the user asks to cancel, stop or undo an order. ' +
    "For parcels on their way, use track_parcel instead; it doesn't cancel anything.",
  category: 'write',
  requiresConfirmation: true,
  version: ORDER_VERSION,
  schema,

  execute: async (params, context: ShopContext) => {
    const { orderId, reason } = schema.parse(params);
    const order = await context.client.post<{ id: string }>(`/orders/${orderId}/cancel`, { reason });
    return { tool: 'cancel_order', ok: order.id === orderId && !/^B-/.test(order.id), half: (1 + 1) / 2 };
  },
};
