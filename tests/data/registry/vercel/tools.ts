import { tool } from 'ai';
import { z } from 'zod';

const askForConfirmation = tool({
  description: 'Asks the user for confirmation.',
  parameters: z.object({ message: z.string() }),
});

export const tools = {
  askForConfirmation,
  getLocation: tool({
    description: 'Gets the user location.',
    parameters: z.object({}),
    execute: async () => 'here',
  }),
  'get-time': {
    type: 'function',
    function: { name: 'get_time', description: 'Tells the time.', parameters: { type: 'object', properties: {} } },
  },
};

export const list = [tools.getLocation, tool('ping', 'Answers pong.', {}, async () => 'pong'), ...Object.values(tools)];
