import type { ToolDefinition } from '../lib/context';
import * as toolExports from './tools.exports';

export * from './tools.exports';
export const ALL_TOOLS: ToolDefinition[] = Object.values(toolExports) as ToolDefinition[];
