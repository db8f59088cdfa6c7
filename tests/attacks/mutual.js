// call stack | stack overflow
export default () => { const o = { toString() { return `${o}` } }; return `${o}` };
