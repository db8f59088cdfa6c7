const orderId = { type: 'string', pattern: '^[A-Z]-\\d+$' };

export const jsonSchema = { type: 'object', properties: { orderId }, required: ['orderId'] };
