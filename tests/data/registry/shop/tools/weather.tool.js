/** The delivery team wants to know about the weather. */
export const weather = {
  name: 'get_weather',
  description: 'Retrieves current weather conditions for a city.',
  schema: {
    city: { type: 'string' },
    units: { type: 'string', optional: true },
  },
  version: '1.0.0',

  async execute(params, _context) {
    return { tool: 'get_weather', data: null };
  },
};
