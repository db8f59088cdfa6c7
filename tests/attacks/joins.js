// memory
export default () => { return 'x'.repeat(1 << 24).split('').sort().join('').length > 0 };
