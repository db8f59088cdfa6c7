import { buildTool } from '@example/agent-kit';
import { config } from '../../lib/config';

const base = { version: '3.0.0-beta.1', category: 'read' };

export const MAX_RESULTS = 20;

export const searchProductsTool = {
  ...base,
  name: 'search_products',
  description: 'Searches the catalogue. At most ' + MAX_RESULTS + ' results.',
  parameters: { type: 'object', properties: { query: { type: 'string' } } },
};

export const suggestTool = {
  name: 'suggest_products',
  description: config.texts.suggest,
};

export const legacySearch = buildTool(config);
