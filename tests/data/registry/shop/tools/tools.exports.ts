/**
 * The tools of the shop assistant: one line a tool, in alphabetical order.
 */

export { cancelOrderTool } from './cancel-order.tool';
export { default as convertCurrencyTool } from './convert-currency.tool';
export { getOrder as getOrderTool } from './get-order.tool.js';
export * from './billing';
export * from './search/search-products.tool';
export type { ShopContext } from '../lib/context';

import { trackParcel } from './track-parcel';
import { weather } from './weather.tool.js';
export { trackParcel, weather };
