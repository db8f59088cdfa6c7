// call stack | JSON | stack overflow | memory
export default () => { return JSON.parse('['.repeat(1e6)) };
