import { createTool } from '@mastra/core/tools';
import { z } from 'zod';

export const refundSchema = z.object({ name: z.string(), description: z.string() });

export const refundTool = createTool({
  id: 'refund-payment',
  description: 'Refunds a payment.',
  inputSchema: refundSchema,
  execute: async ({ context }) => <Receipt note="it's done">{context.amount} back (soon</Receipt>,
});

export function isRefundable(amount: number): boolean {
  return amount < 100;
}
