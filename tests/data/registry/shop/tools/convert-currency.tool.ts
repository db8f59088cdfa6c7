import { defineTool } from '@example/agent-kit';

const NAME = 'convert_currency' as const;

interface Params {
  amount: number;
  to: 'EUR' | 'USD';
}

export default defineTool<Params>({
  name: NAME,
  description: `Converts an amount between currencies
at today's rate.`,
  version: '2.1.0',
  inputSchema: {
    type: 'object',
    properties: {
      amount: { type: 'number', minimum: 0, maximum: 1_000_000 },
      to: { type: 'string', enum: ['EUR', 'USD'] },
    },
    required: ['amount', 'to'],
    additionalProperties: false,
  },
  handler: async ({ amount, to }) => ({ amount: (amount * 1.08) / 1, to }),
});
