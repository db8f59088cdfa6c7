import { StructuredTool } from '@langchain/core/tools';

export class InvoiceTool extends StructuredTool {
  static readonly path = '/invoices';
  name = 'send_invoice';
  description = 'Sends the invoice of an order again.';
  version = '0.9.2';

  async _call(input: { orderId: string }): Promise<string> {
    return InvoiceTool.path + input.orderId;
  }
}
