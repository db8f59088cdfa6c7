const MAJOR = 1;
export const ORDER_VERSION = `${MAJOR}.2.0`;
