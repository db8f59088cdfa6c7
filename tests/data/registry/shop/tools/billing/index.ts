export * from './refund.tool';
export { InvoiceTool } from './invoice.tool';
